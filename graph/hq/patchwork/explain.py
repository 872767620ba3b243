"""A patch that did not apply, for people: where, what was expected, what stands there, what to do.

For the hunk at fault the expected and the found lines stand side by side, with the line numbers of
the file as it is (before the patch), and a mark on every row that differs::

    error: patches/fix.patch does not apply: hunk 2 of vllm/envs.py does not match the file anywhere
      at: patches/fix.patch:31
      file vllm/envs.py, hunk 2 (def main), stated at line 40; most alike at line 52:

            expected                       found
       52   x = 1                          x = 1
       53 ! y = 2                        | y = 3
      help: …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hq.model.errors import BuildError, HqError, Location
from hq.patchwork.apply import FileReport, PatchOutcome, verdict
from hq.patchwork.names import show
from hq.patchwork.place import AlreadyApplied, Ambiguous, Conflict, Fuzzy, Placed, TargetMissing

MAX_ROWS = 24
_WIDTH = 46
_BEFORE, _AFTER = 16, 10  # characters shown around a difference far to the right
_CONTEXT_ROWS = 3
_MAX_HUNKS = 3


def failure(outcome: PatchOutcome, file: str = "") -> HqError | None:
    """The error that a patch's outcome is, or ``None`` if it applied.

    ``file`` is the patch's path for people; the outcome's name when not given.
    """
    if outcome.outcome == "applied":
        return None
    name = show(file or outcome.name)
    word = {
        "refused": "is refused",
        "already-applied": "is already applied",
        "rejected": "does not apply",
    }[outcome.outcome]
    details: list[str] = []
    hint = outcome.hint
    if outcome.outcome == "rejected":
        for report, placed in _failed(outcome):
            details += _hunk(report, placed)
            hint = hint or _hint(placed)
        details += _summary(outcome)
    return BuildError(
        f"{name} {word}: {outcome.reason}",
        where=Location(name, outcome.line),
        details=details,
        hint=hint,
    )


def _failed(outcome: PatchOutcome) -> list[tuple[FileReport, Placed]]:
    """The first few hunks that did not land."""
    failed = [
        (report, placed)
        for report in outcome.files
        for placed in report.hunks
        if (not placed.lands or placed.outside)
        and not isinstance(placed.placement, (TargetMissing, AlreadyApplied))
    ]
    return failed[:_MAX_HUNKS]


def _summary(outcome: PatchOutcome) -> list[str]:
    """One line for every hunk that is not shown, so that nobody has to run it again to know."""
    shown = {id(placed) for _, placed in _failed(outcome)}
    lines = []
    for report in outcome.files:
        if report.trouble is not None and report.trouble.message != outcome.reason:
            lines.append(f"also: {report.trouble.message}")
        lines += [
            f"also: hunk {placed.hunk.n} of {show(report.path)} {verdict(placed)}"
            for placed in report.hunks
            if id(placed) not in shown and not placed.lands
        ]
    return lines[:MAX_ROWS]


def _hunk(report: FileReport, placed: Placed) -> list[str]:
    hunk = placed.hunk
    if not hunk.old:
        return []  # nothing to set beside the file
    heading = hunk.heading.decode("utf-8", "backslashreplace")
    named = f" ({_printable(heading)[:60]})" if heading else ""
    stated = hunk.old_start
    head = f"file {show(report.path)}, hunk {hunk.n}{named}, stated at line {stated}"
    head += _whereabouts(placed)
    if placed.at < 0 or not report.lines:
        return [head]
    return [head, "", *_side_by_side(hunk.old, report.lines, placed.at), ""]


def _whereabouts(placed: Placed) -> str:
    match placed.placement:
        case Fuzzy(_, fuzz):
            lines = "one line of context is" if fuzz == 1 else f"{fuzz} lines of context are"
            return f"; fits at line {placed.at + 1} only if {lines} ignored:"
        case Ambiguous(candidates):
            return f"; {len(candidates)} equally good places, the nearest at line {placed.at + 1}:"
        case Conflict(0):
            return "; nothing in the file is like it. There stands:" if placed.at >= 0 else ""
        case Conflict():
            return f"; most alike at line {placed.at + 1}:"
    return f"; placed at line {placed.at + 1}:"


def _hint(placed: Placed) -> str:
    match placed.placement:
        case Fuzzy():
            return (
                "its context has changed: read the change around it, then make the patch again "
                "from this tree; hq never drops context"
            )
        case Ambiguous():
            return "give the hunk more lines of context, or its function's name after the second @@"
        case Conflict():
            return "make the patch again from this tree, or drop it if the tree has its own change"
    return "make the patch again from this tree"


def _side_by_side(expected: Sequence[bytes], lines: Sequence[bytes], at: int) -> list[str]:
    """Rows of expected against found lines, cut around the first difference."""
    found = lines[at : at + len(expected)]
    pairs = list(_aligned(list(expected), list(found), at))
    differing = [index for index, row in enumerate(pairs) if row[1] != row[2]]
    first = max((differing[0] if differing else 0) - _CONTEXT_ROWS, 0)
    shown = pairs[first : first + MAX_ROWS]
    indent = _common_indent(shown)
    cells = [_cells(left, right, indent) for _, left, right in shown]
    width = max([8, *(len(left) for left, _ in cells)])
    rows = [f"{'':8}{'expected':<{width}}   found"]
    if first:
        rows.append(f"{'':8}… {_count(first, 'equal')} above")
    for (number, left, right), (one, two) in zip(shown, cells, strict=True):
        mark = " " if left == right else "!"
        label = str(number) if number else ""
        bar = "|" if mark == "!" else " "
        rows.append(f"{label:>5} {mark} {one:<{width}} {bar} {two}".rstrip())
    rest = len(pairs) - first - len(shown)
    if rest:
        rows.append(f"{'':8}… {_count(rest, 'more')}")
    return _with_invisible(rows, shown)


def _count(lines: int, kind: str) -> str:
    return f"{lines} {kind} line{'' if lines == 1 else 's'}"


def _with_invisible(
    rows: list[str], shown: Sequence[tuple[int, bytes | None, bytes | None]]
) -> list[str]:
    """Says what the eye cannot see: two cells alike on paper that differ in blanks or line ends."""
    for number, left, right in shown:
        if left is None or right is None or left == right:
            continue
        reason = _invisible(left, right)
        if reason:
            rows.append(f"{'':8}line {number} differs in {reason}")
            break
    return rows


def _invisible(left: bytes, right: bytes) -> str:
    if left.rstrip(b"\r\n") == right.rstrip(b"\r\n"):
        if left.endswith(b"\r\n") != right.endswith(b"\r\n"):
            return "its line end only: CRLF against LF"
        return "the newline at the end of the file only"
    if left.removeprefix(b"\xef\xbb\xbf") == right.removeprefix(b"\xef\xbb\xbf"):
        return "a byte order mark only"
    if left.split() == right.split():
        return "white space only"
    return ""


def _aligned(
    expected: list[bytes], found: list[bytes], at: int
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Pairs of lines with the found line's number (0 where there is none)."""
    from difflib import SequenceMatcher

    if len(expected) > 400:  # difflib is quadratic
        for index, line in enumerate(expected):
            right = found[index] if index < len(found) else None
            yield (at + index + 1 if right is not None else 0), line, right
        return
    matcher = SequenceMatcher(None, expected, found, autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        for step in range(max(i_end - i, j_end - j)):
            left = expected[i + step] if i + step < i_end else None
            right = found[j + step] if j + step < j_end else None
            yield (at + j + step + 1 if right is not None else 0), left, right


def _common_indent(shown: Sequence[tuple[int, bytes | None, bytes | None]]) -> int:
    """Blanks that every line begins with: left out, so that more of the lines can be seen."""
    cells = [cell for _, *pair in shown for cell in pair if cell is not None and cell.strip()]
    if any(cell.startswith(b"\t") for cell in cells):
        return 0
    return min((len(cell) - len(cell.lstrip(b" ")) for cell in cells), default=0)


def _cells(left: bytes | None, right: bytes | None, indent: int) -> tuple[str, str]:
    """Both lines, cut to the width so that where they part is seen."""
    one, two = _text(left, indent), _text(right, indent)
    start = 0
    if left is not None and right is not None and one != two:
        same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
        same = min(len(one), len(two)) if same is None else same
        if same > _WIDTH - _AFTER and max(len(one), len(two)) > _WIDTH:
            start = same - _BEFORE
    return _cut(one, start), _cut(two, start)


def _text(line: bytes | None, indent: int) -> str:
    if line is None:
        return "(no line)"
    bare = line.rstrip(b"\r\n")[indent:]
    return _printable(bare.decode("utf-8", "backslashreplace").expandtabs(4))


def _cut(text: str, start: int) -> str:
    """At most ``_WIDTH`` characters, from ``start`` on."""
    rest = f"…{text[start:]}" if start else text
    return rest if len(rest) <= _WIDTH else rest[: _WIDTH - 1] + "…"


def _printable(text: str) -> str:
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    )
