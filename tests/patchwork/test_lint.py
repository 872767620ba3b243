"""Header fields: how they are read, what they must say, the ledger."""

from __future__ import annotations

from hq.patchwork.lint import Row, lint, row
from hq.patchwork.parse import parse_patch
from patchwork.odd_cases import STANDARD

HEADER = """Subject: [PATCH v2 1/3] Count lines
 from one
Origin: upstream, https://example.org/commit/1
Forwarded: not-needed
Last-Update: 2026-09-18
Kind: backport
Cut-Against: vllm 0.29.0
Retires-When: the pin carries #1

Prose: not a field, only a colon.
Bug: https://example.org/2

"""


def problems(header: str) -> list[str]:
    return [str(found) for found in lint(parse_patch((header + STANDARD).encode()), "p/x.patch")]


def test_fields() -> None:
    patch = parse_patch((HEADER + STANDARD).encode())
    assert patch.field("subject") == "[PATCH v2 1/3] Count lines\nfrom one"
    assert patch.field("Bug") == "https://example.org/2"
    assert patch.field("Prose") is None
    assert not patch.allows_repeat


def test_a_mail_header() -> None:
    text = "From 12 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nSubject: x\n---\nKind: y\n"
    patch = parse_patch((text + STANDARD).encode())
    assert patch.field("From") == "A <a@example.org>"
    assert patch.field("Kind") is None


def test_description_paragraphs() -> None:
    text = "Description: short\n first\n .\n second\nKind: own\n\n"
    patch = parse_patch((text + STANDARD).encode())
    assert patch.fields == (("Description", "short\nfirst\n\nsecond"), ("Kind", "own"))


def test_a_complete_header() -> None:
    assert problems(HEADER) == []


def test_an_empty_header() -> None:
    assert problems("") == [
        "p/x.patch: no Cut-Against (name the tree it was made from, as 0.29.0)",
        "p/x.patch: no Kind (one of backport, fix, feature, local, own)",
        "p/x.patch: no Retires-When (say what makes it unnecessary, or 'never')",
        "p/x.patch: no Subject (say in one line what the patch changes)",
    ]


def test_each_mistake_has_its_line() -> None:
    header = HEADER.replace("Kind: backport", "Kind: bckport").replace("2026-09-18", "18.9.2026")
    header = header.replace("Forwarded: not-needed", "Forwarded: maybe\nCut-Agianst: 1\nKind: own")
    assert problems(header) == [
        "p/x.patch:4: Forwarded is 'maybe' (an address, 'no' or 'not-needed')",
        "p/x.patch:5: unknown field Cut-Agianst (did you mean Cut-Against?)",
        "p/x.patch:6: Kind stands twice",
        "p/x.patch:7: Last-Update is '18.9.2026' (a date as 2026-09-18)",
    ]


def test_a_fix_says_where_it_was_sent() -> None:
    header = HEADER.replace("backport", "fix").replace("Forwarded: not-needed\n", "")
    assert problems(header) == ["p/x.patch: no Forwarded (an address, 'no' or 'not-needed')"]


def test_a_backport_says_where_it_is_from() -> None:
    header = HEADER.replace("Origin: upstream, https://example.org/commit/1\n", "")
    assert problems(header) == [
        "p/x.patch:5: a backport without Origin (name the commit or pull request)"
    ]


def test_what_would_be_refused_is_told_as_well() -> None:
    patch = parse_patch((HEADER + STANDARD.replace("a/f", "a/../f")).encode())
    assert [str(found) for found in lint(patch, "x")] == [
        "x:13: a '..' in the path: 'a/../f' (a patch may only name files in its tree)"
    ]


def test_the_ledger() -> None:
    assert row(parse_patch((HEADER + STANDARD).encode(), "x.patch")) == Row(
        name="x.patch",
        kind="backport",
        subject="Count lines from one",
        origin="upstream, https://example.org/commit/1",
        forwarded="not-needed",
        cut_against="vllm 0.29.0",
        retires_when="the pin carries #1",
        files=1,
        hunks=1,
        added=1,
        removed=1,
    )
