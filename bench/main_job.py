#!/usr/bin/env python3
"""The main job, hq beside BuildKit, in one run: cold, no-op, one line of a patch, its preamble.

The job is this repository's package image (``serving.py`` has the other): the locked wheel on disk,
its patch series, its knobs and its overlay. The peer does what a careful Dockerfile can (bind
mounts, a layer a concern, GNU patch at fuzz 0) under BuildKit, in an engine of its own: wheel,
patches and the overlay's files; no knobs, no facts, no audit.

    bench/main_job.py --wheels DIR [--runs N] [--json FILE]

Needs root, dockerd, docker-registry, busybox-static and GNU patch. Prints medians and ratios; only
ratios mean anything on another machine. hq's runs delete nothing: each cold one has a fresh store.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = "0.29.0"
MIDDLE = 8
# The distribution's own client: it has BuildKit built in, where newer ones want a plug-in.
DOCKER = "/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker"


class Usage:
    """Wall seconds, CPU seconds and peak memory in KiB of one command."""

    def __init__(self, wall: float, cpu: float, peak: int) -> None:
        self.wall = wall
        self.cpu = cpu
        self.peak = peak


def measured(command: list[str], cwd: Path, env: dict[str, str]) -> Usage:
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{errors.decode(errors='replace')[-2000:]}")
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


class Job:
    """A copy of the repository's content that steps may change."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        for name in ("patches", "kvarn", "images", "lockfiles", "graph", "tools"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("build.toml", "hq", "requirements.txt"):
            shutil.copy2(ROOT / name, folder / name)
        self.series = [
            line.split()[0]
            for line in (folder / "patches/series").read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]
        self.middle = folder / "patches" / self.series[MIDDLE - 1]
        self.counter = 0

    def change_line(self) -> None:
        """Appends a comment to an added line of the middle patch that can carry one."""
        self.counter += 1
        lines = self.middle.read_text().split("\n")
        for number, line in enumerate(lines):
            if re.match(r"\+ +[a-z_]+ = [\w.()]+(  # run \d+)?$", line):
                lines[number] = re.sub(r"  # run \d+$", "", line) + f"  # run {self.counter}"
                self.middle.write_text("\n".join(lines))
                return
        sys.exit(f"no line of {self.middle.name} can carry a comment")

    def change_preamble(self) -> None:
        self.counter += 1
        text = self.middle.read_text()
        head, sep, rest = text.partition("\n\n")
        head = re.sub(r"\nX-Run: \d+", "", head)
        self.middle.write_text(f"{head}\nX-Run: {self.counter}{sep}{rest}")


class Hq:
    """The subject."""

    name = "hq"

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job = job
        self.scratch = scratch
        self.count = 0
        self.environment = dict(os.environ)
        self.fresh()

    def fresh(self) -> None:
        """A new, empty store; new output."""
        self.count += 1
        self.environment["HQ_STORE"] = str(self.scratch / f"store-{self.count}")
        self.output = self.scratch / f"dist-{self.count}"
        link = ROOT / ".hq"
        if not (self.job.folder / ".hq").exists() and link.exists():
            (self.job.folder / ".hq").symlink_to(link)

    def cold(self) -> Usage:
        """The first build; the wheel is taken from the disk, as the peer's is."""
        command = [*self.command(), "--wheel", str(self.job.wheel)]
        return measured(command, self.job.folder, self.environment)

    def command(self) -> list[str]:
        shown = ["--image", "vllm", "--quiet", "--output", str(self.output)]
        return ["./hq", "build", "--pin", PIN, *shown]

    def build(self) -> Usage:
        return measured(self.command(), self.job.folder, self.environment)

    def new_bytes(self, before: set[str]) -> int:
        blobs = self.output / "vllm-0.29.0" / "blobs" / "sha256"
        return sum(p.stat().st_size for p in blobs.iterdir() if p.name not in before)

    def blobs(self) -> set[str]:
        folder = self.output / f"vllm-{PIN}" / "blobs" / "sha256"
        return {path.name for path in folder.iterdir()}


DOCKERFILE = """\
FROM hq-bench-base
RUN --mount=type=bind,source=wheel,target=/wheel \\
    mkdir -p /opt/vllm/site-packages && unzip -q /wheel/{wheel} -d /opt/vllm/site-packages
RUN --mount=type=bind,source=patches,target=/patches \\
    cd /opt/vllm/site-packages && sed '/^#/d;s/ .*//' /patches/series | while read p; do \\
    /bin/patch -s -p1 -F0 < /patches/$p || exit 1; done
COPY overlay /opt/vllm/site-packages
"""


class BuildKit:
    """The peer: the same job under BuildKit, in an engine of its own."""

    name = "BuildKit"

    def __init__(self, job: Job, scratch: Path, host: str) -> None:
        self.job = job
        self.environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "1"}
        self.count = 0
        self.context = scratch / "context"
        (self.context / "wheel").mkdir(parents=True)
        os.link(job.wheel, self.context / "wheel" / job.wheel.name)
        shutil.copytree(job.folder / "kvarn/files", self.context / "overlay")
        (self.context / "Dockerfile").write_text(DOCKERFILE.format(wheel=job.wheel.name))
        self.base(scratch)

    def base(self, scratch: Path) -> None:
        root = scratch / "base"
        (root / "bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copy2("/bin/busybox", root / "bin/busybox")
        for applet in ("sh", "unzip", "mkdir", "sed"):
            (root / "bin" / applet).symlink_to("busybox")
        shutil.copy2("/usr/bin/patch", root / "bin/patch")
        listed = subprocess.run(
            ["ldd", "/usr/bin/patch"], capture_output=True, text=True, check=True
        )
        for library in re.findall(r"(/\S+)", listed.stdout):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)
        tar = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True)
        subprocess.run(
            [DOCKER, "import", "-", "hq-bench-base"],
            input=tar.stdout,
            env=self.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def fresh(self) -> None:
        """Nothing of an earlier build may be reused: the engine's caches are emptied."""
        for command in (
            [DOCKER, "image", "rm", "-f", "hq-bench"],
            [DOCKER, "builder", "prune", "-af"],
        ):
            subprocess.run(
                command,
                env=self.environment,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        time.sleep(2)

    def build(self) -> Usage:
        patches = self.context / "patches"
        patches.mkdir(exist_ok=True)
        for path in [self.job.folder / "patches/series", *self.patches()]:
            target = patches / path.relative_to(self.job.folder / "patches")
            target.parent.mkdir(exist_ok=True)
            if not target.exists() or target.read_bytes() != path.read_bytes():
                shutil.copy2(path, target)
        return measured(
            [DOCKER, "build", "-q", "--network", "none", "-t", "hq-bench", "."],
            self.context,
            self.environment,
        )

    def patches(self) -> list[Path]:
        return [self.job.folder / "patches" / name for name in self.job.series]

    def push(self, registry: str) -> Usage:
        tag = f"{registry}/hq-bench"
        subprocess.run([DOCKER, "tag", "hq-bench", tag], env=self.environment, check=True)
        return measured([DOCKER, "push", "-q", tag], self.context, self.environment)


@contextlib.contextmanager
def engine(scratch: Path) -> Iterator[str]:
    """A Docker engine of its own below ``scratch``."""
    host = f"unix://{scratch}/docker.sock"
    log = (scratch / "dockerd.log").open("wb")
    command = ["dockerd", "--data-root", str(scratch / "docker"), "--exec-root"]
    command += [str(scratch / "exec"), "--pidfile", str(scratch / "pid"), "--host", host]
    command += ["--bridge", "none", "--iptables=false"]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(120):
            done = subprocess.run(
                [DOCKER, "info"],
                env={**os.environ, "DOCKER_HOST": host},
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                break
            time.sleep(0.25)
        else:
            sys.exit(f"dockerd did not start; see {scratch}/dockerd.log")
        yield host
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def registry(scratch: Path) -> Iterator[str]:
    """A registry on the loopback interface."""
    port = 5999
    config = scratch / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {scratch}/registry\n"
        f"http:\n  addr: 127.0.0.1:{port}\nlog:\n  level: error\n"
    )
    log = (scratch / "registry.log").open("wb")
    process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
                break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def registry_bytes(scratch: Path) -> int:
    return sum(p.stat().st_size for p in (scratch / "registry").rglob("data") if p.is_file())


def median(runs: int, prepare: Callable[[], None], build: Callable[[], Usage]) -> Usage:
    found = []
    for _ in range(runs):
        prepare()
        found.append(build())
    return Usage(
        statistics.median(usage.wall for usage in found),
        statistics.median(usage.cpu for usage in found),
        max(usage.peak for usage in found),
    )


def nothing() -> None:
    """No preparation."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, required=True, metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cold-runs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    lock = tomllib.loads((ROOT / f"lockfiles/{PIN}.toml").read_text())
    wheel = options.wheels.resolve() / lock["wheel"][0]["file"]
    with tempfile.TemporaryDirectory(prefix="hq-bench-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "job").mkdir()
        with engine(scratch) as host, registry(scratch) as address:
            rows, extra = compare(options, Job(scratch / "job", wheel), scratch, host, address)
    report(rows, extra)
    if options.json is not None:
        document = {
            "rows": {name: {k: vars(u) for k, u in row.items()} for name, row in rows.items()},
            **extra,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def compare(
    options: argparse.Namespace, job: Job, scratch: Path, host: str, address: str
) -> tuple[dict[str, dict[str, Usage]], dict[str, int]]:
    hq, peer = Hq(job, scratch), BuildKit(job, scratch, host)
    rows: dict[str, dict[str, Usage]] = {}
    rows["cold"] = {
        "hq": median(options.cold_runs, hq.fresh, hq.cold),
        "BuildKit": median(options.cold_runs, peer.fresh, peer.build),
    }
    push = peer.push(address)
    cold = rows["cold"]["BuildKit"]
    rows["cold, pushable"] = {
        "hq": rows["cold"]["hq"],
        "BuildKit": Usage(cold.wall + push.wall, cold.cpu, cold.peak),
    }
    steps: list[tuple[str, Callable[[], None]]] = [
        ("no-op", nothing),
        (f"one line of patch {MIDDLE}", job.change_line),
        (f"preamble of patch {MIDDLE}", job.change_preamble),
    ]
    for label, prepare in steps:
        rows[label] = {
            "hq": median(options.runs, prepare, hq.build),
            "BuildKit": median(options.runs, prepare, peer.build),
        }
    before, pushed = hq.blobs(), registry_bytes(scratch)
    job.change_line()
    hq.build()
    peer.build()
    peer.push(address)
    extra = {
        "hq bytes pushed again": hq.new_bytes(before),
        "docker bytes pushed again": registry_bytes(scratch) - pushed,
    }
    return rows, extra


def report(rows: dict[str, dict[str, Usage]], extra: dict[str, int]) -> None:
    print(f"{'step':<24}{'hq s':>9}{'CPU s':>8}{'MiB':>7}{'BuildKit s':>13}{'ratio':>9}")
    for name, row in rows.items():
        hq, peer = row["hq"], row["BuildKit"]
        print(
            f"{name:<24}{hq.wall:>9.3f}{hq.cpu:>8.2f}{hq.peak / 1024:>7.0f}{peer.wall:>13.3f}"
            f"{hq.wall / peer.wall:>9.3f}"
        )
    for name, value in extra.items():
        print(f"{name:<33}{value:>12}")


if __name__ == "__main__":
    main()
