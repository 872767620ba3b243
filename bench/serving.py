#!/usr/bin/env python3
"""The full serving image, hq beside docker, in one run: cold, the other pin, one line, nothing.

Both start with every locked wheel on the disk and push to one registry on this machine. hq also has
the Debian packages on the disk and makes the base of them; docker gets the base as an image, which
is not timed. Its Dockerfile is a careful one: uv installs the dependencies and then vLLM's wheel
from bind mounts, a ``RUN`` applies the series with GNU patch at fuzz 0, ``COPY`` adds the overlay's
files and the launcher; no knobs, no facts, no audit, no bill of materials.

    bench/serving.py --store DIR [--runs N] [--json FILE]

``DIR`` is a store into which ``hq build --pin`` of both pins was built; its wheels and packages are
linked into a fresh one on the same file system, so nothing is fetched. Needs root, dockerd,
docker-registry, GNU patch, and 50 GB below ``TMPDIR``, which has to be on that file system. Rows
of a whole pin are one run each, the others medians. Only ratios mean anything on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from main_job import DOCKER, PIN, ROOT, Job, Usage, engine, measured, median, nothing, registry
from registry import Relay, total

OTHER = "0.28.0"
IMAGE = "vllm-serve"
TARGETS = {"cold: build and push": "0.15", "one line: in the engine": "0.35"}
SERIES = {PIN: "series", OTHER: "series-0.28.0"}
PREFIX = "/usr/local/lib/python3.13/dist-packages"
DEBIAN, PEER, TAG = "hq-bench-debian", "hq-bench-docker", "hq-bench-hq:1"
INSTALL = (
    "pip install -q --python /usr/bin/python3.13 --break-system-packages --no-deps --offline"
    " --no-index --no-cache"
)
COUNT = (
    f"import os; s = [os.lstat(os.path.join(d, n)).st_size for d, _, f in os.walk('{PREFIX}')"
    " for n in f]; print(len(s), sum(s))"
)


def locked(pin: str) -> Iterator[dict[str, str]]:
    """The wheels of a pin's lock."""
    yield from tomllib.loads((ROOT / f"lockfiles/{pin}.toml").read_text())["wheel"]


def blob(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / digest


class Hq:
    """The subject, with a store that has what docker has: the wheels, and the packages."""

    name = "hq"

    def __init__(self, job: Job, scratch: Path, filled: Path, host: str) -> None:
        self.job = job
        self.output = scratch / "dist"
        self.host = host
        store = scratch / "store"
        self.environment = {**os.environ, "HQ_STORE": str(store)}
        self.environment["DOCKER_CONFIG"] = str(scratch / "docker-config")
        (job.folder / ".hq").symlink_to(ROOT / ".hq")
        store.mkdir()
        shutil.copy2(filled / "format", store / "format")
        base = tomllib.loads((ROOT / "lockfiles/base-trixie.toml").read_text())
        digests = {row["sha256"] for row in (*locked(PIN), *locked(OTHER), *base["package"])}
        for digest in digests:
            target = blob(store / "cas/sha256", digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(blob(filled / "cas/sha256", digest), target)

    def build(self, pin: str = PIN) -> Usage:
        return self._hq("build", "--offline", "--pin", pin, "--image", IMAGE)

    def push(self, address: str, pin: str = PIN) -> Usage:
        target = f"{address}/hq:{pin}"
        return self._hq("push", IMAGE, target, "--pin", pin, "--no-attach")

    def load(self) -> Usage:
        return self._hq("load", IMAGE, "--pin", PIN, "--tag", TAG, "--engine", self.host)

    def base(self) -> list[Path]:
        """The blobs of the base's layers, from the bottom."""
        layout = self.output / f"{IMAGE}-{PIN}"

        def read(descriptor: Any) -> Any:
            name = descriptor["digest"].removeprefix("sha256:")
            return json.loads((layout / "blobs/sha256" / name).read_bytes())

        index = json.loads((layout / "index.json").read_bytes())
        manifest = read(index["manifests"][0])
        history = read(manifest["config"])["history"]
        made = [step["created_by"] for step in history if not step.get("empty_layer")]
        return [
            layout / "blobs/sha256" / layer["digest"].removeprefix("sha256:")
            for by, layer in zip(made, manifest["layers"], strict=True)
            if by.startswith("hq layer base-")
        ]

    def _hq(self, *arguments: str) -> Usage:
        command = ["./hq", *arguments, "--quiet", "--output", str(self.output)]
        return measured(command, self.job.folder, self.environment)


DOCKERFILE = f"""\
FROM {DEBIAN}
RUN --mount=type=bind,source=deps,target=/deps --mount=type=bind,source=uv,target=/uv \\
    /uv/uv {INSTALL} /deps/*.whl
RUN --mount=type=bind,source=wheel,target=/wheel --mount=type=bind,source=uv,target=/uv \\
    /uv/uv {INSTALL} /wheel/*.whl
RUN --mount=type=bind,source=patches,target=/patches --mount=type=bind,source=gnu,target=/gnu \\
    cd {PREFIX} && sed '/^#/d;s/ .*//' /patches/series | while read p; do \\
    LD_LIBRARY_PATH=/gnu /gnu/patch -s -p1 -F0 < /patches/$p || exit 1; done
COPY overlay {PREFIX}
COPY serve /usr/local/bin/vllm-serve
"""


class Docker:
    """The peer, in an engine of its own."""

    name = "docker"

    def __init__(self, job: Job, scratch: Path, store: Path, host: str) -> None:
        self.job = job
        self.environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "1"}
        self.blobs = store / "cas/sha256"
        self.pin = PIN
        self.context = scratch / "context"
        shutil.copytree(job.folder / "kvarn/files", self.context / "overlay")
        shutil.copy2(job.folder / "images/launch/serve", self.context / "serve")
        for folder, program in (("gnu", "/usr/bin/patch"), ("uv", find_uv())):
            (self.context / folder).mkdir()
            shutil.copy2(program, self.context / folder)
        (self.context / "Dockerfile").write_text(DOCKERFILE)

    def base(self, layers: list[Path]) -> None:
        """The base as an image."""
        folder = self.context.parent / "debian"
        folder.mkdir()
        lines = ["FROM scratch"]
        for number, layer in enumerate(layers):
            os.link(layer, folder / f"{number}.tar.gz")
            lines.append(f"ADD {number}.tar.gz /")
        (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        measured([DOCKER, "build", "-q", "-t", DEBIAN, "."], folder, self.environment)

    def choose(self, pin: str) -> None:
        """Puts the wheels of a pin where the Dockerfile takes them from."""
        self.pin = pin
        wanted = {row["file"]: row for row in locked(pin)}
        for path in self.context.glob("*/*.whl"):
            if path.name not in wanted:
                path.unlink()
        for file, row in wanted.items():
            target = self.context / ("wheel" if row["name"] == "vllm" else "deps") / file
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                os.link(blob(self.blobs, row["sha256"]), target)

    def build(self) -> Usage:
        """Builds with the series as it is now."""
        source, target = self.job.folder / "patches", self.context / "patches"
        lines = (source / SERIES[self.pin]).read_text().splitlines()
        names = {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}
        for name in (SERIES[self.pin], *sorted(names)):
            place = target / ("series" if name == SERIES[self.pin] else name)
            place.parent.mkdir(parents=True, exist_ok=True)
            data = (source / name).read_bytes()
            if not place.exists() or place.read_bytes() != data:
                place.write_bytes(data)
        command = [DOCKER, "build", "-q", "--network", "none", "-t", PEER, "."]
        return measured(command, self.context, self.environment)

    def push(self, address: str) -> Usage:
        tag = f"{address}/docker"
        subprocess.run([DOCKER, "tag", PEER, tag], env=self.environment, check=True)
        return measured([DOCKER, "push", "-q", tag], self.context, self.environment)

    def installed(self, image: str) -> str:
        """Files and bytes below the prefix of an image in the engine."""
        command = [
            DOCKER,
            "run",
            "--rm",
            "--network",
            "none",
            "--entrypoint",
            "/usr/bin/python3.13",
        ]
        done = subprocess.run(
            [*command, image, "-c", COUNT],
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


def find_uv() -> str:
    """hq's own uv. Exits when ``./hq`` was never run."""
    found = ROOT / ".hq/environment/bin/uv"
    if not found.exists():
        sys.exit("run ./hq --version once: it makes the environment that has uv")
    return str(found)


class Comparison:
    """The rows, printed as they come: the whole takes a quarter of an hour."""

    def __init__(self, hq: Hq, docker: Docker, job: Job, address: str) -> None:
        self.hq = hq
        self.docker = docker
        self.job = job
        self.address = address
        self.rows: dict[str, dict[str, Usage]] = {}
        self.facts: dict[str, str] = {}
        heads = (
            ("hq s", 9),
            ("CPU s", 8),
            ("MiB", 7),
            ("docker s", 11),
            ("ratio", 9),
            ("target", 9),
        )
        print(f"{'step':<34}" + "".join(f"{text:>{width}}" for text, width in heads))

    def row(self, name: str, hq: Usage, docker: Usage) -> None:
        self.rows[name] = {"hq": hq, "docker": docker}
        print(
            f"{name:<34}{hq.wall:>9.3f}{hq.cpu:>8.2f}{hq.peak / 1024:>7.0f}{docker.wall:>11.3f}"
            f"{hq.wall / docker.wall:>9.3f}{TARGETS.get(name, ''):>9}",
            flush=True,
        )

    def fact(self, name: str, value: object) -> None:
        self.facts[name] = str(value)
        print(f"{name}: {value}", flush=True)

    def whole(self, name: str, built: Usage) -> None:
        """The pin that docker has chosen, built by hq already."""
        builds = built, self.docker.build()
        pin = self.docker.pin
        pushes = self.hq.push(self.address, pin), self.docker.push(self.address)
        self.row(f"{name}: build", *builds)
        self.row(f"{name}: push", *pushes)
        self.row(f"{name}: build and push", *map(total, builds, pushes))

    def again(self, name: str, change: Callable[[], None], runs: int) -> None:
        """Builds and pushes after a change."""

        def subject() -> Usage:
            return total(self.hq.build(), self.hq.push(self.address))

        def peer() -> Usage:
            return total(self.docker.build(), self.docker.push(self.address))

        self.row(
            f"{name}: build and push", median(runs, change, subject), median(runs, change, peer)
        )

    def into_engine(self, name: str, change: Callable[[], None], runs: int) -> None:
        """Builds after a change, until the engine has the image; docker's is there at once."""

        def subject() -> Usage:
            return total(self.hq.build(), self.hq.load())

        ours, theirs = median(runs, change, subject), median(runs, change, self.docker.build)
        self.row(f"{name}: in the engine", ours, theirs)

    def bytes_after_a_line(self, relay: Relay) -> None:
        self.job.change_line()
        self.hq.build()
        self.docker.build()
        self.fact("bytes pushed, hq", relay.count(lambda: self.hq.push(relay.address)))
        self.fact("bytes pushed, docker", relay.count(lambda: self.docker.push(relay.address)))


def run(options: argparse.Namespace, scratch: Path) -> Comparison:
    (scratch / "job").mkdir()
    job = Job(scratch / "job", Path())
    with engine(scratch) as host, registry(scratch) as address:
        hq = Hq(job, scratch, options.store, host)
        docker = Docker(job, scratch, options.store, host)
        found = Comparison(hq, docker, job, address)
        docker.choose(PIN)
        built = hq.build(PIN)
        docker.base(hq.base())
        found.whole("cold", built)
        found.again("nothing changed", nothing, options.runs)
        found.again("one line", job.change_line, options.runs)
        found.bytes_after_a_line(Relay(address))
        first = hq.load()
        found.fact("first load, hq", f"{first.wall:.1f} s, {first.peak / 1024:.0f} MiB")
        found.into_engine("nothing changed", nothing, options.runs)
        found.into_engine("one line", job.change_line, options.runs)
        for image in (TAG, PEER):
            found.fact(f"files and bytes in {image}", docker.installed(image))
        docker.choose(OTHER)
        found.whole("the other pin", hq.build(OTHER))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hq-bench-", ignore_cleanup_errors=True) as name:
        found = run(options, Path(name))
    if options.json is not None:
        rows = {
            name: {side: vars(usage) for side, usage in row.items()}
            for name, row in found.rows.items()
        }
        options.json.write_text(json.dumps({"rows": rows, "facts": found.facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
