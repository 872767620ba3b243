"""Lines at the foot of a terminal that change while something runs.

``rich`` draws them, and loads only when there is something to draw. While they are there, whatever
is written to the console's standard error goes through ``rich``, which puts it above them: nothing
is glued to a line that is drawn anew.

A line has a spinner, the name and the time; between them the bytes, as a bar, or, once all are
there, what is done with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TextIO, cast

from hq.cli.console import Console
from hq.store.faults import human_size

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.live import Live
    from rich.table import Table

_REST: Final = 52  # columns of a line beside the name
_NAME_WIDTH: Final = 28  # at least; more on a wide terminal, and what is longer is cut


class Task:
    """One line. ``after``: the word for what is done when all the bytes are there.

    Written by the thread that does the work, read by the one that draws; each value by itself.
    """

    __slots__ = ("after", "done", "name", "since", "total")

    def __init__(self, name: str, after: str) -> None:
        self.name = name
        self.after = after
        self.since = time.monotonic()
        self.done = 0
        self.total = 0

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.since


class LiveArea:
    """Draws the tasks that ``tasks`` gives, from ``start`` to ``stop``."""

    def __init__(self, console: Console, tasks: Callable[[], Sequence[Task]]) -> None:
        self._console = console
        self._tasks = tasks
        self._terminal = console.err
        self._live: Live | None = None

    def start(self) -> None:
        """Begins to draw, unless it does already. Called by one thread."""
        if self._live is not None:
            return
        from rich.console import Console as RichConsole
        from rich.live import Live

        screen = RichConsole(file=self._terminal)
        self._live = Live(
            get_renderable=lambda: table(self._tasks(), screen.width),
            console=screen,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._console.err = cast("TextIO", Above(self._terminal, screen))
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Takes the lines away."""
        if self._live is not None:
            self._live.stop()
            self._console.err = self._terminal
            self._live = None


class Above:
    """Stands for a terminal: whole lines are printed above what is drawn at its foot."""

    def __init__(self, terminal: TextIO, screen: RichConsole) -> None:
        self._terminal = terminal
        self._screen = screen

    def write(self, text: str) -> int:
        """Prints the lines. A line is always written at once, as everything of ``Console`` is."""
        from rich.text import Text

        # The line end is printed by rich itself.
        line = Text.from_ansi(text.removesuffix("\n"))
        self._screen.print(line, soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Nothing waits here."""
        self._terminal.flush()

    def isatty(self) -> bool:
        """Whether there are colours is asked of the terminal."""
        return self._terminal.isatty()


def table(tasks: Sequence[Task], columns: int) -> Table:
    """The lines, for a terminal of so many columns."""
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    for width in (1, max(_NAME_WIDTH, columns - _REST), None, None, None):
        grid.add_column(no_wrap=True, max_width=width)
    for task in tasks:
        done, total = task.done, task.total
        running = done < total
        spinner = Spinner("line", style="cyan")
        # A new spinner every time: its place comes from the clock.
        spinner.start_time = 0.0
        grid.add_row(
            spinner,
            Text(task.name),
            ProgressBar(total, done, width=16) if running else Text(task.after if total else ""),
            Text(f"{human_size(done)} of {human_size(total)}" if running else ""),
            Text(f"{task.age:.0f} s", style="dim"),
        )
    return grid
