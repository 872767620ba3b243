"""Where text goes, and in which colours.

Data goes to standard output, everything else to standard error. Colours only on a terminal, and
never with ``NO_COLOR`` (no-color.org) or ``TERM=dumb``. Where GitHub Actions runs, errors are also
annotations.
"""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

from hq.model.errors import HqError

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class OutputError(Exception):
    """Standard output does not take what is written: its reader has gone, or its disk is full."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Console:
    """The two streams of a command."""

    def __init__(self, out: TextIO, err: TextIO, environment: dict[str, str]) -> None:
        self.out = out
        self.err = err
        self.is_live = err.isatty() and environment.get("TERM") != "dumb"
        self._plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        self._annotate = environment.get("GITHUB_ACTIONS") == "true"
        self.quiet = False

    def style(self, text: str, style: str, stream: TextIO | None = None) -> str:
        """The text in a colour, if the stream (standard error by default) shows colours."""
        if self._plain or not (stream or self.err).isatty():
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"

    def print(self, text: str) -> None:
        """Data, to standard output. Raises ``OutputError``."""
        try:
            self.out.write(text if text.endswith("\n") else text + "\n")
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        """Hands over what was printed. Raises ``OutputError``."""
        try:
            self.out.flush()
        except OSError as error:
            raise OutputError(error) from error

    def note(self, text: str) -> None:
        """Something on the way, to standard error; nothing with ``--quiet``."""
        if not self.quiet:
            self.err.write(text + "\n")
            self.err.flush()

    def warn(self, text: str) -> None:
        """A warning, to standard error."""
        self.err.write(f"{self.style('warning:', 'yellow')} {text}\n")
        if self._annotate:
            self.err.write(f"::warning::{_escape(text)}\n")
        self.err.flush()

    def error(self, error: HqError) -> None:
        """An error, to standard error."""
        text = error.render()
        head = "error:"
        if text.startswith(head):
            text = self.style(head, "red") + text[len(head) :]
        self.err.write(text + "\n")
        if self._annotate:
            self.err.write(_annotation(error) + "\n")
        self.err.flush()


def _annotation(error: HqError) -> str:
    # Workflow commands: properties and message are escaped in different ways.
    place = ""
    if error.where is not None:
        file = _escape(error.where.file).replace(":", "%3A").replace(",", "%2C")
        place = f" file={file}"
        if error.where.line:
            place += f",line={error.where.line}"
    lines = error.render().removeprefix("error: ")
    return f"::error{place}::{_escape(lines)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def system_console() -> Console:
    """The console of this process."""
    # Whoever starts hq may have closed either: then it writes to nobody.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that is no UTF-8, or a C locale, must not end a build.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return Console(sys.stdout, sys.stderr, dict(os.environ))


def _nowhere() -> TextIO:
    # Open until the process ends, like the stream that it stands for.
    return open(os.devnull, "w", encoding="utf-8")
