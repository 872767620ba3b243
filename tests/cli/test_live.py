"""Live lines: what a terminal shows meanwhile, and what stays on it at the end."""

from __future__ import annotations

import io
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hq.cli import observer
from hq.cli.console import Console
from hq.cli.live import LiveArea, Task
from hq.cli.observer import BuildObserver
from hq.cli.transfers import TransferView
from hq.execute.walk import Outcome
from hq.plan.node import Node


class Terminal(io.StringIO):
    """Remembers what is written, and can say what a terminal would show of it."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The rows, without blanks at their ends and without empty rows at the foot."""
        rows, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", self.getvalue()):
            if part == "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            elif part == "\r":
                column = 0
            elif part == "\x1b[2K":
                rows[row] = ""
            elif re.fullmatch(r"\x1b\[\d*A", part):
                row -= int(part[2:-1] or 1)
            elif not part.startswith("\x1b"):
                rows[row] = (
                    rows[row].ljust(column)[:column] + part + rows[row][column + len(part) :]
                )
                column += len(part)
            else:
                assert re.fullmatch(r"\x1b\[([\d;]*m|\?25[lh])", part), part
        return "\n".join(text.rstrip() for text in rows).rstrip("\n").split("\n")


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)


def console(terminal: Terminal) -> Console:
    return Console(io.StringIO(), terminal, {})


def shown(row: str) -> str:
    """A row without the spinner and the time."""
    return re.sub(r" +\d+ s\Z", "", row[2:])


LONG_NAME = "patch:" + "long" * 5 + "l\u2026"


def test_a_row_says_what_its_task_does() -> None:
    terminal = Terminal()
    tasks = [Task("wheel:vllm", "checking"), Task("patch:" + "long" * 10, "finishing")]
    area = LiveArea(console(terminal), lambda: tasks)
    area.start()
    live = area._live
    assert live is not None
    assert [shown(row) for row in terminal.screen()] == ["wheel:vllm", LONG_NAME]
    tasks[0].done, tasks[0].total = 150_000_000, 300_000_000
    live.refresh()
    first, second = (shown(row) for row in terminal.screen())
    assert re.sub(r"[\u2501\u2578\u257a]{16}", "(bar)", first) == (
        "wheel:vllm                   (bar) 150.0 MB of 300.0 MB"
    )
    assert second == LONG_NAME
    tasks[0].done = tasks[0].total
    live.refresh()
    assert [shown(row) for row in terminal.screen()] == [f"{'wheel:vllm':28} checking", LONG_NAME]
    area.stop()
    assert terminal.screen() == [""]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.text("abc []:/=.{}'\"\\", max_size=200))))
def test_what_is_written_meanwhile_stands_by_itself(steps: list[tuple[bool, str]]) -> None:
    """Whole lines, in their order, each once, however the live rows come and go between them."""
    terminal = Terminal()
    written = console(terminal)
    tasks: list[Task] = []
    area = LiveArea(written, lambda: tasks)
    area.start()
    for drawn, text in steps:
        if drawn:
            tasks[:] = [Task("a", ""), Task("b", "")] if not tasks else []
            assert area._live is not None
            area._live.refresh()
        written.note(written.style("built", "green") + text)
    area.stop()
    assert written.err is terminal
    expected = [f"built{text}".rstrip() for _, text in steps] or [""]
    assert terminal.screen() == expected


def node(name: str) -> Node:
    return Node(name, name.partition(":")[0], 1, {}, {})


def outcome(name: str, *warnings: str) -> Outcome:
    return Outcome(node(name), "built", None, None, {}, (), warnings)


def test_a_build_with_a_long_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "LONG", 0.0)
    monkeypatch.setattr(observer, "_LOOK", 0.001)
    terminal = Terminal()
    seen = BuildObserver(console(terminal))
    seen.started("wheel:vllm")
    seen.started("layer:wheel")
    while "layer:wheel" not in terminal.getvalue():
        time.sleep(0.001)
    seen.progressed("wheel:vllm", 5, 5)
    seen.finished(outcome("wheel:vllm", "odd"))
    seen.finished(outcome("layer:wheel"))
    seen.close()
    rows = [re.sub(r"\d+\.\d\d s", "T s", row) for row in terminal.screen()]
    assert rows == ["built wheel:vllm T s", "warning: wheel:vllm: odd", "built layer:wheel T s"]
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1


def test_a_quick_build_draws_nothing() -> None:
    terminal = Terminal()
    seen = BuildObserver(console(terminal))
    seen.started("wheel:vllm")
    seen.progressed("wheel:vllm", 1, 2)
    seen.finished(outcome("wheel:vllm"))
    seen.close()
    assert "\x1b[2K" not in terminal.getvalue()
    assert re.fullmatch(r"built wheel:vllm \d\.\d\d s", terminal.screen()[0])


def test_a_transfer_leaves_nothing_but_its_warnings() -> None:
    terminal = Terminal()
    told = console(terminal)
    with TransferView(told, "pushed") as view:
        view("sha256:" + "ab" * 32, 1 << 20, 4 << 20)
        told.warn("the registry is slow")
        view("sha256:" + "ab" * 32, 4 << 20, 4 << 20)
        assert "abababababab" in terminal.getvalue()
    assert terminal.screen() == ["warning: the registry is slow"]


def test_without_a_terminal_only_plain_lines() -> None:
    out = io.StringIO()
    told = Console(io.StringIO(), out, {})
    seen = BuildObserver(told)
    seen.started("wheel:vllm")
    seen.progressed("wheel:vllm", 1, 2)
    seen.finished(outcome("wheel:vllm"))
    seen.close()
    assert re.fullmatch(r"built wheel:vllm \d\.\d\d s\n", out.getvalue())
