"""RECORD: the list of a distribution's files, with hashes and sizes.

One CSV row ``path,algorithm=digest,size`` for each file; the digest is URL-safe base64 without
padding (recording installed projects, "The RECORD file"). Inside a wheel every row but those of
RECORD itself and its signatures has a hash. In an installed tree hash and size may be left empty,
which hq uses: rows of files that hq changed or added are empty, so that RECORD depends on the set
of paths only, and changing one line of a patch rewrites no other layer. What such files hold is
said by a small record for each of hq's layers (``layer_record``).

Written rows are sorted by path, end in LF and quote only what must be quoted.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hq.model.digest import Digest
from hq.model.errors import BuildError, Location
from hq.model.tree import Entry, path_problem

ALGORITHMS = {"sha256": 32, "sha384": 48, "sha512": 64}
"""Hash names that the specification lets a wheel use, with the length of the digest in bytes."""


class Row(NamedTuple):
    """One row as text. ``hash`` and ``size`` may be empty; ``line`` counts from 1."""

    path: str
    hash: str = ""
    size: str = ""
    line: int = 0


def parse(data: bytes, *, file: str = "RECORD") -> list[Row]:
    """The rows in their order, empty lines left out.

    Raises ``BuildError`` for anything but UTF-8 CSV of three columns with each path once. What a
    hash says is judged by ``sha256_of``. A path is text as written: an installed RECORD may have
    ``../../../bin/tool``.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BuildError("RECORD is not UTF-8", where=Location(file, line)) from None
    rows: list[Row] = []
    lines: dict[str, int] = {}
    for line, cells in _csv_rows(text, file):
        if len(cells) != 3:
            raise BuildError(
                f"a row of RECORD has {len(cells)} columns; expected path, hash and size",
                where=Location(file, line),
            )
        path, digest, size = cells
        if not path:
            raise BuildError("a row of RECORD has no path", where=Location(file, line))
        if path in lines:
            raise BuildError(
                f"RECORD lists {path!r} twice, first in line {lines[path]}",
                where=Location(file, line),
            )
        lines[path] = line
        rows.append(Row(path, digest, size, line))
    return rows


def _csv_rows(text: str, file: str) -> Iterable[tuple[int, list[str]]]:
    if "\0" in text:
        raise BuildError(
            "RECORD has a NUL byte", where=Location(file, text.count("\n", 0, text.index("\0")) + 1)
        )
    if '"' not in text:
        # Nearly every RECORD: no quoting, so no parser (and no import) is needed.
        for line, row in enumerate(text.split("\n"), 1):
            if row and row != "\r":
                yield line, row.removesuffix("\r").split(",")
        return
    import csv
    from io import StringIO

    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise BuildError(
            f"RECORD is not CSV: {error}", where=Location(file, reader.line_num)
        ) from None


def sha256_of(row: Row, *, file: str = "RECORD") -> Digest:
    """The row's hash as a digest. Raises ``BuildError`` for any other algorithm or shape."""
    algorithm, equals, text = row.hash.partition("=")
    where = Location(file, row.line)
    if not equals or algorithm not in ALGORITHMS:
        raise BuildError(
            f"RECORD has no usable hash for {row.path!r}: expected 'sha256=…', found {row.hash!r}",
            where=where,
        )
    if algorithm != "sha256":
        raise BuildError(
            f"RECORD has a {algorithm} hash for {row.path!r}; hq names content by SHA-256 only",
            where=where,
            hint="use a wheel whose RECORD has sha256, which all current tools write",
        )
    try:
        raw = a2b_base64(text.translate(_FROM_URLSAFE) + "=", strict_mode=True)
    except (Base64Error, ValueError):
        raw = b""
    if len(raw) != 32 or encode_sha256(raw) != row.hash:
        raise BuildError(
            f"RECORD has a malformed sha256 for {row.path!r}: {text!r}",
            where=where,
            hint="expected 43 characters of URL-safe base64 without padding",
        )
    return Digest("sha256:" + raw.hex())


_FROM_URLSAFE = {ord("-"): "+", ord("_"): "/", ord("+"): "-", ord("/"): "-"}


def encode_sha256(raw: bytes) -> str:
    """``sha256=<URL-safe base64 without padding>`` of a 32-byte digest."""
    text = b2a_base64(raw, newline=False).decode("ascii").rstrip("=")
    return "sha256=" + text.replace("+", "-").replace("/", "_")


def write(rows: Iterable[Row]) -> bytes:
    """RECORD's bytes: sorted by path. Raises ``ValueError`` when a path comes twice."""
    ordered = sorted(rows)
    lines: list[str] = []
    for number, row in enumerate(ordered):
        if number and ordered[number - 1].path == row.path:
            raise ValueError(f"RECORD would list {row.path!r} twice")
        lines.append(f"{_cell(row.path)},{_cell(row.hash)},{_cell(row.size)}\n")
    return "".join(lines).encode("utf-8")


def _cell(text: str) -> str:
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def rewrite(
    record: bytes,
    changed_or_added: Iterable[str],
    removed: Iterable[str] = (),
    extra: Iterable[Row] = (),
    *,
    file: str = "RECORD",
) -> bytes:
    """RECORD after a change of the tree.

    ``changed_or_added`` get rows without hash and size, rows of ``removed`` go, ``extra`` rows are
    put in as they are and win over any other. The result depends on the set of paths and on the
    rows that stay, not on the order given. Raises ``BuildError`` when ``record`` is malformed, or
    when one path is both changed and removed.
    """
    rows = {row.path: row._replace(line=0) for row in parse(record, file=file)}
    gone = frozenset(removed)
    for path in gone:
        rows.pop(path, None)
    for path in changed_or_added:
        if path in gone:
            raise BuildError(f"{path!r} is both changed and removed", where=Location(file))
        _check_path(path, file)
        rows[path] = Row(path)
    for row in extra:
        rows[row.path] = row._replace(line=0)
    return write(rows.values())


def _check_path(path: str, file: str) -> None:
    problem = path_problem(path)
    if problem:
        raise BuildError(f"RECORD cannot list {path!r}: {problem}", where=Location(file))


def row_of(path: str, entry: Entry) -> Row:
    """The row of a file with its hash and size."""
    return Row(path, encode_sha256(bytes.fromhex(entry.digest.hex)), str(entry.size))


def layer_record(entries: Mapping[str, Entry | None]) -> bytes:
    """The record of one layer's own files: a row with hash and size for each that is there.

    ``None`` stands for a removed file and gives no row.
    """
    return write(row_of(path, entry) for path, entry in entries.items() if entry is not None)
