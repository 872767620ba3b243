"""RECORD: reading, writing, and rewriting after a change."""

from __future__ import annotations

import csv
import hashlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.wheelmaker import record_hash
from hq.model.digest import Digest
from hq.model.errors import BuildError
from hq.model.tree import Entry
from hq.wheels.record import Row, layer_record, parse, rewrite, sha256_of, write

paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
rows = st.lists(
    st.builds(
        Row,
        paths,
        st.sampled_from(["", record_hash(b"x")]),
        st.sampled_from(["", "0", "12"]),
        st.just(0),
    ),
    unique_by=lambda row: row.path,
)


def message(data: bytes) -> str:
    with pytest.raises(BuildError) as caught:
        parse(data)
    return caught.value.render()


@settings(deadline=None)
@given(rows)
def test_written_rows_are_read_back_sorted(given_rows: list[Row]) -> None:
    data = write(given_rows)
    assert [row._replace(line=0) for row in parse(data)] == sorted(given_rows)


@settings(deadline=None)
@given(rows)
def test_the_csv_module_reads_the_same(given_rows: list[Row]) -> None:
    found = list(csv.reader(io.StringIO(write(given_rows).decode(), newline="")))
    assert found == [[row.path, row.hash, row.size] for row in sorted(given_rows)]


@settings(deadline=None)
@given(rows)
def test_what_the_csv_module_writes_is_read(given_rows: list[Row]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows((row.path, row.hash, row.size) for row in given_rows)
    assert [row._replace(line=0) for row in parse(out.getvalue().encode())] == given_rows


def test_lines_are_counted_with_and_without_quotes() -> None:
    assert [row.line for row in parse(b"a,,\n\nb,,\r\n")] == [1, 3]
    assert [row.line for row in parse(b'"a,b",,\n\n"c",,\n')] == [1, 3]


def test_malformed_records_are_refused() -> None:
    assert message(b"a,,\n\xff,,\n") == "error: RECORD is not UTF-8\n  at: RECORD:2"
    assert message(b"a,,\nb\0,,\n") == "error: RECORD has a NUL byte\n  at: RECORD:2"
    assert message(b"a,,\nb,\n") == (
        "error: a row of RECORD has 2 columns; expected path, hash and size\n  at: RECORD:2"
    )
    assert message(b",,\n") == "error: a row of RECORD has no path\n  at: RECORD:1"
    assert message(b"a,,\nb,,\na,x,\n") == (
        "error: RECORD lists 'a' twice, first in line 1\n  at: RECORD:3"
    )
    assert message(b'a,,\n"b,,\n') == (
        "error: RECORD is not CSV: unexpected end of data\n  at: RECORD:2"
    )


def test_a_sha256_becomes_a_digest() -> None:
    assert sha256_of(Row("a", record_hash(b"hello"))) == Digest.of(b"hello")


@pytest.mark.parametrize("text", ["", "md5=abc", "sha256", "SHA256=x", "=x"])
def test_unusable_hashes_are_refused(text: str) -> None:
    with pytest.raises(BuildError) as caught:
        sha256_of(Row("pkg/a.py", text, "1", 7))
    assert caught.value.render() == (
        "error: RECORD has no usable hash for 'pkg/a.py': expected 'sha256=…', "
        f"found {text!r}\n  at: RECORD:7"
    )


@pytest.mark.parametrize("algorithm", ["sha384", "sha512"])
def test_other_hashes_of_the_specification_are_refused_with_a_reason(algorithm: str) -> None:
    with pytest.raises(BuildError) as caught:
        sha256_of(Row("a", record_hash(b"x", algorithm), "1", 3))
    assert caught.value.render() == (
        f"error: RECORD has a {algorithm} hash for 'a'; hq names content by SHA-256 only\n"
        "  at: RECORD:3\n"
        "  help: use a wheel whose RECORD has sha256, which all current tools write"
    )


good = record_hash(hashlib.sha256(b"y").digest()).partition("=")[2]


@pytest.mark.parametrize(
    "text",
    ["", good[:-1], good + "=", good + "A", good[:5] + "+" + good[6:], "é" * 43, good[:-1] + "B"],
)
def test_malformed_sha256_is_refused(text: str) -> None:
    with pytest.raises(BuildError) as caught:
        sha256_of(Row("a", "sha256=" + text, "1", 3))
    assert caught.value.render() == (
        f"error: RECORD has a malformed sha256 for 'a': {text!r}\n"
        "  at: RECORD:3\n"
        "  help: expected 43 characters of URL-safe base64 without padding"
    )


BASE = b"b.py,sha256=x,1\na.py,sha256=y,2\nd/RECORD,,\n"


def test_rewriting_empties_changed_rows_and_adds_and_removes() -> None:
    assert rewrite(BASE, ["a.py", "c.py"], ["b.py", "never.py"], [Row("z", "h", "1")]) == (
        b"a.py,,\nc.py,,\nd/RECORD,,\nz,h,1\n"
    )


def test_rewriting_nothing_only_sorts() -> None:
    assert rewrite(BASE, []) == b"a.py,sha256=y,2\nb.py,sha256=x,1\nd/RECORD,,\n"


@settings(deadline=None)
@given(st.permutations(["a.py", "n.py", "o.py"]))
def test_rewriting_depends_on_the_set_of_paths_only(order: list[str]) -> None:
    assert rewrite(BASE, order) == rewrite(BASE, ["a.py", "n.py", "o.py"])
    assert rewrite(rewrite(BASE, order), order) == rewrite(BASE, order)


def test_rewriting_refuses_contradictions_and_bad_paths() -> None:
    with pytest.raises(BuildError, match=r"'a\.py' is both changed and removed"):
        rewrite(BASE, ["a.py"], ["a.py"])
    with pytest.raises(BuildError) as caught:
        rewrite(BASE, ["../x"])
    assert caught.value.render() == (
        "error: RECORD cannot list '../x': a '..' in the path\n  at: RECORD"
    )


def test_a_layer_record_has_hashes_of_what_is_there() -> None:
    entry = Entry("f", Digest.of(b"new"), 3)
    assert layer_record({"b": entry, "a": None}) == f"b,{record_hash(b'new')},3\n".encode()


def test_writing_a_path_twice_is_a_bug() -> None:
    with pytest.raises(ValueError, match="RECORD would list 'a' twice"):
        write([Row("a"), Row("a", "x")])
