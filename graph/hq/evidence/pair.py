"""Whether two builds differ by the pin alone.

A control proves something about a pin only if nothing else moved. So every node that differs is
sorted into one of these, by what differs in it and not by what its inputs carried along:

* **pin**: the wheel, and the closure of its lock.
* **port**: what a move to another pin must touch: series, knob registry, overlays (KVarN), and the
  audit over them.
* **follows**: only inputs from other nodes differ, and those nodes are judged themselves.
* **other**: everything else. A launcher, a base, an entry point, a prefix, a compressor, a kind's
  version, a result that came out otherwise under one key. One of these and the pair proves nothing.

What a node may differ in is a table (``_MAY``); a kind that the table does not know is *other*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from hq.evidence.records import NodeRecord, Records
from hq.evidence.text import first_difference
from hq.model.digest import Digest, DigestError
from hq.model.errors import Location

Verdict = Literal["same", "pin", "port", "other"]
Group = Literal["pin", "port", "follows", "other"]
Contents = Callable[[Digest], bytes | None]
"""Looks a content up by name; ``None`` for what is not at hand."""
Locate = Callable[[NodeRecord, tuple[str, ...], object], Location | None]
"""Where the project's files say a parameter of a node, by its path, if they say that value."""

_ALL: Final = "*"
_MAY: Final[Mapping[str, tuple[Group, tuple[str, ...]]]] = {
    "wheel": ("pin", (_ALL,)),
    "installed": ("pin", ("wheels", "layer")),
    "patch": ("port", (_ALL,)),
    "envs": ("port", (_ALL,)),
    "overlay": ("port", (_ALL,)),
    "audit": ("port", (_ALL,)),
    "layer": ("follows", ("dist_info", "file", "stages")),
    "image": ("follows", ("pin", "distribution", "layers")),
}
"""For each kind: where it belongs, and the parameters that may differ."""


class Other(NamedTuple):
    """One thing that differs and is neither the pin nor its port.

    ``what``: in words. ``a`` and ``b``: the two sides, short. ``where``: file and first line, where
    they are known.
    """

    node: str
    what: str
    a: str
    b: str
    where: Location | None = None


class PairSide(NamedTuple):
    """A side: its pin, its wheel, its images (name to image ID and manifest digest).

    ``layers``: the layer blobs of its images, digest to size in bytes.
    """

    label: str
    pin: str
    wheel: str
    images: Mapping[str, tuple[str, str]]
    layers: Mapping[str, int] = {}


class Pair(NamedTuple):
    """The answer. ``same`` counts the nodes that are equal."""

    a: PairSide
    b: PairSide
    verdict: Verdict
    pin: tuple[str, ...]
    port: tuple[str, ...]
    follows: tuple[str, ...]
    other: tuple[Other, ...]
    same: int

    @property
    def shared(self) -> int:
        """Bytes of layers that are in both sides: stored, pushed and pulled once."""
        return sum(size for digest, size in self.a.layers.items() if digest in self.b.layers)


def nowhere(_: NodeRecord, __: tuple[str, ...], ___: object) -> None:
    """A ``Locate`` for when no project is at hand."""


def nothing(_: Digest) -> None:
    """A ``Contents`` for when no store is at hand."""


def pair(
    labels: tuple[str, str],
    a: Records,
    b: Records,
    contents: Contents = nothing,
    locate: Locate = nowhere,
) -> Pair:
    """Judges two builds."""
    judge = _Judge(a, b, contents, locate)
    groups: dict[Group, list[str]] = {"pin": [], "port": [], "follows": [], "other": []}
    others: list[Other] = []
    for name in _names(a, b):
        found = list(judge.others(name))
        others += found
        if found:
            groups["other"].append(name)
        elif judge.differs(name):
            groups[judge.group(name)].append(name)
    sides = side_of(labels[0], a), side_of(labels[1], b)
    differing = sum(map(len, groups.values()))
    return Pair(
        *sides,
        verdict=_verdict(sides, groups),
        pin=tuple(groups["pin"]),
        port=tuple(groups["port"]),
        follows=tuple(groups["follows"]),
        other=tuple(others),
        same=len({*a, *b}) - differing,
    )


def _names(a: Records, b: Records) -> list[str]:
    return [*b, *(name for name in a if name not in b)]


def _verdict(sides: tuple[PairSide, PairSide], groups: Mapping[Group, list[str]]) -> Verdict:
    if groups["other"]:
        return "other"
    if groups["pin"] or sides[0].pin != sides[1].pin:
        return "pin"
    return "port" if groups["port"] or groups["follows"] else "same"


def side_of(label: str, records: Records) -> PairSide:
    """What a side is called, and what came out of it."""
    images: dict[str, tuple[str, str]] = {}
    pins: list[str] = []
    wheels: list[str] = []
    layers: dict[str, int] = {}
    for record in records.values():
        if record.kind == "image":
            result = record.result
            images[str(record.params["name"])] = (
                str(result["values"]["image_id"]),
                str(result["blobs"]["manifest"][0]),
            )
            pins.append(str(record.params["pin"]))
            wheels.append(str(record.params["distribution"]))
            layers |= {str(one["digest"]): int(one["size"]) for one in result["values"]["layers"]}
    pin, wheel = (", ".join(sorted(set(texts))) for texts in (pins, wheels))
    return PairSide(label, pin, wheel, images, layers)


class _Judge:
    """Looks at one node after the other."""

    def __init__(self, a: Records, b: Records, contents: Contents, locate: Locate) -> None:
        self._a = a
        self._b = b
        self._contents = contents
        self._locate = locate

    def _one(self, name: str) -> NodeRecord:
        return self._b[name] if name in self._b else self._a[name]

    def differs(self, name: str) -> bool:
        """Whether the node is not the same on both sides."""
        old, new = self._a.get(name), self._b.get(name)
        return (
            old is None or new is None or (old.key, dict(old.result)) != (new.key, dict(new.result))
        )

    def group(self, name: str) -> Group:
        """Where a node belongs whose difference is allowed."""
        record = self._one(name)
        group = _MAY[record.kind][0]
        one_sided = name not in self._a or name not in self._b
        return "port" if one_sided and group == "follows" else group

    def others(self, name: str) -> Iterator[Other]:
        """What differs in a node and must not."""
        if not self.differs(name):
            return
        old, new = self._a.get(name), self._b.get(name)
        if old is None or new is None:
            if not self._may_come_and_go(self._one(name)):
                yield Other(
                    name, "the node", "" if old is None else "there", "" if new is None else "there"
                )
            return
        if old.kind != new.kind or old.version != new.version:
            yield Other(name, "its kind", f"{old.kind}/{old.version}", f"{new.kind}/{new.version}")
            return
        yield from self._params(old, new)
        yield from self._inputs(old, new)
        if old.key == new.key:
            yield Other(name, "its result, made from the same", old.key, new.key)

    def _may_come_and_go(self, record: NodeRecord) -> bool:
        group = _MAY.get(record.kind, ("other", ()))[0]
        if record.kind != "layer":
            return group in ("pin", "port")
        # A layer of changes comes and goes with the overlay or the registry that fills it.
        writers = {"series", "envs"}
        for side in (self._a, self._b):
            writers |= {str(r.params["name"]) for r in side.values() if r.kind == "overlay"}
        return record.params.get("layer") in writers

    def _params(self, old: NodeRecord, new: NodeRecord) -> Iterator[Other]:
        may = _MAY.get(old.kind, ("other", ()))[1]
        for path, was, now in _leaves(old.params, new.params):
            if _ALL in may or path[0] in may:
                continue
            where = self._locate(new, path, now) or self._locate(old, path, was)
            yield Other(old.node, ".".join(path), _text(was), _text(now), where)

    def _inputs(self, old: NodeRecord, new: NodeRecord) -> Iterator[Other]:
        """Files of the project that a node takes itself; other nodes are judged by themselves."""
        if _MAY.get(old.kind, ("other", ()))[0] in ("pin", "port"):
            return
        for name in sorted({*old.inputs, *new.inputs}):
            was, now = old.inputs.get(name), new.inputs.get(name)
            record = new if name in new.inputs else old
            if was == now or not self._is_source(record, name):
                continue
            file = record.what[name]
            line, left, right = self._lines(was, now)
            yield Other(old.node, file, left, right, Location(file, line))

    def _is_source(self, record: NodeRecord, name: str) -> bool:
        # "BLOB of NODE" is the only other input whose digest is that of plain bytes.
        provider = record.what[name].rpartition(" of ")[2]
        known = provider in self._a or provider in self._b
        return record.inputs[name].startswith("sha256:") and not known

    def _lines(self, was: str | None, now: str | None) -> tuple[int, str, str]:
        one, other = self._content(was), self._content(now)
        if one is None or other is None:
            return 0, was or "no file", now or "no file"
        found = first_difference(one, other)
        return found.line, found.old or "(no line)", found.new or "(no line)"

    def _content(self, digest: str | None) -> bytes | None:
        try:
            return None if digest is None else self._contents(Digest.parse(digest))
        except DigestError:
            return None


def _leaves(
    old: Any, new: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object, object]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _leaves(old.get(name), new.get(name), (*path, str(name)))
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, old, new


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)
