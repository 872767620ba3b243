r"""Reads a patch file: bytes in, a ``Patch`` out. Never raises for what the bytes say.

Grammar, after GNU diffutils ("Detailed Description of Unified Format") and git's diff-format::

    patch    = [BOM] text* (section text*)*
    section  = git-header ["--- " side LF "+++ " side LF] hunk*
             | "--- " side LF "+++ " side LF hunk+
    hunk     = "@@ -" range " +" range " @@" heading LF body
    range    = start ["," count]                        a count of 1 may be left out
    body     = (" " | "+" | "-") line | LF | "\ " text  an empty line is an empty context line

``text`` is anything, but a line of it that is a hunk header belongs to no file: the diff was torn
apart or a second copy of it stands in the preamble, and the patch is refused. So are the other diff
formats, stubs of binary files, and a body that the counts of its header do not describe: each has
been applied in part, or to the wrong place, without a word by one tool or another.

The reader works on offsets, not on a list of lines. The hunks of a file are taken all at once: one
regular expression finds the run of them, and the first bytes of its lines, put side by side, give
every hunk's counts and context by ``count`` and ``strip``. A hunk that this cannot account for
to the line is read again line by line, which is also where every complaint comes from.
"""

from __future__ import annotations

import io
import re
from functools import partial
from itertools import accumulate, compress, pairwise
from operator import itemgetter

from hq.patchwork.header import read_fields
from hq.patchwork.names import decode, read_git_names, read_side, unquote
from hq.patchwork.patch import GitHeader, Hunk, Patch, Refusal, RefusalCode, Section, Side

MAX_BYTES = 64 << 20

_CONTEXT, _ADDED, _REMOVED, _MARKER = 0x20, 0x2B, 0x2D, 0x5C
_RANGE = rb"(\d{1,15})(?:,(\d{1,15}))?"
_HUNK_HEADER = re.compile(rb"@@ -" + _RANGE + rb" \+" + _RANGE + rb" @@([^\n]*)(?:\n|\Z)")
_HUNK_HEADERS = re.compile(rb"^@@ -" + _RANGE + rb" \+" + _RANGE + rb" @@(.*)\n", re.MULTILINE)
# Patterns of the rare paths are compiled when first met (and then found in re's own cache).
_HUNK_BODY = rb"(?:[ +\-\\][^\n]*\n)*"
_HUGE = rb"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@"
_FIRST_BYTE = itemgetter(0)
_OLD_SIDE = bytes(byte in b" -" for byte in range(256))
_NEW_SIDE = bytes(byte in b" +" for byte in range(256))
_IS_HEAD = bytes(byte in b"@" for byte in range(256))
_MAKE_HUNK = partial(tuple.__new__, Hunk)
_MODE = rb"[0-7]{5,6}$"
_INDEX = rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{5,6}))?$"
_NORMAL = rb"\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n[<>] "
_ED = rb"\d+(?:,\d+)?[aci]\r?\n"
_ED_DELETE = rb"\d+(?:,\d+)?d\r?(?:\n|\Z)"
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)
# First bytes of the lines of free text that can mean something; every other line is skipped.
_TELLING = frozenset(b"-@*dGBC0123456789")
_GIT_NAMES = {
    b"rename from ": "rename_from",
    b"rename old ": "rename_from",
    b"rename to ": "rename_to",
    b"rename new ": "rename_to",
    b"copy from ": "copy_from",
    b"copy to ": "copy_to",
}
_GIT_MODES = {
    b"old mode ": "old_mode",
    b"new mode ": "new_mode",
    b"new file mode ": "new_file",
    b"deleted file mode ": "deleted_file",
}


def parse_patch(data: bytes, name: str = "") -> Patch:
    """The patch that ``data`` holds; ``name`` is only carried along.

    A patch that must not be tried has ``refusals``; ``sections`` is then what could be read.
    """
    unreadable = _unreadable(data)
    if unreadable is not None:
        return Patch(name, (), b"", (), (unreadable,))
    reader = _Reader(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    reader.read()
    preamble = data[reader.origin : reader.preamble_end]
    fields = read_fields(preamble)
    patch = Patch(name, fields, preamble, tuple(reader.sections), ())
    refusals = reader.refusals + _repeated(patch)
    if not patch.sections and not refusals:
        refusals.append(_nothing(data))
    return patch._replace(refusals=tuple(sorted(refusals, key=lambda refusal: refusal.line)))


def _unreadable(data: bytes) -> Refusal | None:
    if len(data) > MAX_BYTES:
        return Refusal(
            "too-large", 0, f"the patch has {len(data)} bytes; the limit is {MAX_BYTES}",
            "split the patch",
        )  # fmt: skip
    for magic, what in _MAGIC:
        if data.startswith(magic):
            return Refusal("compressed", 0, f"the patch is compressed ({what})", "decompress it")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Refusal(
            "encoding", 1, "the patch is UTF-16 text; a patch is bytes",
            "make it again without a shell that re-encodes output",
        )  # fmt: skip
    return None


def _nothing(data: bytes) -> Refusal:
    what = "the patch is empty" if not data.strip() else "no diff in it, only text"
    return Refusal(
        "no-change",
        0,
        f"the patch changes nothing: {what}",
        "drop it from the series or add its diff",
    )


def _repeated(patch: Patch) -> list[Refusal]:
    """A section that stands twice, as when a diff was pasted into the preamble as well."""
    if patch.allows_repeat or len(patch.sections) < 2:
        return []
    seen: dict[object, int] = {}
    found = []
    for section in patch.sections:
        if not section.hunks:
            continue
        first = section.hunks[0]
        names = (section.old and section.old.names, section.new and section.new.names)
        key = (names, len(section.hunks), first.old_start, tuple(first.old), tuple(first.new))
        line = seen.setdefault(key, section.line)
        if line != section.line and _same_hunks(patch, line, section):
            found.append(
                Refusal(
                    "stray-hunk", section.line,
                    f"the diff of this file stands in the patch twice, first at line {line}",
                    "delete one copy",
                )
            )  # fmt: skip
    return found


def _same_hunks(patch: Patch, line: int, section: Section) -> bool:
    other = next(s for s in patch.sections if s.line == line)
    return [(h.old_start, h.old, h.new) for h in other.hunks] == [
        (h.old_start, h.old, h.new) for h in section.hunks
    ]


class _Reader:
    """A cursor over the patch: ``at`` is an offset at the start of line number ``line``."""

    __slots__ = (
        "at", "data", "dot", "end", "line", "origin", "preamble_end", "refusals", "sections"
    )  # fmt: skip

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.at = self.origin = start
        self.end = len(data)
        self.line = 1
        self.preamble_end = -1
        self.dot: int | None = None
        self.sections: list[Section] = []
        self.refusals: list[Refusal] = []

    # -- moving -------------------------------------------------------------------------------

    def peek(self, at: int | None = None) -> bytes:
        """The line at an offset (the cursor's by default) without its end."""
        start = self.at if at is None else at
        stop = self.data.find(b"\n", start)
        text = self.data[start:] if stop < 0 else self.data[start:stop]
        return text[:-1] if text.endswith(b"\r") else text

    def after(self, at: int) -> int:
        """The offset of the line after the one at ``at``."""
        stop = self.data.find(b"\n", at)
        return self.end if stop < 0 else stop + 1

    def step(self) -> None:
        self.at = self.after(self.at)
        self.line += 1

    def refuse(self, code: RefusalCode, message: str, hint: str = "", line: int = 0) -> None:
        self.refusals.append(Refusal(code, line or self.line, message, hint))

    def refuse_once(self, code: RefusalCode, message: str, hint: str) -> None:
        if all(refusal.code != code for refusal in self.refusals):
            self.refuse(code, message, hint)

    # -- text and sections --------------------------------------------------------------------

    def read(self) -> None:
        while self.at < self.end:
            byte = self.data[self.at]
            if byte in _TELLING and self._telling(byte):
                continue
            self.step()
        if self.preamble_end < 0:
            self.preamble_end = self.end

    def _begin(self) -> None:
        if self.preamble_end < 0:
            self.preamble_end = self.at

    def _telling(self, byte: int) -> bool:
        """Handles a line of text that may mean something; whether the cursor was moved."""
        data, at = self.data, self.at
        if byte == _REMOVED:
            return data.startswith(b"--- ", at) and self._plain_section()
        if byte == 0x64:  # d
            return data.startswith(b"diff --", at) and self._diff_line()
        if byte == 0x40:  # @
            return self._stray()
        if byte == 0x2A:  # *
            self._context_diff()
        elif byte in b"GBC":
            self._binary()
        else:
            self._numbers()
        return False

    def _plain_section(self) -> bool:
        second = self.after(self.at)
        if not self.data.startswith(b"+++ ", second):
            return False
        line = self.line
        third = self.after(second)
        if not self.data.startswith(b"@@", third):
            if not self._only_properties(third):
                self._begin()
                self.refuse(
                    "truncated", "a file header without a hunk",
                    "add the hunks, or delete the '---' and '+++' lines",
                )  # fmt: skip
            return False
        self._begin()
        old, new = read_side(self.peek()[4:]), read_side(self.peek(second)[4:])
        self.at, self.line = third, line + 2
        self.sections.append(Section(line, old, new, None, self._hunks()))
        return True

    def _only_properties(self, at: int) -> bool:
        """Subversion writes a file header above a change of properties alone."""
        return self.peek(at) == b"" and self.peek(self.after(at)).startswith(b"Property changes on")

    def _stray(self) -> bool:
        if self.data.startswith(b"@@@ -", self.at):
            self._combined()
            return False
        match = _HUNK_HEADER.match(self.data, self.at)
        if not match:
            return False
        where = "above the first file header" if not self.sections else "that belongs to no file"
        self.refuse(
            "stray-hunk", f"a hunk {where}",
            "indent or quote a diff that is part of the text; give a real hunk its file header",
        )  # fmt: skip
        self._begin()
        self.at = match.end()
        body = re.compile(_HUNK_BODY).match(self.data, self.at)
        assert body is not None
        self.line += 1 + self.data.count(b"\n", self.at, body.end())
        self.at = body.end()
        return True

    def _combined(self) -> None:
        self._begin()
        self.refuse_once(
            "combined-diff", "a combined diff of a merge; it applies to no single file",
            "make the patch with 'git diff' between two commits",
        )  # fmt: skip

    def _context_diff(self) -> None:
        second = self.after(self.at)
        if self.data.startswith(b"*** ", self.at) and self.data.startswith(b"--- ", second):
            if not self.data.startswith(b"***************", self.after(second)):
                return
        elif not (
            self.data.startswith(b"***************", self.at)
            and self.data.startswith(b"*** ", second)
        ):
            return
        self._begin()
        self.refuse_once(
            "context-diff", "a context diff; only unified diffs are read", "make it with 'diff -u'"
        )

    def _binary(self) -> None:
        text = self.peek()
        stub = (
            (text.startswith(b"Binary files ") and text.endswith(b" differ"))
            or (text.startswith(b"Binary file ") and text.endswith(b" has changed"))
            or text in (b"Cannot display: file marked as a binary type.", b"GIT binary patch")
        )
        if stub:
            self._begin()
            self._refuse_binary()

    def _refuse_binary(self) -> None:
        self.refuse(
            "binary", "a change of a binary file, which a patch cannot carry",
            "ship the whole file instead (an overlay)",
        )  # fmt: skip

    def _numbers(self) -> None:
        if re.compile(_NORMAL).match(self.data, self.at):
            self._begin()
            self.refuse_once(
                "normal-diff", "a 'normal' diff, without context; only unified diffs are read",
                "make it with 'diff -u'",
            )  # fmt: skip
        elif (re.compile(_ED).match(self.data, self.at) and self.at < self._last_dot()) or (
            not self.sections and re.compile(_ED_DELETE).match(self.data, self.at)
        ):
            self._begin()
            self.refuse_once("ed-script", "an ed script; it is never run", "make it with 'diff -u'")

    def _last_dot(self) -> int:
        """Where the last lone ``.`` stands, which ends the text of an ed command; -1 if nowhere."""
        if self.dot is None:
            self.dot = max(self.data.rfind(b"\n.\n"), self.data.rfind(b"\n.\r\n"))
        return self.dot

    # -- git ----------------------------------------------------------------------------------

    def _diff_line(self) -> bool:
        if self.data.startswith((b"diff --cc ", b"diff --combined "), self.at):
            self._combined()
            return False
        if not self.data.startswith(b"diff --git ", self.at):
            return False
        start, line = self.at, self.line
        names = read_git_names(self.peek()[11:])
        self.step()
        found: dict[str, object] = {}
        extended = 0
        while self._extended(found):
            extended += 1
            self.step()
        if not extended and not self.data.startswith((b"--- ", b"GIT binary", b"Binary"), self.at):
            # A bare line, as in prose. A hunk after it belongs to no file (git says so too).
            self.at, self.line = start, line
            return False
        if self.preamble_end < 0:
            self.preamble_end = start
        header = GitHeader(line, *names)._replace(**found)  # type: ignore[arg-type]
        self._git_body(line, header)
        return True

    def _git_body(self, line: int, header: GitHeader) -> None:
        old = new = None
        if self.data.startswith(b"--- ", self.at):
            second = self.after(self.at)
            if not self.data.startswith(b"+++ ", second):
                self.refuse("truncated", "a '---' line without its '+++' line")
                self.step()
                return
            old, new = self._git_side(self.at), self._git_side(second)
            self.at, self.line = self.after(second), self.line + 2
        elif self.data.startswith((b"GIT binary patch", b"Binary files "), self.at):
            self._refuse_binary()
            self.step()
            return
        hunks = self._hunks()
        section = Section(line, old, new, header, hunks)
        if old is not None and not hunks:
            self.refuse("truncated", "a file header without a hunk", "add the hunks", line)
        elif not _says_something(section):
            self.refuse("no-change", "a section that changes nothing", "delete it", line)
        self.sections.append(section)

    def _git_side(self, at: int) -> Side:
        """A side under ``diff --git``: no date follows, so blanks belong to the name."""
        text = self.peek(at)[4:]
        if text.startswith(b'"'):
            return read_side(text)
        side = read_side(text)
        whole = text.partition(b"\t")[0]
        if side.names[:1] == (decode(whole),) or not side.names:
            return side._replace(names=side.names[:1])
        return side

    def _extended(self, found: dict[str, object]) -> bool:
        """Takes one extended header line into ``found``; ``False`` for any other line."""
        text = self.peek()
        if text.startswith((b"similarity index ", b"dissimilarity index ")):
            return True
        if text.startswith(b"index "):
            match = re.compile(_INDEX).match(text, 6)
            if match:
                found["old_blob"], found["new_blob"] = match[1].decode(), match[2].decode()
                if match[3]:
                    found["index_mode"] = self._mode(match[3])
            return match is not None
        for prefix, key in _GIT_MODES.items():
            if text.startswith(prefix):
                found[key] = self._mode(text[len(prefix) :])
                return True
        for prefix, key in _GIT_NAMES.items():
            if text.startswith(prefix):
                raw = text[len(prefix) :]
                quoted = unquote(raw)
                found[key] = decode(raw if quoted is None else quoted[0])
                return True
        return False

    def _mode(self, text: bytes) -> int:
        mode = int(text, 8) if re.compile(_MODE).match(text) else 0
        if mode & 0o170000 not in (0o100000, 0o120000):
            shown = text[:20].decode("ascii", "backslashreplace")
            self.refuse(
                "mode", f"file mode '{shown}': neither a regular file nor a symlink",
                "submodules and special files cannot be patched",
            )  # fmt: skip
        return mode

    # -- hunks --------------------------------------------------------------------------------

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while self.data.startswith(b"@@", self.at):
            if self._run(hunks):
                continue
            match = _HUNK_HEADER.match(self.data, self.at)
            if match is None:
                if hunks and not self.data.startswith(b"@@ -", self.at):
                    break
                self._bad_header()
                self._skip_hunk()
                continue
            hunk = self._hunk(match, len(hunks) + 1)
            if hunk is None:
                self._skip_hunk()
            else:
                hunks.append(hunk)
        self._leftovers()
        return tuple(hunks)

    def _bad_header(self) -> None:
        text = self.peek()
        if re.compile(_HUGE).match(text):
            self.refuse("hunk-header", "a hunk header with a number of more than 15 digits")
            return
        self.refuse(
            "hunk-header", f"not a hunk header: '{_excerpt(text)}'",
            "it reads '@@ -START,COUNT +START,COUNT @@'",
        )  # fmt: skip

    def _run(self, hunks: list[Hunk]) -> bool:
        """Takes as many well-formed hunks as stand here; ``False`` when the first is not one."""
        rows = io.BytesIO(self.data[self.at : self._bound()]).readlines()
        tags = bytes(map(_FIRST_BYTE, rows))
        length = len(tags) - len(tags.lstrip(b"@ +-"))
        marked = tags[length] == _MARKER if length < len(rows) else not rows[-1].endswith(b"\n")
        if length < len(rows):
            del rows[length:]
            tags = tags[:length]
        if rows and rows[-1] == b"-- \n":  # a mail's signature
            del rows[-1]
            tags = tags[:-1]
        bodies = tags.split(b"@")[1:]
        heads = _HUNK_HEADERS.findall(b"".join(compress(rows, tags.translate(_IS_HEAD))))
        if len(heads) != len(bodies):
            return False
        sizes = list(map(len, bodies))
        olds = [len(body) - body.count(b"+") for body in bodies]
        news = [len(body) - body.count(b"-") for body in bodies]
        good = len(heads)
        if olds != [int(head[1] or 1) for head in heads] or news != [
            int(head[3] or 1) for head in heads
        ]:
            good = _first_bad(heads, olds, news)
        if marked and good == len(heads):
            good -= 1  # something about the newline of its last line
        self._take(hunks, rows, tags, heads[:good], (sizes, olds, news, bodies))
        taken = good + sum(sizes[:good])
        self.at += sum(map(len, rows[:taken]))
        self.line += taken
        return good > 0

    def _take(
        self,
        hunks: list[Hunk],
        rows: list[bytes],
        tags: bytes,
        heads: list[tuple[bytes, ...]],
        shape: tuple[list[int], list[int], list[int], list[bytes]],
    ) -> None:
        """Appends the hunks of ``heads``, made column by column."""
        sizes, olds, news, bodies = shape
        bare = [row[1:] for row in rows]
        all_old = list(compress(bare, tags.translate(_OLD_SIDE)))
        all_new = list(compress(bare, tags.translate(_NEW_SIDE)))
        old_ends, new_ends = list(accumulate(olds, initial=0)), list(accumulate(news, initial=0))
        columns = zip(
            range(len(hunks) + 1, len(hunks) + 1 + len(heads)),
            accumulate([size + 1 for size in sizes], initial=self.line),
            [int(head[0]) for head in heads],
            [int(head[2]) for head in heads],
            [all_old[a:b] for a, b in pairwise(old_ends)],
            [all_new[a:b] for a, b in pairwise(new_ends)],
            [len(body) - len(body.lstrip(b" ")) for body in bodies],
            [len(body) - len(body.rstrip(b" ")) for body in bodies],
            [head[4].strip() for head in heads],
            strict=False,
        )
        for hunk in map(_MAKE_HUNK, columns):
            hunks.append(hunk)
            if hunk[4] == hunk[5]:
                self.refuse("no-change", f"hunk {hunk.n} changes nothing", "delete it", hunk.line)

    def _bound(self) -> int:
        """Where the hunks that begin here must have ended: the next file's header, or the end."""
        file = self.data.find(b"\n--- ", self.at) + 1 or self.end
        return self.data.find(b"\ndiff ", self.at, file) + 1 or file

    def _skip_hunk(self) -> None:
        """Goes on after a hunk that cannot be read, so that the next complaint is a new one."""
        self.step()
        while self.at < self.end and self.data[self.at] in b" +-\\\n":
            if self.data.startswith(b"--- ", self.at) and self.data.startswith(
                b"+++ ", self.after(self.at)
            ):
                break
            self.step()

    def _hunk(self, match: re.Match[bytes], number: int) -> Hunk | None:
        """One hunk, line by line; ``None`` when it is not what its header says."""
        first, old_count, second, new_count, heading = match.groups()
        olds = 1 if old_count is None else int(old_count)
        news = 1 if new_count is None else int(new_count)
        body = _Body(self, number, olds, news, match.end())
        if not body.read():
            return None
        line = self.line
        if body.old == body.new:
            self.refuse("no-change", f"hunk {number} changes nothing", "delete it")
        self.line += 1 + self.data.count(b"\n", match.end(), body.at)
        self.at = body.at
        leading, trailing = _context(body.rows)
        return Hunk(
            number, line, int(first), int(second), body.old, body.new, leading, trailing,
            heading.strip(),
        )  # fmt: skip

    def _leftovers(self) -> None:
        """Lines behind a hunk's last one that look like more of it: its counts are too small."""
        at, line, blank = self.at, self.line, False
        while at < self.end:
            text = self.peek(at)
            if text:
                break
            at, line, blank = self.after(at), line + 1, True
        if at >= self.end or self.data[at] not in b" +-\\":
            return
        if text.rstrip() == b"--" or (
            text.startswith(b"--- ") and self.data.startswith(b"+++ ", self.after(at))
        ):
            return
        if blank and (text[:1] in b" \\" or text[:2] in (b"- ", b"--", b"-", b"++")):
            return  # prose after an empty line: indented, a list, a rule
        if not self.refusals or self.refusals[-1].code not in ("counts", "hunk-header"):
            self.refuse(
                "leftover-lines", "a hunk line after the hunk's end: its header counts too few",
                "mend the counts of the '@@' line above, or make the patch again", line,
            )  # fmt: skip


class _Body:
    """A hunk's body line by line, against the counts of its header."""

    __slots__ = ("at", "closed", "line", "new", "news", "number", "old", "olds", "reader", "rows")

    def __init__(self, reader: _Reader, number: int, olds: int, news: int, at: int) -> None:
        self.reader = reader
        self.number = number
        self.olds, self.news = olds, news
        self.at = at
        self.line = reader.line + 1
        self.rows: list[bytes] = []
        self.old: list[bytes] = []
        self.new: list[bytes] = []
        # Sides whose last line was said to have no newline: nothing may follow there.
        self.closed = [False, False]

    def read(self) -> bool:
        """Whether the body is what the header says; else a refusal was noted."""
        data, end = self.reader.data, self.reader.end
        while len(self.old) < self.olds or len(self.new) < self.news:
            if self.at >= end:
                return self._fail("truncated", "the patch ends after")
            stop = data.find(b"\n", self.at)
            if stop < 0 and data[self.at] != _MARKER:
                return self._fail("truncated", "the patch ends in the middle of the line after")
            stop = end if stop < 0 else stop + 1
            if not self._take(data[self.at : stop]):
                return False
            self.at = stop
            self.line += 1
        if data.startswith(b"\\ ", self.at):
            self.at = self.reader.after(self.at)
            return self._marker()
        return True

    def _take(self, row: bytes) -> bool:
        tag = row[0]
        if tag == _MARKER:
            return self._marker() if row[:2] == b"\\ " else self._stop()
        if row in (b"\n", b"\r\n"):  # the blank was stripped from an empty context line
            row = b" " + row
            tag = _CONTEXT
        if tag not in b" +-":
            return self._stop()
        sides = {_CONTEXT: (0, 1), _REMOVED: (0,), _ADDED: (1,)}[tag]
        for side in sides:
            lines, count = ((self.old, self.olds), (self.new, self.news))[side]
            if len(lines) >= count:
                return self._stop()
            if self.closed[side]:
                return self._fail_marker("more lines follow")
            lines.append(row[1:])
        self.rows.append(row)
        return True

    def _marker(self) -> bool:
        r"""``\ No newline at end of file``, in any language: about the line above it."""
        if not self.rows:
            return self._fail_marker("no line stands above it")
        row = self.rows[-1]
        if len(row) < 3 or not row.endswith(b"\n"):
            return self._fail_marker("the line above it is empty or already marked")
        self.rows[-1] = row[:-1]
        for side, lines, tag in ((0, self.old, _ADDED), (1, self.new, _REMOVED)):
            if row[0] != tag:
                lines[-1] = row[1:-1]
                self.closed[side] = True
        return True

    def _fail_marker(self, why: str) -> bool:
        self.reader.refuse(
            "newline-marker", f"a 'no newline at end of file' line where {why}", "", self.line
        )
        return False

    def _stop(self) -> bool:
        return self._fail("counts", f"line {self.line} does not fit after")

    def _fail(self, code: RefusalCode, why: str) -> bool:
        wanted = f"{self.olds} old and {self.news} new lines"
        found = f"{len(self.old)} and {len(self.new)}"
        self.reader.refuse(
            code, f"hunk {self.number} announces {wanted}, but {why} {found}",
            "make the patch again, or mend the counts of its '@@' line",
        )  # fmt: skip
        return False


def _context(body: list[bytes]) -> tuple[int, int]:
    leading = 0
    for row in body:
        if row[0] != _CONTEXT:
            break
        leading += 1
    if leading == len(body):
        return leading, leading
    trailing = 0
    while body[-1 - trailing][0] == _CONTEXT:
        trailing += 1
    return leading, trailing


def _first_bad(heads: list[tuple[bytes, ...]], olds: list[int], news: list[int]) -> int:
    """The index of the first hunk whose body is not what its header counts."""
    for index, head in enumerate(heads):
        if (int(head[1] or 1), int(head[3] or 1)) != (olds[index], news[index]):
            return index
    return len(heads)


def _says_something(section: Section) -> bool:
    header = section.git
    if header is None or section.hunks:
        return True
    return bool(
        header.rename_to
        or header.copy_to
        or header.new_file is not None
        or header.deleted_file is not None
        or (header.new_mode is not None and header.new_mode != header.old_mode)
    )


def _excerpt(text: bytes) -> str:
    return text[:60].decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
