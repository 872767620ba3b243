"""Names of bytes and of actions."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import ActionKey, BlobRef, DiffId, Digest, DigestError

HEX = "0123456789abcdef" * 4


@given(st.binary())
def test_a_digest_is_sha256(data: bytes) -> None:
    expected = hashlib.sha256(data).hexdigest()
    assert Digest.of(data) == f"sha256:{expected}"
    assert Digest.of(data).hex == expected
    assert BlobRef.of(data) == (Digest.of(data), len(data))


@given(st.text(max_size=80))
def test_only_a_digest_is_parsed(text: str) -> None:
    with pytest.raises(DigestError):
        Digest.parse(text)
    with pytest.raises(DigestError):
        ActionKey.parse(text)


def test_what_is_parsed_is_kept() -> None:
    assert Digest.parse(f"sha256:{HEX}") == Digest.from_hex(HEX)
    assert isinstance(DiffId.from_hex(HEX), DiffId)
    assert not isinstance(DiffId.from_hex(HEX), Digest)
    assert ActionKey.parse(HEX) == HEX


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEX, f"Digest: expected 'sha256:<64 hex digits>', found '{HEX}'"),
        (f"md5:{HEX}", f"Digest: expected 'sha256:<64 hex digits>', found 'md5:{HEX}'"),
        ("sha256:AB", "Digest: expected 64 lowercase hexadecimal digits, found 'AB'"),
        (
            f"sha256:{HEX.upper()}",
            f"Digest: expected 64 lowercase hexadecimal digits, found '{HEX.upper()}'",
        ),
    ],
)
def test_messages(text: str, message: str) -> None:
    with pytest.raises(DigestError) as caught:
        Digest.parse(text)
    assert str(caught.value) == message
