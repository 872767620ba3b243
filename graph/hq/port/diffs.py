"""A patch file made again: git's diff in the style of the patch it replaces, under its header.

The header stays byte for byte but for ``Cut-Against`` and ``Last-Update``. A patch that had no
``diff --git`` lines gets none, save where they say what nothing else does (a mode, an empty file).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hq.patchwork.patch import Patch

_SAYS_MORE = (b"new mode", b"old mode", b"rename ", b"copy ", b"new file mode 100755")


def regenerated(
    patch: Patch, diff: bytes, old: str, new: str, date: str = "", commit: str = ""
) -> bytes:
    """The patch with ``diff`` (git's) for its body, cut against release ``new`` (if any).

    ``commit``: upstream's commit that made it necessary, for a field of its own.
    """
    git_style = any(section.git is not None for section in patch.sections)
    preamble = renewed_header(patch.preamble, old, new, date)
    if commit:
        preamble = with_commit(preamble, commit)
    order = [
        side.names[0] for s in patch.sections for side in (s.new or s.old,) if side and side.names
    ]
    return with_header(preamble, diff, git_style=git_style, order=order)


def with_header(
    preamble: bytes, diff: bytes, *, git_style: bool = False, order: Sequence[str] = ()
) -> bytes:
    """A header and git's diff below it; files in ``order`` first, the others by name."""
    sections = [_named(section) for section in _sections(diff)]
    # A section without '---' lines would take the next one's for its own: all or none.
    if not git_style and not any(_says_more(section) for section in sections):
        sections = [section[section.find(b"\n--- ") + 1 :] for section in sections]
    place = {name.partition("/")[2].encode(): number for number, name in enumerate(order)}
    sections.sort(key=lambda text: place.get(_name(text), len(place)))
    if preamble and not preamble.endswith(b"\n"):
        preamble += b"\n"
    return preamble + b"".join(sections)


def _sections(diff: bytes) -> list[bytes]:
    starts = [match.start() for match in re.finditer(rb"^diff --git ", diff, re.MULTILINE)]
    return [diff[a:b] for a, b in zip(starts, [*starts[1:], len(diff)], strict=True)]


def _name(section: bytes) -> bytes:
    found = re.search(rb"^\+\+\+ b/([^\t\n]*)", section, re.MULTILINE)
    found = found or re.search(rb"^--- a/([^\t\n]*)", section, re.MULTILINE)
    return found[1] if found else b""


def _says_more(section: bytes) -> bool:
    at = section.find(b"\n--- ")
    return at < 0 or any(word in section[: at + 1] for word in _SAYS_MORE)


def _named(section: bytes) -> bytes:
    """The section with ``a/`` and ``b/`` in its first line, also where one side is not there.

    Twelve digits of an object id tell two contents apart; more help nobody read.
    """
    first, _, rest = section.partition(b"\n")
    names = first.removeprefix(b"diff --git ")
    half = len(names) // 2
    if b'"' not in names and names[:half][2:] == names[half + 1 :][2:]:
        first = b"diff --git a/" + names[:half][2:] + b" b/" + names[:half][2:]
    index = rb"(?m)\A((?:(?!---).*\n)*?index [0-9a-f]{12})[0-9a-f]*(\.\.[0-9a-f]{12})[0-9a-f]*"
    return first + b"\n" + re.sub(index, rb"\1\2", rest)


def renewed_header(preamble: bytes, old: str, new: str, date: str = "") -> bytes:
    """The header with ``Cut-Against`` naming ``new``, and the date where there is one."""

    def cut_against(match: re.Match[bytes]) -> bytes:
        value = match[2]
        if _has_version(value, old):
            return match[1] + _replaced(value, old, new)
        return match[0] if _has_version(value, new) else match[1] + new.encode()

    text = preamble
    if new:
        text = re.sub(rb"(?mi)^(Cut-Against:[ \t]*)(\S.*)$", cut_against, preamble)
    if date:
        text = re.sub(rb"(?mi)^(Last-Update:[ \t]*)\S.*$", rb"\g<1>" + date.encode(), text)
    return text


def with_commit(preamble: bytes, commit: str) -> bytes:
    """The header with upstream's commit below ``Cut-Against``, in place of one from before."""
    line = b"X-Upstream-Commit: " + " ".join(commit.split()).encode() + b"\n"
    text = re.sub(rb"(?mi)^X-Upstream-Commit:.*\n", b"", preamble)
    found = re.search(rb"(?mi)^Cut-Against:.*\n", text)
    at = found.end() if found else 0
    return text[:at] + line + text[at:]


def _version(version: str) -> bytes:
    return rb"(?<![\w.])" + re.escape(version.encode()) + rb"(?![\w]|\.\d)"


def _has_version(text: bytes, version: str) -> bool:
    return re.search(_version(version), text) is not None


def _replaced(text: bytes, old: str, new: str) -> bytes:
    return re.sub(_version(old), lambda _: new.encode(), text)
