"""The certificates of ``/etc/ssl/certs``, as ``update-ca-certificates`` lays them out.

A bundle of all certificates, in the order of their file names; a symlink ``NAME.pem`` for each; and
the symlinks ``<hash>.<n>`` by which OpenSSL finds a certificate by its subject
(X509_NAME_hash(3), openssl-rehash(1)): the first four bytes, least significant first, of the SHA-1
of the subject in OpenSSL's canonical form. There all text is UTF-8, of lower case in ASCII, and
each run of blanks is one blank.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_PEM: Final = re.compile(r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)-----END")
_TEXTS: Final = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1A: "ascii",
    0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
_SEQUENCE, _SET, _VERSION, _UTF8 = 0x30, 0x31, 0xA0, 0x0C


class Certificates(NamedTuple):
    """``bundle``: the file's content. ``links``: names in ``/etc/ssl/certs`` to their targets."""

    bundle: bytes
    links: Mapping[str, str]


def lay_out(files: Mapping[str, bytes], folder: str) -> Certificates:
    """The layout for certificate files by their path below the directory ``folder``.

    Files that hold no certificate are left out.
    """
    bundle = b""
    links: dict[str, str] = {}
    hashed: dict[str, list[str]] = {}
    for path in sorted(files):
        data = files[path]
        der = pem_bytes(data)
        if der is None:
            continue
        bundle += data if data.endswith(b"\n") else data + b"\n"
        name = _link_name(path)
        links[name] = f"{folder}/{path}"
        try:
            hashed.setdefault(subject_hash(der), []).append(name)
        except (ValueError, IndexError, UnicodeError):
            continue  # no hash link; the bundle holds it all the same
    for digest, names in hashed.items():
        links |= {f"{digest}.{number}": name for number, name in enumerate(sorted(names))}
    return Certificates(bundle, dict(sorted(links.items())))


def _link_name(path: str) -> str:
    base = path.rpartition("/")[2].removesuffix(".crt")
    return re.sub(r"[()]", "=", re.sub(r"[ ,]", "_", base)) + ".pem"


def pem_bytes(data: bytes) -> bytes | None:
    """The first certificate of a PEM file (RFC 7468), or ``None``."""
    found = _PEM.search(data.decode("latin-1"))
    try:
        return base64.b64decode("".join(found[1].split()), validate=True) if found else None
    except binascii.Error:
        return None


def subject_hash(der: bytes) -> str:
    """The eight hex digits under which OpenSSL looks for a certificate (RFC 5280, 4.1).

    Raises ``ValueError``, ``IndexError`` or ``UnicodeError`` for what is no certificate.
    """
    certificate = _inside(der, _SEQUENCE)
    fields = list(_values(_inside(certificate, _SEQUENCE)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    tag, subject = fields[4]  # serial, algorithm, issuer, validity, subject
    if tag != _SEQUENCE:
        raise ValueError("the subject is no sequence")
    canonical = b"".join(_canonical_set(content) for _, content in _values(subject))
    digest = hashlib.sha1(canonical, usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:4], 'little'):08x}"


def _canonical_set(content: bytes) -> bytes:
    attributes = []
    for _, attribute in _values(content):
        (kind, oid), (tag, value) = _values(attribute)
        attributes.append(_encode(_SEQUENCE, _encode(kind, oid) + _canonical_text(tag, value)))
    return _encode(_SET, b"".join(sorted(attributes)))


def _canonical_text(tag: int, value: bytes) -> bytes:
    if tag not in _TEXTS:
        return _encode(tag, value)
    data = value.decode(_TEXTS[tag]).encode("utf-8").strip(b" \t\n\v\f\r")
    return _encode(_UTF8, re.sub(rb"[ \t\n\v\f\r]+", b" ", data).lower())


def _inside(data: bytes, tag: int) -> bytes:
    found, content = next(_values(data), (0, b""))
    if found != tag:
        raise ValueError(f"expected tag {tag:#x}, found {found:#x}")
    return content


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of DER values one after the other (X.690, 8.1)."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            raise ValueError("a value is longer than what holds it")
        yield tag, data[at : at + length]
        at += length


def _encode(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content
