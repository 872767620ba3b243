"""Names of bytes and of actions.

Three kinds of name exist and must not be mixed up:

* ``Digest``: SHA-256 of some bytes, written ``sha256:<64 lowercase hex>`` as in the OCI image
  specification (descriptor.md, "Digests"). It names a blob.
* ``DiffId``: SHA-256 of an *uncompressed* layer tar (OCI config.md, ``rootfs.diff_ids``). It has
  the same shape as a ``Digest`` and a different meaning: one DiffID has many compressed blobs.
* ``ActionKey``: BLAKE3 of the canonical description of an action, 64 lowercase hex digits.

All three are ``str`` underneath, so they sort, hash and serialise at no cost; they are made only by
``parse``/``of``, and the type checker keeps a bare ``str`` from standing in for one.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Self

_HEX = frozenset("0123456789abcdef")


class DigestError(ValueError):
    """A text that should be a digest and is not."""


def _check_hex(text: str, what: str) -> None:
    if len(text) != 64 or not _HEX.issuperset(text):
        raise DigestError(f"{what}: expected 64 lowercase hexadecimal digits, found {text!r}")


class _Sha256Name(str):
    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``sha256:<hex>``. Raises ``DigestError``."""
        algorithm, colon, rest = text.partition(":")
        if not colon or algorithm != "sha256":
            raise DigestError(f"{cls.__name__}: expected 'sha256:<64 hex digits>', found {text!r}")
        _check_hex(rest, cls.__name__)
        return cls(text)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Takes 64 lowercase hex digits. Raises ``DigestError``."""
        _check_hex(text, cls.__name__)
        return cls("sha256:" + text)

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The SHA-256 of ``data``."""
        return cls("sha256:" + hashlib.sha256(data).hexdigest())

    @property
    def hex(self) -> str:
        """The 64 hex digits without the algorithm."""
        return self[7:]


class Digest(_Sha256Name):
    """SHA-256 of a blob's bytes."""

    __slots__ = ()


class DiffId(_Sha256Name):
    """SHA-256 of an uncompressed layer tar."""

    __slots__ = ()


class ActionKey(str):
    """BLAKE3 of everything that can change an action's result."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads 64 lowercase hex digits. Raises ``DigestError``."""
        _check_hex(text, cls.__name__)
        return cls(text)


class BlobRef(NamedTuple):
    """A blob's name and its length in bytes."""

    digest: Digest
    size: int

    @classmethod
    def of(cls, data: bytes) -> BlobRef:
        """The reference of ``data``."""
        return cls(Digest.of(data), len(data))
