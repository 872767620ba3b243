"""The one canonical encoding, from which every ``ActionKey`` is computed.

Grammar, after bencode with the types that JSON has::

    value = "n" | "t" | "f"                        null, true, false
          | "i" decimal ";"                        integer, any size, no leading zeros, no "-0"
          | "s" decimal ":" utf-8 bytes            text, its length in bytes
          | "b" decimal ":" bytes                  bytes
          | "l" value* "e"                         list or tuple
          | "d" (text value)* "e"                  dict, keys strictly ascending

The encoding is injective: two values have the same bytes only if they are equal and of equal
types, which a JSON encoder does not give (``{1: 0}`` and ``{"1": 0}`` are one text there). Floats
are not encodable: their text is not the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hq.model.digest import ActionKey

Value = None | bool | int | str | bytes | Sequence["Value"] | Mapping[str, "Value"]

_DOMAIN = b"hq.key/1\n"


def encode(value: Value) -> bytes:
    """The canonical bytes of ``value``. Raises ``TypeError`` for any other type, at any depth."""
    out: list[bytes] = []
    _encode(value, out.append)
    return b"".join(out)


def _encode(value: Value, put: Callable[[bytes], None]) -> None:
    # str first: nearly every leaf of a key is one. bool before int: True is an int.
    if isinstance(value, str):
        data = value.encode("utf-8")
        put(b"s%d:" % len(data))
        put(data)
    elif value is None:
        put(b"n")
    elif isinstance(value, bool):
        put(b"t" if value else b"f")
    elif isinstance(value, int):
        put(b"i%d;" % value)
    elif isinstance(value, bytes):
        put(b"b%d:" % len(value))
        put(value)
    elif isinstance(value, (list, tuple)):
        put(b"l")
        for item in value:
            _encode(item, put)
        put(b"e")
    elif isinstance(value, dict):
        _encode_dict(value, put)
    else:
        raise TypeError(
            "the canonical encoding takes None, bool, int, str, bytes, list, tuple and dict; "
            f"found {type(value).__name__}"
        )


def _encode_dict(value: Mapping[str, Value], put: Callable[[bytes], None]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"a key of the canonical encoding is text; found {type(key).__name__}")
    put(b"d")
    # UTF-8 keeps code point order, so sorting the text sorts the bytes.
    for key in sorted(value):
        _encode(key, put)
        _encode(value[key], put)
    put(b"e")


def action_key(description: Value) -> ActionKey:
    """BLAKE3 of ``description``'s canonical bytes under hq's domain tag."""
    from blake3 import blake3

    return ActionKey(blake3(_DOMAIN + encode(description)).hexdigest())
