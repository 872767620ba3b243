"""The canonical encoding: golden vectors, injectivity, the types it refuses."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.canonical import Value, action_key, encode

# These bytes are a contract: a change of any makes every key of every store another one.
GOLDEN: list[tuple[Value, bytes]] = [
    (None, b"n"),
    (True, b"t"),
    (False, b"f"),
    (0, b"i0;"),
    (-17, b"i-17;"),
    (1 << 70, b"i1180591620717411303424;"),
    ("", b"s0:"),
    ("é", b"s2:\xc3\xa9"),
    (b"\x00\xff", b"b2:\x00\xff"),
    ([], b"le"),
    (["a", ("b",)], b"ls1:als1:bee"),
    ({}, b"de"),
    ({"b": 1, "a": [None]}, b"ds1:alnes1:bi1;e"),
]


@pytest.mark.parametrize(("value", "data"), GOLDEN)
def test_golden_vectors(value: Value, data: bytes) -> None:
    assert encode(value) == data


def test_a_golden_key() -> None:
    description: Value = {"schema": "hq.action/1", "kind": "patch", "version": 1, "inputs": {}}
    assert action_key(description) == (
        "30fe30a1d5721b0cb91b0e68576ca616e1846170583d4a01e1382c6a3071e1aa"
    )


leaves = st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """The value with its types, so that ``True`` and ``1`` differ."""
    if isinstance(value, dict):
        return ("d", tuple(sorted((key, typed(item)) for key, item in value.items())))
    if isinstance(value, list):
        return ("l", tuple(typed(item) for item in value))
    return (type(value).__name__, value)


@given(values, values)
def test_equal_bytes_mean_equal_values(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == (typed(one) == typed(other))


def decode(data: bytes) -> Any:
    """Reads the grammar of the module's docstring back."""
    value, rest = _value(data)
    assert rest == b""
    return value


def _value(data: bytes) -> tuple[Any, bytes]:
    kind, rest = data[:1], data[1:]
    if kind in b"ntf":
        return {b"n": None, b"t": True, b"f": False}[kind], rest
    if kind == b"i":
        digits, _, rest = rest.partition(b";")
        return int(digits), rest
    if kind in b"sb":
        length, _, rest = rest.partition(b":")
        data, rest = rest[: int(length)], rest[int(length) :]
        return (data.decode() if kind == b"s" else data), rest
    items = []
    while rest[:1] != b"e":
        item, rest = _value(rest)
        items.append(item)
    if kind == b"l":
        return items, rest[1:]
    keys = items[::2]
    assert keys == sorted(set(keys))
    return dict(zip(keys, items[1::2], strict=True)), rest[1:]


@given(values)
def test_it_can_be_read_back(value: Any) -> None:
    assert typed(decode(encode(value))) == typed(value)


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.randoms(use_true_random=False))
def test_the_order_of_keys_is_nothing(value: dict[str, int], rng: random.Random) -> None:
    items = list(value.items())
    rng.shuffle(items)
    assert encode(dict(items)) == encode(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [(1.5, "float"), ({"a": [1.0]}, "float"), ({1, 2}, "set"), (bytearray(b"x"), "bytearray")],
)
def test_other_types_are_refused(value: Any, found: str) -> None:
    with pytest.raises(TypeError) as caught:
        encode(value)
    assert str(caught.value) == (
        "the canonical encoding takes None, bool, int, str, bytes, list, tuple and dict; "
        f"found {found}"
    )


def test_keys_are_text() -> None:
    value: Any = {1: 0}
    with pytest.raises(TypeError) as caught:
        encode(value)
    assert str(caught.value) == "a key of the canonical encoding is text; found int"
