"""Where a wheel's files go when it is installed, and the scripts that installing makes.

Files at the top go to purelib or platlib; ``NAME-VERSION.data/SCHEME/…`` goes to the scheme's
place (binary distribution format, "Installing a wheel 'distribution-1.0…'", and "The .data
directory"). Entry points of ``console_scripts`` and ``gui_scripts`` become scripts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hq.model.errors import BuildError, Location
from hq.wheels.index import Meta


class Schemes(NamedTuple):
    """Directories of an installation, relative to the image's root, without a final ``/``."""

    purelib: str
    platlib: str
    scripts: str
    data: str
    headers: str


class EntryPoint(NamedTuple):
    """A script to be made: ``from module import attribute; attribute()``."""

    name: str
    module: str
    attribute: str


def scheme_path(path: str, meta: Meta) -> tuple[str, str]:
    """The scheme of a wheel's member and its path in there. Raises ``BuildError``."""
    top, _, rest = path.partition("/")
    if top != meta.data_dir:
        return ("purelib" if meta.purelib else "platlib"), path
    scheme, _, below = rest.partition("/")
    if scheme not in Schemes._fields or not below:
        raise BuildError(
            f"member {path!r} is in no known installation scheme",
            where=Location(f"{meta.project} {meta.version}"),
            details=[f"expected one of {', '.join(sorted(Schemes._fields))}"],
        )
    return scheme, below


def install_path(path: str, meta: Meta, schemes: Schemes) -> str:
    """Where a member goes, relative to the image's root. Raises ``BuildError``."""
    scheme, below = scheme_path(path, meta)
    directory: str = getattr(schemes, scheme)
    if scheme == "headers":
        directory = f"{directory}/{meta.project}"
    return f"{directory}/{below}" if directory else below


_SECTION = re.compile(r"\[\s*([^\]]*?)\s*\]")
_OBJECT = re.compile(r"([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?")
_SCRIPT = re.compile(r"[\w.-]+", re.ASCII)


def entry_points(data: bytes, *, file: str = "entry_points.txt") -> list[EntryPoint]:
    """The scripts that ``entry_points.txt`` asks for, sorted. Raises ``BuildError``."""
    found: dict[str, EntryPoint] = {}
    section = ""
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        header = _SECTION.fullmatch(text)
        if header:
            section = header[1]
        elif section in ("console_scripts", "gui_scripts"):
            name, _, value = (part.strip() for part in text.partition("="))
            parts = _OBJECT.fullmatch(value)
            if parts is None or not _SCRIPT.fullmatch(name) or name.strip(".") == "":
                raise BuildError(
                    f"an entry point is malformed: {text!r}",
                    where=Location(file, number),
                    hint="expected NAME = MODULE:ATTRIBUTE",
                )
            found[name] = EntryPoint(name, parts[1], parts[2])
    return sorted(found.values())


def script(entry: EntryPoint, interpreter: str) -> bytes:
    """The script of an entry point; ``interpreter`` is an absolute path in the image."""
    first = entry.attribute.partition(".")[0]
    return (
        f"#!{interpreter}\n"
        "import sys\n"
        f"from {entry.module} import {first}\n"
        'if __name__ == "__main__":\n'
        f"    sys.exit({entry.attribute}())\n"
    ).encode()


def fix_shebang(content: bytes, interpreter: str) -> bytes:
    """A script of the wheel with its placeholder ``#!python`` or ``#!pythonw`` filled in."""
    line, newline, rest = content.partition(b"\n")
    if re.match(rb"#!pythonw?(\s|$)", line):
        return b"#!" + interpreter.encode() + newline + rest
    return content
