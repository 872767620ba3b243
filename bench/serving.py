#!/usr/bin/env python3
"""One changed line of one patch in the full serving image, hq beside docker, in one run.

hq builds the image again and loads it into the engine. The peer is the loop that people write: on
an image that has all but the series, ``RUN`` runs GNU patch over the patches, ``COPY`` adds the
overlay; its result is in the engine at once. Making that image is not timed.

    bench/serving.py [--runs N] [--json FILE]

Needs an engine (``DOCKER_HOST``), GNU patch, and a store (``HQ_STORE``) into which
``hq build --image vllm-serve`` was built: about 9 GB, and as much again in the engine. The image
stays in the engine; the names that the runs give are removed. Only ratios mean anything elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from main_job import DOCKER, PIN, ROOT, Job, Usage, measured, median, nothing

IMAGE = "vllm-serve"
BASE = f"{IMAGE}:{PIN}"
SUBJECT, PEER, UNPATCHED = (f"hq-bench-serving:{tag}" for tag in ("hq", "docker", "unpatched"))
PREFIX = "/usr/local/lib/python3.13/dist-packages"
ENVIRONMENT = {**os.environ, "DOCKER_BUILDKIT": "1"}


class Hq:
    """The subject: build and load."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.output = job.folder / "dist"
        (job.folder / ".hq").symlink_to(ROOT / ".hq")

    def build(self) -> Usage:
        return self._hq("build", "--pin", PIN, "--image", IMAGE)

    def load(self, tag: str = SUBJECT) -> Usage:
        return self._hq("load", IMAGE, "--pin", PIN, "--tag", tag)

    def both(self) -> Usage:
        built, loaded = self.build(), self.load()
        return Usage(built.wall + loaded.wall, built.cpu + loaded.cpu, max(built.peak, loaded.peak))

    def layer(self, name: str) -> Path:
        """The blob of a layer of the image."""
        layout = self.output / f"{IMAGE}-{PIN}"
        index = json.loads((layout / "index.json").read_bytes())
        manifest = json.loads(blob(layout, index["manifests"][0]["digest"]).read_bytes())
        config = json.loads(blob(layout, manifest["config"]["digest"]).read_bytes())
        made = [step["created_by"] for step in config["history"] if not step.get("empty_layer")]
        return blob(layout, manifest["layers"][made.index(f"hq layer {name}")]["digest"])

    def _hq(self, *arguments: str) -> Usage:
        command = ["./hq", *arguments, "--quiet", "--output", str(self.output)]
        return measured(command, self.job.folder, ENVIRONMENT)


DOCKERFILE = f"""\
FROM {UNPATCHED}
RUN --mount=type=bind,source=patches,target=/patches --mount=type=bind,source=gnu,target=/gnu \\
    cd {PREFIX} && sed '/^#/d;s/ .*//' /patches/series | while read p; do \\
    LD_LIBRARY_PATH=/gnu /gnu/patch -s -p1 -F0 < /patches/$p || exit 1; done
COPY overlay {PREFIX}
"""


class Docker:
    """The peer: GNU patch in a ``RUN``, on an image that has all but the series."""

    def __init__(self, job: Job, context: Path, hq: Hq) -> None:
        self.job = job
        self.context = context
        with tarfile.open(hq.layer("series")) as tar:
            touched = {member.name for member in tar if member.isfile()}
        with tarfile.open(hq.layer("wheel")) as tar:
            for member in tar:
                if member.name in touched:
                    tar.extract(member, context / "root", filter="data")
                    touched.remove(member.name)
        new = " ".join(f"/{path}" for path in sorted(touched))
        (context / "Dockerfile").write_text(f"FROM {BASE}\nCOPY root /\nRUN rm -f {new}\n")
        command = [DOCKER, "build", "-q", "--network", "none", "-t", UNPATCHED, "."]
        measured(command, context, ENVIRONMENT)
        shutil.rmtree(context / "root")
        (context / "Dockerfile").write_text(DOCKERFILE)
        shutil.copytree(job.folder / "kvarn/files", context / "overlay")
        (context / "gnu").mkdir()
        shutil.copy2("/usr/bin/patch", context / "gnu/patch")

    def build(self) -> Usage:
        patches = self.context / "patches"
        patches.mkdir(exist_ok=True)
        for name in ("series", *self.job.series):
            source = self.job.folder / "patches" / name
            target = patches / name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                shutil.copy2(source, target)
        command = [DOCKER, "build", "-q", "--network", "none", "-t", PEER, "."]
        return measured(command, self.context, ENVIRONMENT)


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / Path(*digest.split(":"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hq-bench-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        for folder in ("job", "context"):
            (scratch / folder).mkdir()
        try:
            rows = compare(Job(scratch / "job", Path()), scratch / "context", options.runs)
        finally:
            for tag in (SUBJECT, PEER, UNPATCHED):
                subprocess.run([DOCKER, "image", "rm", "-f", tag], capture_output=True, check=False)
    for row, found in rows.items():
        ours, theirs = found["hq"], found["docker"]
        print(
            f"{row:28} hq {ours.wall:7.3f} s  docker {theirs.wall:7.3f} s"
            f"  ratio {ours.wall / theirs.wall:5.2f}  hq's peak {ours.peak / 1024:.0f} MiB"
        )
    if options.json is not None:
        document = {row: {k: vars(u) for k, u in found.items()} for row, found in rows.items()}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def compare(job: Job, context: Path, runs: int) -> dict[str, dict[str, Usage]]:
    """Medians of the runs, by what was measured and who did it."""
    hq = Hq(job)
    hq.build()
    hq.load(BASE)
    docker = Docker(job, context, hq)
    docker.build()
    unchanged = {
        "hq": median(runs, nothing, hq.both),
        "docker": median(runs, nothing, docker.build),
    }
    changed = {
        "hq": median(runs, job.change_line, hq.both),
        "docker": median(runs, job.change_line, docker.build),
    }
    return {"nothing changed": unchanged, "one line of one patch": changed}


if __name__ == "__main__":
    main()
