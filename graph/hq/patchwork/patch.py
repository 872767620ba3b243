r"""What a patch file holds, as values.

Lines keep their terminator: ``b"x\n"``; the last line of a file without a final newline is
``b"x"``. So the end-of-line state is part of every comparison, and nothing is ever converted.

Names are text decoded as UTF-8 with ``surrogateescape``, as the file system gives them, and raw:
before ``-pN`` strips them.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

NOTHING: Final = b""

RefusalCode = Literal[
    "binary",
    "combined-diff",
    "compressed",
    "context-diff",
    "counts",
    "creates-and-deletes",
    "ed-script",
    "encoding",
    "git-header",
    "hunk-header",
    "hunk-line",
    "leftover-lines",
    "mode",
    "newline-marker",
    "no-change",
    "normal-diff",
    "path",
    "stray-hunk",
    "symlink",
    "too-large",
    "truncated",
    "unchecked-insertion",
]


class Refusal(NamedTuple):
    """Why a patch is not tried, or not let through: at fault is what it says, or where it points.

    ``line`` counts from 1 in the patch file; 0 when the whole file is meant.
    """

    code: RefusalCode
    line: int
    message: str
    hint: str = ""


class Hunk(NamedTuple):
    """One hunk of a unified diff.

    ``n`` counts from 1 within its section, ``line`` is that of its ``@@`` header in the patch.
    ``old_start`` and ``new_start`` are as written: with a count of 0 they name the line *above*.
    ``leading`` and ``trailing`` count the context lines before the first change and after the last.
    ``body`` is the text between this header and the next, for showing.
    """

    n: int
    line: int
    old_start: int
    new_start: int
    old: list[bytes]
    new: list[bytes]
    leading: int
    trailing: int
    heading: bytes

    def reversed(self) -> Hunk:
        """The hunk that undoes this one."""
        return self._replace(
            old_start=self.new_start, new_start=self.old_start, old=self.new, new=self.old
        )


class Side(NamedTuple):
    """A ``---`` or ``+++`` line: the names it may mean, best first, and what its date says.

    ``names`` is empty for ``/dev/null``. There are two when the line has blanks and no tab:
    the whole of it, and up to the first blank.
    """

    names: tuple[str, ...]
    epoch: bool = False


class GitHeader(NamedTuple):
    """What stands between ``diff --git`` and the first hunk.

    ``old`` and ``new`` are the names of the first line where it can be read without doubt.
    Modes are as written, ``None`` where not said. ``old_blob`` and ``new_blob`` are the (short)
    object ids of the ``index`` line; ``index_mode`` is the mode on it.
    """

    line: int
    old: str = ""
    new: str = ""
    old_mode: int | None = None
    new_mode: int | None = None
    new_file: int | None = None
    deleted_file: int | None = None
    index_mode: int | None = None
    rename_from: str = ""
    rename_to: str = ""
    copy_from: str = ""
    copy_to: str = ""
    old_blob: str = ""
    new_blob: str = ""
    binary: int = 0


class Section(NamedTuple):
    """All that a patch says about one file. ``line`` is where the section begins."""

    line: int
    old: Side | None
    new: Side | None
    git: GitHeader | None
    hunks: tuple[Hunk, ...]


class Patch(NamedTuple):
    """A patch file, read.

    ``fields``: the header's fields in order, names as written, values joined over continuation
    lines with line feeds. ``refusals`` is empty for a patch that may be tried.
    """

    name: str
    fields: tuple[tuple[str, str], ...]
    preamble: bytes
    sections: tuple[Section, ...]
    refusals: tuple[Refusal, ...]

    def field(self, name: str) -> str | None:
        """The first value of a header field, its name compared without case."""
        wanted = name.lower()
        return next((value for key, value in self.fields if key.lower() == wanted), None)

    @property
    def allows_repeat(self) -> bool:
        """Whether a change may be put in where its result already stands (``Allow-Repeat``)."""
        value = (self.field("Allow-Repeat") or "no").strip().lower()
        return value not in {"", "no", "false", "off", "0"}
