"""A small project for black-box tests: a wheel, a series, knobs, an overlay, an image."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.wheelmaker import build_zip, wheel_items
from hq.model.digest import Digest
from hq.store.disk import DiskStore
from knobs.envsfiles import SMALL

SOURCE = Path(__file__).resolve().parent.parent.parent / "graph"

NUMBERS = "".join(f"line {number}\n" for number in range(1, 61))
FILES: Mapping[str, bytes] = {
    "vllm/__init__.py": b"",
    "vllm/envs.py": SMALL.encode(),
    "vllm/one.py": NUMBERS.encode(),
    "vllm/two.py": NUMBERS.encode(),
    "vllm/three.py": b"from vllm import envs\n\n\ndef f():\n    return 1\n",
    "vllm/data.bin": bytes(range(256)) * 40,
    "vllm/config.py": b'from typing import Literal\n\nKind = Literal["auto", "fp8"]\n',
}


def diff(path: str, before: str, after: str) -> str:
    """A unified diff as git writes it, without its first line."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
    )
    return "".join(lines)


def patch(subject: str, *diffs: str) -> str:
    """A patch file with header fields."""
    head = (
        f"Subject: {subject}\nOrigin: here\nForwarded: no\nKind: own\nCut-Against: demo 1.0\n"
        "Retires-When: never\nLast-Update: 2026-01-01\n\nWords about it.\n\n"
    )
    return head + "".join(diffs)


class SampleProject:
    """A project in ``folder``; ``run`` runs hq in it as a user would."""

    def __init__(self, folder: Path, files: Mapping[str, bytes] = FILES, **options: Any) -> None:
        self.root = folder / "project"
        self.store = folder / "store"
        self.links = folder / "links"
        for made in (self.root, self.links):
            made.mkdir(parents=True)
        self.first: dict[str, Any] = {}
        self.texts = {path: data.decode("latin-1") for path, data in files.items()}
        self.wheel(files, **options)
        self._declare()

    def write(self, path: str, text: str | bytes) -> None:
        """Writes a file of the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)

    def read(self, path: str) -> str:
        """A file of the project."""
        return (self.root / path).read_text()

    def replace(self, path: str, old: str, new: str) -> None:
        """Replaces ``old``, which stands there once, in a file of the project."""
        text = self.read(path)
        assert text.count(old) == 1, (old, text)
        self.write(path, text.replace(old, new))

    def layout(self, image: str = "demo", pin: str = "1.0") -> Path:
        """The folder of an image."""
        return self.root / "dist" / f"{image}-{pin}"

    def wheel(self, files: Mapping[str, bytes], **options: Any) -> Path:
        """Makes the wheel, puts it where pip looks, and locks it."""
        data = build_zip(wheel_items(files, project="demo", version="1.0", **options))
        path = self.links / "demo-1.0-py3-none-any.whl"
        path.write_bytes(data)
        self.lock(path.name, data)
        return path

    def supply(self) -> None:
        """Puts the locked wheel into the store, which spares a test the time pip takes."""
        with DiskStore(str(self.store)) as store:
            store.put((self.links / "demo-1.0-py3-none-any.whl").read_bytes())

    def lock(self, name: str, data: bytes, pin: str = "1.0") -> None:
        """Locks ``data`` as the wheel of the pin."""
        self.write(
            f"lockfiles/{pin}.toml",
            f'schema = "hq.lock/1"\npin = "{pin}"\ndistribution = "demo"\n\n[[wheel]]\n'
            f'name = "demo"\nversion = "{pin}"\nfile = "{name}"\n'
            f'sha256 = "{Digest.of(data).hex}"\nsize = {len(data)}\n',
        )

    def edited(self, path: str, *changes: tuple[str, str]) -> str:
        """A diff of a file of the wheel, which later diffs stand on."""
        before = self.texts[path]
        after = before
        for old, new in changes:
            assert old in after
            after = after.replace(old, new, 1)
        self.texts[path] = after
        return diff(path, before, after)

    def _declare(self) -> None:
        self.write(
            "build.toml",
            'schema = "hq.project/1"\noverlays = ["over/overlay.toml"]\n'
            'images = ["images/demo.toml"]\n\n[project]\nname = "demo"\ndefault-pin = "1.0"\n\n'
            '[knobs]\nregistry = "patches/knobs.toml"\ntarget = "vllm/envs.py"\n\n'
            '[pins."1.0"]\nlock = "lockfiles/1.0.toml"\nseries = "patches/series"\n',
        )
        self.write("patches/series", "first.patch\nsecond.patch\nthird.patch\nfourth.patch\n")
        one = self.edited("vllm/one.py", ("line 10\n", "line ten\n"))
        self.write("patches/first.patch", patch("First", one))
        two = self.edited("vllm/two.py", ("line 20\n", "line twenty\n"))
        self.write("patches/second.patch", patch("Second", two))
        again = self.edited("vllm/one.py", ("line 40\n", "line forty\n"))
        self.write("patches/third.patch", patch("Third", again))
        reads = self.edited("vllm/three.py", ("return 1", "return envs.VLLM_FORK_LEVEL"))
        self.write("patches/fourth.patch", patch("Fourth", reads))
        self.write(
            "patches/knobs.toml",
            'schema = "hq.knobs/1"\nprefixes = ["DEMO_"]\n\n[[knob]]\nname = "VLLM_FORK_LEVEL"\n'
            'type = "int"\ndefault = 3\nmeaning = "How much"\nowner = "patch:fourth"\n'
            "compile-key = false\n",
        )
        self.write(
            "over/overlay.toml",
            'schema = "hq.overlay/1"\nname = "over"\n\n[pins."1.0"]\nseries = "series"\n\n'
            '[facts]\nkind = "extra"\n\n[[facts.check]]\nfact = "kind"\n'
            'what = "the parser takes the kind"\npath = "vllm/config.py"\n'
            'kind = "literal-member"\ntarget = "Kind"\nvalue = "extra"\n',
        )
        self.write("over/files/vllm/extra/__init__.py", "EXTRA = 1\n")
        self.write("over/patches/series", "register.patch\n")
        register = self.edited("vllm/config.py", ('"fp8"]', '"fp8", "extra"]'))
        self.write("over/patches/register.patch", patch("Register", register))
        self.write(
            "images/demo.toml",
            'schema = "hq.image/1"\nname = "demo"\nprefix = "/opt/demo"\n'
            '[config]\nenv = { PYTHONPATH = "/opt/demo" }\n',
        )

    def environment(self, **more: str) -> dict[str, str]:
        """The environment that hq runs in."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        own = {
            "PYTHONPATH": str(SOURCE),
            "HQ_STORE": str(self.store),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.links),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        return {**kept, **own, **more}

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        prefix: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``hq ARGUMENTS``."""
        return subprocess.run(
            [*prefix, python, *options, "-m", "hq", *arguments],
            cwd=cwd or self.root,
            env=self.environment(**(env or {})),
            capture_output=True,
            text=True,
            check=False,
        )

    def build(self, *arguments: str, **options: Any) -> dict[str, Any]:
        """Builds and returns the JSON document; fails the test when the build fails."""
        done = self.run("build", "--json", *arguments, **options)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document
