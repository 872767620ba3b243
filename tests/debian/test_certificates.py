"""Certificates as update-ca-certificates lays them out; OpenSSL is the judge of hashes."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from hq.debian.certificates import lay_out, pem_bytes, subject_hash


def make(folder: Path, name: str, subject: str, *options: str) -> bytes:
    """A certificate of OpenSSL's."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = folder / f"{name}.crt"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-nodes", "-keyout", str(folder / "key"), "-out", str(path), "-days", "9"),
        *("-subj", subject, *options),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return path.read_bytes()


SUBJECTS = [
    "/CN=plain",
    "/C=XX/O=Some  Organisation /CN= Root   CA ",
    "/C=XX/O=MIXED Case/OU=one+OU=two/CN=x",
    "/CN=Überprüfung/O=日本",
    "/DC=org/DC=example/CN=mail/emailAddress=a@b.org",
]


@pytest.mark.system
@pytest.mark.parametrize("subject", SUBJECTS)
def test_openssl_agrees_on_the_hash(tmp_path: Path, subject: str) -> None:
    data = make(tmp_path, "one", subject, "-utf8", "-multivalue-rdn")
    der = pem_bytes(data)
    assert der is not None
    command = ["openssl", "x509", "-subject_hash", "-noout", "-in", str(tmp_path / "one.crt")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert subject_hash(der) == said


@pytest.mark.system
def test_layout(tmp_path: Path) -> None:
    one, two = make(tmp_path, "one", "/CN=Same"), make(tmp_path, "two", "/CN=same")
    files = {"m/Two, (2).crt": two, "m/One.crt": one.rstrip(b"\n"), "m/none.crt": b"no certificate"}
    found = lay_out(files, "/usr/share/ca-certificates")
    assert found.bundle == one + two
    digest = next(name for name in found.links if name.endswith(".0"))[:-2]
    assert found.links == {
        f"{digest}.0": "One.pem",
        f"{digest}.1": "Two__=2=.pem",
        "One.pem": "/usr/share/ca-certificates/m/One.crt",
        "Two__=2=.pem": "/usr/share/ca-certificates/m/Two, (2).crt",
    }


@pytest.mark.parametrize("der", [b"", b"0", b"0\x03\x02\x01\x01", b"0\x80", b"\x30\xff" + b"x" * 9])
def test_what_is_no_certificate_gets_no_hash(der: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(der or b"x") + b"\n-----END"
    found = lay_out({"odd.crt": pem}, "/c")
    assert list(found.links) == ["odd.pem"]


def test_what_is_no_base64_is_left_out() -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n=a\n-----END CERTIFICATE-----\n"
    assert lay_out({"odd.crt": pem}, "/c") == (b"", {})
