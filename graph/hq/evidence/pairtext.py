"""The answer of ``hq pair`` as text, as a statement and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hq.evidence.pair import Other, Pair, PairSide
from hq.evidence.text import shown
from hq.model.action import Json
from hq.provenance.slsa import STATEMENT_TYPE

PREDICATE_TYPE: Final = "urn:hq:pair:1"
_LONG: Final = 100


def sentence(found: Pair) -> str:
    """The answer in a sentence without a full stop."""
    a, b = found.a, found.b
    names = f"{_named(b)} and {_named(a)}"
    match found.verdict:
        case "same":
            return f"{names} are the same"
        case "pin":
            return f"{names} differ by the pin alone"
        case "port":
            return f"{names} have the same pin and differ by its port alone"
        case _:
            nodes = list(dict.fromkeys(other.node for other in found.other))
            count = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes"
            return f"{names} differ in more than the pin and its port: {count}"


def _named(side: PairSide) -> str:
    return side.label if side.label == side.pin else f"{side.label} ({side.pin})"


def text(found: Pair) -> Iterator[str]:
    """The answer for a terminal, as lines."""
    yield sentence(found)
    for word, nodes in (("pin", found.pin), ("port", found.port), ("follows", found.follows)):
        if nodes:
            yield f"  {word:<8} {', '.join(nodes)}"
    for other in found.other:
        at = f"  {other.where}" if other.where else ""
        yield f"  other    {other.node}: {other.what}{at}"
        yield f"             - {_short(other.a)}"
        yield f"             + {_short(other.b)}"
    yield f"  same     {found.same} nodes"
    yield f"  shared   {_shared(found)}"


def _shared(found: Pair) -> str:
    totals = " and ".join(str(sum(side.layers.values())) for side in (found.a, found.b))
    return f"{found.shared} bytes of layers, of {totals}"


def _short(value: str) -> str:
    value = shown(value)
    return (value if len(value) <= _LONG else f"{value[:_LONG]}...") or "(nothing)"


def statement(found: Pair, tool_version: str) -> dict[str, Json]:
    """An in-toto statement about both sides' images.

    Source: in-toto attestation framework, ``spec/v1/statement.md``. Its predicate is hq's own.
    """
    subjects: list[Json] = [
        {"name": f"{name}:{side.pin}", "digest": {"sha256": manifest.removeprefix("sha256:")}}
        for side in (found.a, found.b)
        for name, (_, manifest) in sorted(side.images.items())
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "verdict": found.verdict,
            "sentence": sentence(found),
            "a": _side(found.a),
            "b": _side(found.b),
            "pin": list[Json](found.pin),
            "port": list[Json](found.port),
            "follows": list[Json](found.follows),
            "other": [_other(other) for other in found.other],
            "same": found.same,
            "shared_layer_bytes": found.shared,
            "tool": {"hq": tool_version},
        },
    }


def _side(side: PairSide) -> Json:
    return {
        "label": side.label,
        "pin": side.pin,
        "distribution": side.wheel,
        "images": {
            name: {"image_id": image_id, "manifest": manifest}
            for name, (image_id, manifest) in sorted(side.images.items())
        },
    }


def _other(other: Other) -> Json:
    where = other.where
    return {
        "node": other.node,
        "what": other.what,
        "file": where.file if where else "",
        "line": where.line if where else 0,
        "a": other.a,
        "b": other.b,
    }


def markdown(found: Pair) -> Iterator[str]:
    """The answer for a pull request, as lines."""
    mark = {"other": "❌"}.get(found.verdict, "✅")
    yield f"{mark} **{_cell(sentence(found))}**"
    yield ""
    yield "| | A | B |"
    yield "|---|---|---|"
    yield f"| build | {_cell(found.a.label)} | {_cell(found.b.label)} |"
    yield f"| pin | {_cell(found.a.pin)} | {_cell(found.b.pin)} |"
    for name in sorted({*found.a.images, *found.b.images}):
        ids = [side.images.get(name, ("", ""))[0] for side in (found.a, found.b)]
        yield f"| image `{_cell(name)}` | {' | '.join(_code(one) for one in ids)} |"
    yield ""
    yield "| what differs | nodes |"
    yield "|---|---|"
    for word, nodes in (
        ("the pin", found.pin),
        ("its port", found.port),
        ("what follows from them", found.follows),
    ):
        yield f"| {word} | {', '.join(_code(node) for node in nodes) or 'nothing'} |"
    yield f"| shared | {_shared(found)} |"
    count = len({other.node for other in found.other})
    yield f"| anything else | {count or 'nothing'} |"
    if found.other:
        yield ""
        yield "| node | what | where | A | B |"
        yield "|---|---|---|---|---|"
    for other in found.other:
        where = _code(str(other.where)) if other.where else ""
        cells = [_code(other.node), _cell(other.what), where, _code(other.a), _code(other.b)]
        yield f"| {' | '.join(cells)} |"


def _cell(value: str) -> str:
    # Threat: what a patch or a file holds must not end a cell, a table or a comment.
    value = _short(value) if value else ""
    for mark in "\\`*_|<>[]":
        value = value.replace(mark, f"\\{mark}")
    return value


def _code(value: str) -> str:
    if not value:
        return ""
    value = _short(value).replace("|", "\\|")
    fence = "``" if "`" in value else "`"
    return f"{fence} {value} {fence}" if fence == "``" else f"{fence}{value}{fence}"
