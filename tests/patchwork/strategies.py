"""Files, edits of them, and patches of the edits, for hypothesis."""

from __future__ import annotations

import difflib

from hypothesis import strategies as st

# Few different lines, so that contexts repeat, and some that stand alone.
WORDS = ["a", "b", "}", "", "  x", "def f():", "x = 1", "return"]


@st.composite
def files(draw: st.DrawFn, most: int = 30) -> list[bytes]:
    """The lines of a file; some lines stand nowhere else."""
    words = draw(st.lists(st.sampled_from(WORDS), max_size=most))
    alone = draw(st.integers(1, 4))
    return [
        f"{word} {n}\n".encode() if n % alone == 0 else f"{word}\n".encode()
        for n, word in enumerate(words)
    ]


@st.composite
def edited(draw: st.DrawFn, lines: list[bytes], most: int = 4) -> list[bytes]:
    """``lines`` after a few insertions, deletions and changes."""
    out = list(lines)
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(out)))
        gone = draw(st.integers(0, 2))
        new = draw(st.lists(st.sampled_from([*WORDS, "new"]), max_size=3))
        out[at : at + gone] = [f"{word}\n".encode() for word in new]
    return out


def without_last_newline(lines: list[bytes]) -> list[bytes]:
    """The file cut before its last line feed, where that leaves a line."""
    if not lines or lines[-1] == b"\n":
        return lines
    return [*lines[:-1], lines[-1][:-1]]


def unified(before: list[bytes], after: list[bytes], context: int = 3) -> bytes:
    """What ``diff -u`` writes, made with difflib and the marker that difflib does not know."""
    rows = difflib.diff_bytes(
        difflib.unified_diff, before, after, b"a/f", b"b/f", n=context, lineterm=b"\n"
    )
    out = []
    for row in rows:
        out.append(row if row.endswith(b"\n") else row + b"\n\\ No newline at end of file\n")
    return b"".join(out)
