"""Which wheel of several a target takes; ``packaging`` on such a machine is the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import cpython_tags

from hq.model.errors import UsageError
from hq.wheels.tags import best, platforms, ranks

ORDER = ranks("3.13", "x86_64-manylinux_2_39")
FILES = [
    "demo-1-cp313-cp313-manylinux_2_39_x86_64.whl",
    "demo-1-cp313-cp313-manylinux_2_28_x86_64.whl",
    "demo-1-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "demo-1-cp38-abi3-manylinux_2_28_x86_64.whl",
    "demo-1-py3-none-manylinux_2_28_x86_64.whl",
    "demo-1-py3-none-any.whl",
]
OTHERS = [
    "demo-1-cp313-cp313-manylinux_2_40_x86_64.whl",
    "demo-1-cp313-cp313-musllinux_1_2_x86_64.whl",
    "demo-1-cp313-cp313t-manylinux_2_28_x86_64.whl",
    "demo-1-cp312-cp312-manylinux_2_28_x86_64.whl",
    "demo-1-cp313-cp313-manylinux_2_28_aarch64.whl",
    "demo-1-cp313-cp313-win_amd64.whl",
    "demo-1.tar.gz",
    "no wheel at all.whl",
]


@given(st.sets(st.sampled_from(FILES)), st.sets(st.sampled_from(OTHERS)), st.randoms())
def test_the_most_special_wheel_that_fits(
    fitting: set[str], others: set[str], shuffled: object
) -> None:
    offered = sorted({*fitting, *others}, key=lambda _: shuffled.random())  # type: ignore[attr-defined]
    assert best(offered, ORDER) == (min(fitting, key=FILES.index) if fitting else None)


def test_the_order_is_that_of_packaging() -> None:
    names = platforms("x86_64-manylinux_2_39")
    expected = [str(tag) for tag in cpython_tags((3, 13), platforms=names)]
    assert sorted(expected, key=ORDER.__getitem__) == expected


def test_an_older_architecture_begins_later() -> None:
    assert platforms("aarch64-manylinux_2_18") == [
        "manylinux_2_18_aarch64",
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
        "linux_aarch64",
    ]


@pytest.mark.parametrize("name", ["linux", "x86_64-manylinux_2", "windows", "x86_64-musllinux_1_2"])
def test_an_unknown_platform(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        platforms(name)
    assert caught.value.render() == (
        f"error: unknown platform {name!r}\n"
        "  help: name it as x86_64-manylinux_2_39: architecture, then the base's glibc version"
    )
