"""The layer of the real wheel. ``HQ_TEST_WHEELS`` names the directory that holds it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

# Run in a process of its own, so that its peak memory is the layer's.
WRITE = """
import hashlib, os, sys
sys.path.insert(0, sys.argv[1] + "/graph")
from hq.model.digest import BlobRef, Digest
from hq.oci.arrange import Packed
from hq.oci.layer import write_layer
from hq.wheels.filename import parse_filename
from hq.wheels.reading import read_index

class Reader:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.fd).st_size
    def pread(self, offset, length):
        return os.pread(self.fd, length, offset)

class Writer:
    def __init__(self, path):
        self.file = open(path, "wb")
        self.hash = hashlib.sha256()
        self.size = 0
    def write(self, data):
        self.file.write(data)
        self.hash.update(data)
        self.size += len(data)
    def write_range(self, source, offset, length):
        for at in range(offset, offset + length, 1 << 18):
            self.write(source.pread(at, min(1 << 18, offset + length - at)))
    def commit(self):
        self.file.close()
        return BlobRef(Digest.from_hex(self.hash.hexdigest()), self.size)

wheel, target = sys.argv[2:4]
reader = Reader(wheel)
name = parse_filename(os.path.basename(wheel))
index = read_index(reader, project=name.project, version=name.version)
items = [Packed(member.path, member, reader, "w") for member in index]
result = write_layer(items, Writer(target), prefix="opt")
# Not ru_maxrss: that one counts the process that started this one, too.
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(result.diff_id, peak)
"""


def test_the_spliced_layer_of_the_real_wheel(tmp_path: Path) -> None:
    folder = os.environ.get("HQ_TEST_WHEELS")
    found = sorted(Path(folder).glob("vllm-0.29.0-*.whl")) if folder else []
    if not found:
        pytest.skip("HQ_TEST_WHEELS names no directory with the vllm 0.29.0 wheel")
    blob = tmp_path / "layer.tar.gz"
    command = [sys.executable, "-c", WRITE, str(ROOT), str(found[0]), str(blob)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True)
    diff_id, peak = shown.stdout.split()
    assert int(peak) < 150 * 1024
    assert blob.stat().st_size < found[0].stat().st_size
    with subprocess.Popen(["gzip", "-dc", str(blob)], stdout=subprocess.PIPE) as gunzip:
        assert gunzip.stdout is not None
        reader = _Hashing(gunzip.stdout)
        names = {}
        with tarfile.open(fileobj=reader, mode="r|") as archive:  # type: ignore[call-overload]
            for info in archive:
                if info.isfile():
                    content = archive.extractfile(info)
                    assert content is not None
                    digest = _digest(content)
                    names[info.name.removeprefix("opt/")] = digest
        while reader.read(1 << 20):
            pass
    assert gunzip.returncode == 0
    assert diff_id == f"sha256:{reader.hash.hexdigest()}"
    assert names == _expected(found[0])


def _digest(file: IO[bytes]) -> bytes:
    whole = hashlib.sha256()
    while piece := file.read(1 << 18):
        whole.update(piece)
    return whole.digest()


class _Hashing:
    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data: bytes = self.inner.read(size)  # type: ignore[attr-defined]
        self.hash.update(data)
        return data


def _expected(wheel: Path) -> dict[str, bytes]:
    import zipfile

    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                found[name] = _digest(member)
    return found
