#!/usr/bin/env python3
"""Push and load again after one changed line of one patch, hq beside docker, in one run.

The job and the peer are those of ``main_job.py``. Both push to one registry on this machine and
load into one engine. Bytes are counted on the way to the registry, requests with their heads, by a
relay that both go through; times are taken without it.

    bench/registry.py --wheels DIR [--runs N] [--python PYTHON] [--json FILE]

Needs what ``main_job.py`` needs, and skopeo. Only ratios mean anything on another machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from main_job import DOCKER, PIN, ROOT, BuildKit, Hq, Job, Usage, engine, measured, registry


class Relay:
    """Counts what goes to a registry."""

    def __init__(self, address: str) -> None:
        self.sent = 0
        self._port = int(address.rpartition(":")[2])
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def count(self, work: Callable[[], object]) -> int:
        """The bytes that ``work`` sends."""
        before = self.sent
        work()
        return self.sent - before

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            upstream = socket.create_connection(("127.0.0.1", self._port))
            for source, target, counted in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, counted), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 18):
                self.sent += len(data) if counted else 0
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


class Subject(Hq):
    """hq, with its two ways out."""

    def __init__(self, job: Job, scratch: Path, host: str, python: str) -> None:
        self.python = python
        super().__init__(job, scratch)
        self.environment["DOCKER_CONFIG"] = str(scratch / "docker-config")
        self.host = host

    def _hq(self, *arguments: str) -> list[str]:
        program = [self.python, "graph/hq/__main__.py"] if self.python else ["./hq"]
        return [*program, *arguments, "--output", str(self.output), "--quiet"]

    def command(self) -> list[str]:
        return self._hq("build", "--pin", PIN, "--image", "vllm")

    def push(self, address: str) -> Usage:
        command = self._hq("push", "vllm", f"{address}/hq:{PIN}", "--pin", PIN, "--no-attach")
        return measured(command, self.job.folder, self.environment)

    def load(self) -> Usage:
        command = self._hq("load", "vllm", "--pin", PIN, "--engine", self.host)
        return measured(command, self.job.folder, self.environment)

    @property
    def layout(self) -> Path:
        return self.output / f"vllm-{PIN}"


class Peer(BuildKit):
    """docker, and what it takes to load an image that was made elsewhere."""

    def load(self, layout: Path, archive: Path) -> Usage:
        """A tar of the image, made by skopeo, and ``docker load``; the tar's making counts."""
        archive.unlink(missing_ok=True)
        command = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}"]
        made = measured(
            [*command, f"docker-archive:{archive}:peer:1"], self.context, self.environment
        )
        loaded = measured(
            [DOCKER, "load", "-q", "-i", str(archive)], self.context, self.environment
        )
        return Usage(made.wall + loaded.wall, made.cpu + loaded.cpu, max(made.peak, loaded.peak))


def total(*parts: Usage) -> Usage:
    return Usage(sum(p.wall for p in parts), sum(p.cpu for p in parts), max(p.peak for p in parts))


def median(found: list[Usage]) -> Usage:
    return Usage(
        statistics.median(u.wall for u in found),
        statistics.median(u.cpu for u in found),
        max(u.peak for u in found),
    )


Rows = dict[str, dict[str, Usage]]


def compare(options: argparse.Namespace, job: Job, scratch: Path) -> tuple[Rows, dict[str, int]]:
    with engine(scratch) as host, registry(scratch) as address:
        hq, peer = Subject(job, scratch, host, options.python), Peer(job, scratch, host)
        relay = Relay(address)
        hq.cold()
        peer.build()
        rows: Rows = {"first push": {"hq": hq.push(address), "docker": peer.push(address)}}
        rows["push, nothing changed"] = both(options.runs, lambda: None, hq, peer, address)
        rows["push after one line"] = both(options.runs, job.change_line, hq, peer, address)
        job.change_line()
        hq.build()
        peer.build()
        sent = {
            "hq": relay.count(lambda: hq.push(relay.address)),
            "docker": relay.count(lambda: peer.push(relay.address)),
        }
        rows |= loads(options.runs, job, hq, peer, scratch)
    return rows, sent


def both(
    runs: int, change: Callable[[], None], hq: Subject, peer: Peer, address: str
) -> dict[str, Usage]:
    """Pushes after a change; the builds before do not count."""
    found: dict[str, list[Usage]] = {"hq": [], "docker": []}
    for _ in range(runs):
        change()
        hq.build()
        peer.build()
        found["hq"].append(hq.push(address))
        found["docker"].append(peer.push(address))
    return {name: median(usages) for name, usages in found.items()}


def loads(runs: int, job: Job, hq: Subject, peer: Peer, scratch: Path) -> Rows:
    """Loads, the first and after a change, and a change that is built and loaded."""
    rows: Rows = {}
    archive = scratch / "image.tar"
    first = hq.load()
    image = f"vllm:{PIN}"
    subprocess.run(
        [DOCKER, "rmi", "-f", image], env=peer.environment, check=True, capture_output=True
    )
    rows["first load"] = {"hq": first, "docker": peer.load(hq.layout, archive)}
    again: dict[str, list[Usage]] = {"hq": [], "docker": []}
    whole: dict[str, list[Usage]] = {"hq": [], "docker": []}
    hq.load()
    for _ in range(runs):
        job.change_line()
        built = hq.build()
        loaded = hq.load()
        again["hq"].append(loaded)
        whole["hq"].append(total(built, loaded))
        again["docker"].append(peer.load(hq.layout, archive))
        whole["docker"].append(peer.build())
    rows["load after one line"] = {name: median(found) for name, found in again.items()}
    rows["one line: build, load"] = {name: median(found) for name, found in whole.items()}
    return rows


def report(rows: Rows, sent: dict[str, int]) -> None:
    print(f"{'step':<24}{'hq s':>9}{'CPU s':>8}{'MiB':>7}{'docker s':>11}{'ratio':>9}")
    for name, row in rows.items():
        hq, peer = row["hq"], row["docker"]
        print(
            f"{name:<24}{hq.wall:>9.3f}{hq.cpu:>8.2f}{hq.peak / 1024:>7.0f}{peer.wall:>11.3f}"
            f"{hq.wall / peer.wall:>9.3f}"
        )
    print(
        f"bytes to the registry after one line: hq {sent['hq']}, docker {sent['docker']}, "
        f"ratio {sent['hq'] / sent['docker']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, required=True, metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", default="", help="run hq with this instead of its wrapper")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    lock = tomllib.loads((ROOT / f"lockfiles/{PIN}.toml").read_text())
    names = {entry["file"] for entry in lock["wheel"]}
    wheel = next(p for p in sorted(options.wheels.resolve().iterdir()) if p.name in names)
    with tempfile.TemporaryDirectory(prefix="hq-bench-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "job").mkdir()
        rows, sent = compare(options, Job(scratch / "job", wheel), scratch)
    report(rows, sent)
    if options.json is not None:
        document = {
            "rows": {name: {k: vars(u) for k, u in row.items()} for name, row in rows.items()},
            "bytes": sent,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
