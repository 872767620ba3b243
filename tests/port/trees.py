"""Releases in memory, and patches between texts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from hashlib import sha256

from hq.patchwork.apply import File
from hq.port.replay import FileStep, PatchStep, Step, replay
from hq.port.review import Finding, Knobs, review, side
from hq.port.triage import Triage, triage


class DictTree:
    """``hq.port.tree.Tree`` over a dict."""

    def __init__(self, version: str, files: Mapping[str, str | bytes]) -> None:
        self._version = version
        self.files = {p: d.encode() if isinstance(d, str) else d for p, d in files.items()}
        self.read_paths: list[str] = []

    @property
    def version(self) -> str:
        return self._version

    def paths(self) -> Sequence[str]:
        return sorted(self.files)

    def digest(self, path: str) -> str:
        data = self.files.get(path)
        return "" if data is None else sha256(data).hexdigest()

    def read(self, path: str) -> File | None:
        self.read_paths.append(path)
        data = self.files.get(path)
        return None if data is None else File("f", data)

    def edited(self, version: str, *changes: tuple[str, str, str]) -> DictTree:
        """The tree with ``(path, old, new)`` replaced, each once."""
        files: dict[str, str | bytes] = dict(self.files)
        for path, old, new in changes:
            text = files[path]
            assert isinstance(text, bytes)
            assert text.count(old.encode()) == 1, (path, old)
            files[path] = text.replace(old.encode(), new.encode())
        return DictTree(version, files)


def diff(path: str, before: str, after: str, context: int = 3) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{path}" if before else "/dev/null",
        f"b/{path}" if after else "/dev/null",
        n=context,
    )
    return "".join(lines)


HEAD = "Subject: Change\nKind: own\nCut-Against: demo 1.0\nRetires-When: never\n\nWhy.\n\n"


def patch_step(tree: DictTree, name: str, *changes: tuple[str, str, str]) -> PatchStep:
    """A patch that replaces ``(path, old, new)`` in ``tree``."""
    after = tree.edited("", *changes)
    text = HEAD
    for path in dict.fromkeys(change[0] for change in changes):
        text += diff(path, tree.files[path].decode(), after.files[path].decode())
    return PatchStep(f"{name}.patch", f"patches/{name}.patch", text.encode())


def run_triage(old: DictTree, new: DictTree, *steps: Step, large: int = 100) -> Triage:
    after = side(replay(new, steps))
    return triage(old, new, steps, after.whole, large, after.replay)


def run_review(
    old: DictTree, new: DictTree, *steps: Step, knobs: Knobs | None = None
) -> tuple[Finding, ...]:
    return review(side(replay(old, steps)), side(replay(new, steps)), knobs)


__all__ = [
    "HEAD", "DictTree", "FileStep", "PatchStep", "diff", "patch_step", "run_review", "run_triage",
]  # fmt: skip
