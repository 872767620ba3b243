"""Which dependency goes into which layer: stable under every change of the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import Digest
from hq.model.project import LockedWheel
from hq.plan.dependencies import GROUPS, LARGE, grouped

wheels = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z]", fullmatch=True),
    st.integers(1, 2 * LARGE),
    max_size=30,
).map(
    lambda sizes: [
        LockedWheel(name, "1", f"{name.replace('-', '_')}-1-py3-none-any.whl", Digest.of(b""), size)
        for name, size in sizes.items()
    ]
)


@given(wheels, st.randoms())
def test_every_wheel_is_in_one_layer_and_large_ones_are_alone(
    found: list[LockedWheel], random: object
) -> None:
    shuffled = sorted(found, key=lambda _: random.random())  # type: ignore[attr-defined]
    layers = grouped(shuffled)
    assert layers == grouped(found)
    assert sorted(wheel for layer in layers.values() for wheel in layer) == sorted(found)
    for name, members in layers.items():
        if members[0].size >= LARGE:
            assert (name, len(members)) == (f"dep-{members[0].name}", 1)
        else:
            assert name.startswith("deps-")
    assert sum(name.startswith("deps-") for name in layers) <= GROUPS


@given(wheels)
def test_one_wheel_less_changes_one_layer(found: list[LockedWheel]) -> None:
    if not found:
        return
    before, after = grouped(found), grouped(found[1:])
    changed = [name for name in before if before[name] != after.get(name)]
    assert len(changed) == 1
    assert set(after) <= set(before)
