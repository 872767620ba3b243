"""The text behind a hunk's second ``@@``: which definition the hunk is said to be in.

``diff -p`` and git put there the last line above the hunk's first line that looks like the head of
a definition, cut to 40 or 80 bytes. What looks like one depends on the writer's settings: any line
that begins with a letter, or ``def`` and ``class`` at any depth for Python. So the question asked
here is not "would git have written this heading?" but "does the place lie in the definition of
this name?": its line stands above the place, and no line in between begins another one at the same
depth or less.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hq.patchwork.patch import Hunk

_PYTHON = re.compile(rb"\s*(?:async +def|def|class) +\w")
_KEYWORD = (
    rb"\s*(?:[\w:<>,*&\[\]()]+\s+)*"
    rb"(?:function|func|fn|fun|sub|proc|struct|enum|union|interface|namespace|module|impl|trait|type)"
    rb"\s+[\w$]"
)
_CALL = rb"\s*[A-Za-z_$~][\w\s:<>,*&\[\]$~.-]*\("
_STATEMENT = rb"\s*(?:if|for|while|switch|return|else|elif|with|print|assert|raise)\b"
_MAX_HEADING = 400
_SHORTEST_CUT = 39
_FARTHEST = 20_000  # lines; no definition is longer (a bound on what a hostile patch can cost)
_LABEL = rb"\w+:\s*(?:$|//|/\*)"  # of a goto, or "public:": git's C driver skips it too


def names_definition(heading: bytes) -> bool:
    """Whether a section heading is the head of a function, class or the like."""
    if not heading or len(heading) > _MAX_HEADING:
        return False
    if _PYTHON.match(heading):
        return True
    if re.match(_STATEMENT, heading):
        return False
    return bool(re.match(_CALL, heading) or re.match(_KEYWORD, heading))


def lies_in(lines: Sequence[bytes], at: int, hunk: Hunk) -> bool:
    """Whether a hunk placed with its first line at index ``at`` lies in what its heading names.

    The head may also stand in the hunk's own leading context, where a person would see it.
    """
    heading = hunk.heading
    return _encloses(lines, at, heading) or (
        hunk.leading > 0 and _encloses(lines, at + hunk.leading, heading)
    )


def _encloses(lines: Sequence[bytes], at: int, heading: bytes) -> bool:
    python = bool(_PYTHON.match(heading))
    top = max(0, at - _FARTHEST)
    closed = None  # the least depth at which another definition began on the way up
    for index in range(min(at, len(lines)) - 1, top - 1, -1):
        line = lines[index]
        if python and b"def " not in line and b"class " not in line:
            continue  # cheap, and true of nearly every line
        bare = line.lstrip(b" \t")
        depth = len(line) - len(bare)
        if _is_heading(bare.rstrip(), heading):
            return closed is None or closed > depth
        begins = _PYTHON.match(line) if python else depth == 0 and _begins_like(bare)
        if begins and (closed is None or depth < closed):
            closed = depth
            if depth == 0:
                return False
    return False


def _is_heading(line: bytes, heading: bytes) -> bool:
    if line == heading:
        return True
    # Only a heading that some writer may have cut is compared as a prefix.
    return len(heading) >= _SHORTEST_CUT and line.startswith(heading)


def _begins_like(bare: bytes) -> bool:
    """The default of git and GNU diff: a line that begins with a letter, ``_`` or ``$``."""
    first = bare[:1]
    return (first.isalpha() or first in (b"_", b"$")) and not re.match(_LABEL, bare)
