"""The fields of a package (deb-control(5)) and of the database (deb822(5)).

A stanza is kept as text and as fields: the text goes into the database as it was, without being
made anew from the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from hq.debian.refuse import refuse

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+\Z")
_VERSION: Final = re.compile(r"(\d+:)?[0-9A-Za-z.+~:-]+\Z")
_ARCHITECTURE: Final = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_RELATION: Final = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+)(:[a-z0-9-]+)?\s*"
    r"(\(\s*(?P<operator><<|<=|=|>=|>>|<|>)\s*(?P<version>[^\s)]+)\s*\))?\s*(\[[^]]*\])?\Z"
)


class Relation(NamedTuple):
    """One alternative of a relationship field: ``name``, and a version condition or none."""

    name: str
    operator: str
    version: str


def parse_stanza(text: str) -> dict[str, str]:
    """The fields of one stanza; continuation lines keep their line feeds.

    Raises ``ValueError`` with the number of the line that is none.
    """
    fields: dict[str, str] = {}
    last = ""
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        if line[:1] in (" ", "\t") and last:
            fields[last] += "\n" + line
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name in fields or any(char <= " " for char in name):
            raise ValueError(f"line {number}")
        fields[name] = value.strip()
        last = name
    return fields


def check_fields(fields: Mapping[str, str], package: str) -> None:
    """Refuses a package whose name, version or architecture is not what it may be."""
    for name, shape in (("Package", _NAME), ("Version", _VERSION), ("Architecture", _ARCHITECTURE)):
        value = fields.get(name)
        if value is None:
            refuse(package, f"the control file has no field {name}")
        if not shape.match(value):
            refuse(package, f"the control file's {name} is {value!r}")


def relations(text: str) -> Iterator[list[Relation]]:
    """A relationship field (``Depends``, ``Replaces``): alternatives, group by group.

    What cannot be read is left out.
    """
    for group in text.split(","):
        found = [match for part in group.split("|") if (match := _RELATION.match(part.strip()))]
        if found:
            yield [Relation(m["name"], m["operator"] or "", m["version"] or "") for m in found]
