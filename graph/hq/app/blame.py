"""``hq blame``: where each line of a file of the built tree comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from hq.app.recorded import Content, RecordedTree
from hq.evidence.lines import (
    Origin,
    Origins,
    Step,
    kept,
    patched,
    totals,
    whole,
    with_knobs,
)
from hq.evidence.text import is_text, shown
from hq.knobs.registry import from_values
from hq.model.errors import BuildError, Location, UsageError
from hq.patchwork.apply import File, split_lines

SCHEMA = "hq.blame/1"


class BlamedLine(NamedTuple):
    """One line: its number, where it is from, its bytes with the line end."""

    number: int
    origin: Origin
    text: bytes


class Blame(NamedTuple):
    """A file of a tree, line by line."""

    path: str
    lines: tuple[BlamedLine, ...]

    def only(self, first: int, last: int) -> Blame:
        """The lines from ``first`` to ``last``, both counted."""
        return Blame(self.path, self.lines[first - 1 : last])

    def to_json(self) -> dict[str, Any]:
        """The document that ``hq blame --json`` prints."""
        return {
            "schema": SCHEMA,
            "path": self.path,
            "totals": totals([line.origin for line in self.lines]),
            "lines": [
                {
                    "line": line.number,
                    **_place(line.origin),
                    "text": line.text.decode("utf-8").removesuffix("\n"),
                }
                for line in self.lines
            ],
        }


def _place(origin: Origin) -> dict[str, Any]:
    return {
        "kind": origin.kind,
        "node": origin.node,
        "name": origin.name,
        "file": origin.file,
        "source_line": origin.line,
        "hunk": origin.hunk,
    }


def blame(tree: RecordedTree, path: str) -> Blame:
    """Every line of ``path`` as the last node left it. Raises ``UsageError``, ``BuildError``."""
    generated = tree.generated(path)
    content = tree.last(path) if generated is None else Content("f", generated.data)
    if content is None:
        from hq.app.validate import did_you_mean

        raise UsageError(
            f"there is no file {path} in the built tree",
            hint=did_you_mean(path, list(tree.files())),
        )
    if not is_text(content.data):
        raise BuildError(f"{path} is no text", where=Location(path), hint="hq diff compares bytes")
    origins = _Replay(tree).origins(len(tree.writers), path)
    if generated is not None:
        before = tree.last(path)
        layer = Origin("layer", generated.layer, generated.layer.partition(":")[2])
        origins = kept(content.data, before.data if before else b"", origins or (), layer)
    lines = split_lines(content.data)
    assert origins is not None
    assert len(origins) == len(lines)
    rows = zip(origins, lines, strict=True)
    return Blame(path, tuple(BlamedLine(n, *row) for n, row in enumerate(rows, 1)))


class _Replay:
    """Plays the nodes that touched a file once more, the last first as far as needed."""

    def __init__(self, tree: RecordedTree) -> None:
        self._tree = tree
        self._played: dict[int, Mapping[str, Origins | None]] = {}

    def origins(self, rank: int, path: str) -> Origins | None:
        """The origins of ``path`` as it is before the writer of ``rank``."""
        writer, entry = self._tree.before(rank, path)
        if entry is None:
            return None
        if writer < 0:
            content = self._tree.read(rank, path)
            assert content is not None
            wheel = self._tree.wheel
            return whole("wheel", wheel, self._tree.wheel_file, path, content.data)
        if writer not in self._played:
            self._played[writer] = self._play(writer)
        played = self._played[writer]
        return played[path] if path in played else self._other(writer, path)

    def _play(self, rank: int) -> Mapping[str, Origins | None]:
        node = self._tree.writers[rank]
        match self._tree.records[node].kind:
            case "patch":
                return self._patch(rank, node)
            case "envs":
                return self._envs(rank, node)
            case "overlay":
                return self._overlay(rank, node)
            case _:
                return {}

    def _patch(self, rank: int, node: str) -> Mapping[str, Origins | None]:
        record = self._tree.records[node]
        params = record.params
        step = Step(
            node, node.partition(":")[2], record.what["patch"], self._tree.source(node, "patch"),
            int(params["strip"]), bool(params["reverse"]),
        )  # fmt: skip

        def read(path: str) -> File | None:
            return _file(self._tree.read(rank, path))

        return patched(step, read, lambda path: self.origins(rank, path)).origins

    def _envs(self, rank: int, node: str) -> Mapping[str, Origins | None]:
        params = self._tree.records[node].params
        target = str(params["target"])
        before, origins = self._tree.read(rank, target), self.origins(rank, target)
        assert before is not None
        assert origins is not None
        registry = from_values(cast("Mapping[str, Any]", params["registry"]))
        return {target: with_knobs(before.data, origins, registry, target, node)}

    def _overlay(self, rank: int, node: str) -> Mapping[str, Origins | None]:
        """New files, then patches on top of them, as ``hq.rules.overlay`` does it."""
        record = self._tree.records[node]
        name = str(record.params["name"])
        files: dict[str, File | None] = {}
        now: dict[str, Origins | None] = {}
        programs = record.params.get("executable", ())
        for path in record.params["files"]:
            data = self._tree.source(node, f"new:{path}")
            files[path] = File("x" if path in programs else "f", data)
            now[path] = whole("overlay", node, name, record.what[f"new:{path}"], data)

        def read(path: str) -> File | None:
            return files[path] if path in files else _file(self._tree.read(rank, path))

        def origins_of(path: str) -> Origins | None:
            return now[path] if path in now else self.origins(rank, path)

        for patch in cast("list[dict[str, Any]]", record.params["patches"]):
            source = f"patch:{patch['name']}"
            step = Step(
                node, patch["name"], record.what[source], self._tree.source(node, source),
                int(patch["strip"]), bool(patch["reverse"]),
            )  # fmt: skip
            made = patched(step, read, origins_of)
            now |= made.origins
            files |= made.files
        return now

    def _other(self, rank: int, path: str) -> Origins:
        """A file of a node that is not played: from its source if it has that content."""
        node = self._tree.writers[rank]
        record = self._tree.records[node]
        content = self._tree.read(rank + 1, path)
        assert content is not None
        _, entry = self._tree.before(rank + 1, path)
        assert entry is not None
        source = next(
            (record.what[name] for name, one in record.inputs.items() if one == entry.digest), ""
        )
        return whole("other", node, node, source, content.data)


def _file(content: Content | None) -> File | None:
    return None if content is None else File(content.kind, content.data)


def porcelain(found: Blame) -> Iterator[str]:
    """For programs: for each line a head, fields, and the line after a tab.

    The head is ``NODE SOURCE-LINE LINE``; fields without a value are left out.
    """
    for line in found.lines:
        origin = line.origin
        yield f"{origin.node} {origin.line} {line.number}"
        yield f"kind {origin.kind}"
        for field, value in (("name", origin.name), ("file", origin.file)):
            if value:
                yield f"{field} {value}"
        if origin.hunk:
            yield f"hunk {origin.hunk}"
        yield "\t" + line.text.decode("utf-8").removesuffix("\n")


def table(found: Blame) -> Iterator[str]:
    """For people: origin, number and text of each line."""
    labels = [label(line.origin) for line in found.lines]
    width = max(map(len, labels), default=0)
    digits = len(str(found.lines[-1].number)) if found.lines else 1
    for line, text in zip(found.lines, labels, strict=True):
        shown_text = shown(line.text.decode("utf-8").removesuffix("\n"))
        yield f"{text:<{width}}  {line.number:>{digits}}  {shown_text}".rstrip()


def label(origin: Origin) -> str:
    """An origin in a few words."""
    place = f"{origin.file}:{origin.line}" if origin.file and origin.line else origin.file
    match origin.kind:
        case "wheel":
            return f"{origin.node}:{origin.line}"
        case "patch":
            return f"{place} (hunk {origin.hunk})"
        case "knob":
            return f"knob {origin.name}"
        case "envs":
            return "knobs"
        case "overlay":
            return place
        case _:
            return place or origin.node
