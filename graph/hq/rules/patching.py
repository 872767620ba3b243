"""A tree for ``hq.patchwork`` made of a node's file inputs, and what patches did as a delta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hq.knobs.reads import facts
from hq.model.action import Json
from hq.model.digest import BlobRef
from hq.model.tree import Entry, Kind, make_delta
from hq.patchwork.apply import File, PatchOutcome, apply_patch
from hq.patchwork.parse import parse_patch
from hq.rules.context import Context, Made


class Tree:
    """The files that a node may look at, and what it has changed so far."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._states = {path: context.file(f"file:{path}") for path in context.names("file:")}
        # Parents that are no directories: a patch is refused there, whatever they hold.
        self._above = {
            state.above[0]: state.above[1] for state in self._states.values() if state.above
        }
        self._now: dict[str, File | None] = {}

    def read(self, path: str) -> File | None:
        """The file, ``None`` for no file, kind ``d`` for a directory."""
        if path in self._now:
            return self._now[path]
        return self.before(path)

    def before(self, path: str) -> File | None:
        """The file as the nodes before left it."""
        state = self._states.get(path)
        if state is None:
            return File(self._above[path], b"") if path in self._above else None
        if state.directory:
            return File("d", b"")
        if state.entry is None:
            return None
        return File(state.entry.kind, self._context.file_bytes(f"file:{path}"))

    def write(self, path: str, file: File | None) -> None:
        """Puts a file there, or takes it away."""
        self._now[path] = file

    def apply(self, source: str, *, strip: int, reverse: bool) -> PatchOutcome:
        """Applies the patch of input ``source``. Raises ``BuildError`` unless it applies whole."""
        name = self._context.source(source).path
        patch = parse_patch(self._context.source_bytes(source), name)
        outcome = apply_patch(patch, self.read, strip, reverse)
        if outcome.outcome != "applied":
            # Only a failure needs the words for it.
            from hq.patchwork.explain import failure

            error = failure(outcome, name)
            assert error is not None
            raise error
        self._now |= outcome.changes
        return outcome

    def made(self, blobs: Mapping[str, BlobRef]) -> Made:
        """The changes as a result, with what they mean for the audit as value ``reads``."""
        changes: dict[str, Entry | None] = {}
        reads: dict[str, Json] = {}
        for path, file in sorted(self._now.items()):
            before = self.before(path)
            if file == before:
                continue
            changes[path] = None if file is None else self._entry(file)
            old = before.data if before is not None else None
            rows = facts(path, old, file.data if file is not None else None)
            reads[path] = [list[Json](row) for row in rows]
        return Made(blobs=blobs, delta=make_delta(changes), values={"reads": reads})

    def _entry(self, file: File) -> Entry:
        ref = self._context.store.put(file.data)
        return Entry(cast("Kind", file.kind), ref.digest, ref.size)
