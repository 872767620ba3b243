"""The header fields of a patch: DEP-3 and RFC 822, and hq's own.

A field is ``Name: value`` at the start of a line; lines that begin with a blank continue it (a
lone ``.`` stands for an empty line, DEP-3 "Structure"). The first paragraph is a header when its
first line is a field or mbox's ``From`` line; in later paragraphs only the names below count, so
that prose with a colon is no field. A line ``---`` ends the header: what follows is a diffstat or
notes.
"""

from __future__ import annotations

import re

KNOWN = (
    "Subject",
    "Description",
    "From",
    "Author",
    "Date",
    "Origin",
    "Forwarded",
    "Bug",
    "Applied-Upstream",
    "Reviewed-By",
    "Acked-By",
    "Last-Update",
    "Kind",
    "Cut-Against",
    "Retires-When",
    "Allow-Repeat",
)
_KNOWN = frozenset(name.lower() for name in KNOWN)
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*)|)$")
_MAX_LINES = 10_000


def is_known(name: str) -> bool:
    """Whether ``name`` is a field with a meaning here (``Bug-Vendor`` counts as ``Bug``)."""
    lower = name.lower()
    return lower in _KNOWN or lower.startswith("bug-")


def read_fields(preamble: bytes) -> tuple[tuple[str, str], ...]:
    """The fields of the text above a patch's diff, in order, names as written."""
    text = preamble.decode("utf-8", "replace").replace("\r\n", "\n")
    fields: list[tuple[str, str]] = []
    first, start, current = True, True, -1
    for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]:
        if line.rstrip() == "---":
            break
        if not line.strip():
            first, start, current = (first and start), True, -1
            continue
        if line[0] in " \t":
            if current >= 0:
                name, value = fields[current]
                more = line.strip()
                fields[current] = (name, f"{value}\n{'' if more == '.' else more}")
            start = False
            continue
        match = _FIELD.match(line)
        if match and (first or is_known(match[1])):
            fields.append((match[1], (match[2] or "").strip()))
            current = len(fields) - 1
        else:
            current = -1
            first = first and start and line.startswith("From ")
        start = False
    return tuple(fields)
