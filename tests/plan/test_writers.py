"""Which node left a file as it is: the chain of inputs against a walk over all nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.tree import Entry, make_delta
from hq.plan.node import FileAt
from hq.plan.resolve import Resolver
from hq.plan.writers import Writers, file_inputs
from hq.rules.context import FileState
from hq.wheels.index import WheelIndex

PATHS = ("a", "a/b", "a/b/c", "a/d", "e", "e/f", "g")
KEY = ActionKey("0" * 64)


def entry(text: str) -> Entry:
    return Entry("f", Digest.of(text.encode()), len(text))


# Each node: the paths that it may write, and what it wrote there (None removes, absent leaves).
node = st.dictionaries(
    st.sampled_from(PATHS), st.sampled_from(["leave", "write", "remove"]), min_size=1, max_size=3
)


class Nothing:
    """A wheel without members."""

    def get(self, path: str) -> None:
        return None

    def has_directory(self, path: str) -> bool:
        return False

    def file_above(self, path: str) -> None:
        return None


def nothing(_: BlobRef) -> WheelIndex:
    return Nothing()  # type: ignore[return-value]


def walk_back(results: list[ActionResult], path: str) -> FileState:
    """The state of ``path`` by asking every node, the latest first."""
    for result in reversed(results):
        for changed, found in result.delta:
            if changed == path:
                return FileState(path, found)
            if found is None:
                continue
            if changed.startswith(path + "/"):
                return FileState(path, None, directory=True)
            if path.startswith(changed + "/"):
                return FileState(path, None, above=(changed, found.kind))
    return FileState(path, None)


@given(st.lists(node, max_size=8))
def test_the_chain_finds_what_a_walk_over_all_nodes_finds(nodes: list[dict[str, str]]) -> None:
    writers = Writers("wheel")
    results = {"wheel": ActionResult(KEY, {"index": BlobRef.of(b""), "wheel": BlobRef.of(b"")})}
    for number, changes in enumerate(nodes):
        name = f"node {number}"
        inputs = file_inputs(changes, writers)
        assert set(inputs) == {f"file:{path}" for path in changes}
        writers.add(name, changes)
        delta = {
            path: entry(name) if change == "write" else None
            for path, change in changes.items()
            if change != "leave"
        }
        results[name] = ActionResult(KEY, {}, make_delta(delta))
    resolver = Resolver(results, BlobRef.of, nothing)  # type: ignore[arg-type]
    in_order = [results[f"node {number}"] for number in range(len(nodes))]
    for path in PATHS:
        selector = writers.file_at(path)
        assert resolver.resolve(selector).value == walk_back(in_order, path)
        assert selector.providers[-1] == "wheel"


@given(st.lists(node, max_size=8))
def test_providers_are_later_than_what_the_last_of_them_found(nodes: list[dict[str, str]]) -> None:
    writers = Writers("wheel")
    for number, changes in enumerate(nodes):
        writers.add(f"node {number}", changes)
    for path in PATHS:
        at: FileAt | None = writers.file_at(path)
        seen: list[int] = []
        while at is not None:
            seen += [int(name.removeprefix("node ")) for name in at.providers[:-1]]
            at = at.before
        assert seen == sorted(set(seen), reverse=True)
        assert len(seen) >= sum(path in changes for changes in nodes)


def test_a_path_that_many_touch_costs_each_of_them_one_provider() -> None:
    writers = Writers("wheel")
    for number in range(10_000):
        selector = writers.file_at("a/b")
        assert len(selector.providers) <= 2
        writers.add(f"node {number}", ["a/b"])
