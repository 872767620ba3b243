"""Results as JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.action import ActionResult, from_json, to_json
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.tree import Change, Entry

refs = st.binary(max_size=8).map(BlobRef.of)
entries = st.builds(
    lambda kind, ref: Entry(kind, ref.digest, ref.size), st.sampled_from(["f", "x", "l"]), refs
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
results = st.builds(
    ActionResult,
    st.binary(min_size=32, max_size=32).map(lambda data: ActionKey.parse(data.hex())),
    st.dictionaries(st.text(max_size=5), refs, max_size=3),
    st.lists(st.builds(Change, st.text(max_size=5), st.none() | entries), max_size=4).map(tuple),
    st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)


@given(results)
def test_a_result_survives_the_cache(result: ActionResult) -> None:
    assert from_json(json.loads(json.dumps(to_json(result)))) == result


@given(results)
def test_references_are_every_blob(result: ActionResult) -> None:
    files = [BlobRef(e.digest, e.size) for _, e in result.delta if e is not None]
    assert list(result.references()) == [*result.blobs.values(), *files]


@given(json_values)
def test_anything_else_is_an_error_of_three_kinds(value: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_json(value)


def test_another_schema() -> None:
    document = to_json(ActionResult(ActionKey("0" * 64))) | {"schema": "hq.result/0"}
    with pytest.raises(ValueError, match=r"expected schema 'hq.result/1', found 'hq.result/0'"):
        from_json(document)


def test_a_digest_that_is_none() -> None:
    document: Any = to_json(ActionResult(ActionKey("0" * 64), {"b": BlobRef(Digest.of(b""), 0)}))
    document["blobs"]["b"][0] = "sha256:0"
    with pytest.raises(ValueError, match="expected 64 lowercase"):
        from_json(document)
