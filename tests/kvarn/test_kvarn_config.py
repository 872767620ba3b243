"""Names, sizes and offsets: standard library only."""

import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvarnload import load

config = load("config")
specs = load("specs")
rows = load("rows")

DIMS = st.sampled_from([64, 128, 256, 512])
BITS = st.sampled_from([2, 4, 8])


def bytes_by_the_formula(d: int, g: int, kb: int, vb: int) -> int:
    return d * g * kb // 8 + 2 * (2 * d + g) + g * d * vb // 8 + 2 * (d + 2 * g)


def test_a_tile_of_head_size_256_has_26880_bytes() -> None:
    tile = config.KVarNConfig.from_cache_dtype("kvarn_k4v2_g128", 256)
    assert tile.tile_bytes == 26_880
    assert tile.token_bytes() == 210
    assert tile.token_bytes(pow2=True) == 256
    assert (tile.k_bytes, tile.v_bytes) == (17_664, 9_216)


@given(DIMS, BITS, BITS)
def test_bytes_follow_the_formula_and_fill_whole_tokens(d: int, kb: int, vb: int) -> None:
    tile = config.KVarNConfig.from_cache_dtype(f"kvarn_k{kb}v{vb}_g128", d)
    assert tile.tile_bytes == bytes_by_the_formula(d, 128, kb, vb)
    assert tile.token_bytes() * 128 == tile.tile_bytes
    assert tile.token_bytes(pow2=True) >= tile.token_bytes()
    assert tile.token_bytes(pow2=True).bit_count() == 1


@given(DIMS, BITS, BITS)
def test_parts_follow_each_other_without_a_gap(d: int, kb: int, vb: int) -> None:
    at = config.KVarNConfig.from_cache_dtype(f"kvarn_k{kb}v{vb}_g128", d).offsets
    sizes = [128 * d * kb // 8, 2 * d, 2 * d, 256, 128 * d * vb // 8, 256, 256, 2 * d]
    assert [end - start for start, end in itertools.pairwise(at)] == sizes
    assert all(offset % 2 == 0 for offset in at)


@pytest.mark.parametrize(
    ("name", "dim", "message"),
    [
        (
            "fp8",
            128,
            "'fp8' is no KVarN cache dtype; expected kvarn_k<bits>v<bits>_g<tokens>, such as "
            "kvarn_k4v2_g128",
        ),
        ("kvarn_k3v2_g128", 128, "'kvarn_k3v2_g128': bits must be one of (2, 4, 8)"),
        ("kvarn_k4v2_g64", 128, "'kvarn_k4v2_g64': tiles hold 128 tokens, found g64"),
        (
            "kvarn_k4v2_g128",
            96,
            "'kvarn_k4v2_g128': head size must be a power of two of at least 64, found 96",
        ),
    ],
)
def test_a_wrong_dtype_or_head_size_is_refused(name: str, dim: int, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        config.KVarNConfig.from_cache_dtype(name, dim)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "value"),
    [("", None), ("  ", None), ("0.99", (0.99, 0.99)), ("0.999, 1", (0.999, 1.0))],
)
def test_quantiles(text: str, value: tuple[float, float] | None) -> None:
    assert config.parse_quantiles(text) == value


@pytest.mark.parametrize("text", ["x", "0.5", "1.5", "0.9,0.9,0.9", "0.9,"])
def test_wrong_quantiles_are_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        config.parse_quantiles(text)
    expected = f"KVARN_RTN_QUANTILE: expected one or two numbers in (0.5, 1], found {text!r}"
    assert str(caught.value) == expected


@given(st.integers(1, 64), st.integers(0, 4), st.integers(0, 400), st.none() | st.integers(0, 400))
def test_a_pool_holds_every_tail_and_never_more_than_its_room(
    requests: int, sink_tiles: int, slots: int, most: int | None
) -> None:
    room = slots or requests * (2 + sink_tiles)
    room = room if most is None else min(room, most)
    arguments = {
        "max_requests": requests,
        "sink_tokens": 128 * sink_tiles,
        "slots": slots,
        "max_slots": most,
    }
    if room < 2 * requests:
        with pytest.raises(ValueError, match="for their tails"):
            config.plan_pool(**arguments)
        return
    pool = config.plan_pool(**arguments)
    assert 2 * requests <= pool.slots <= room
    assert pool.sink_rows <= requests


def test_a_sink_of_part_of_a_tile_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        config.plan_pool(max_requests=1, sink_tokens=100)
    assert str(caught.value) == "KVARN_SINK_TOKENS: expected a multiple of 128, found 100"


def test_each_reader_of_new_rows_sees_each_row_once() -> None:
    one, two = rows.NewRows(), rows.NewRows()
    rows.note_new_request(3)
    rows.note_new_request(1)
    assert one.take() == [1, 3]
    rows.note_new_request(2)
    assert one.take() == [2]
    assert two.take() == [1, 2, 3]
    assert two.take() == []


@dataclass(frozen=True)
class Mode:
    is_kvarn: bool


@dataclass(frozen=True)
class Spec:
    """The part of vLLM's attention specs that the alignment reads."""

    block_size: int
    per_token: int
    kv_quant_mode: Mode
    sliding_window: int | None = None
    page_size_padded: int | None = None

    @property
    def unpadded_page_size_bytes(self) -> int:
        return self.block_size * self.per_token

    @property
    def page_size_bytes(self) -> int:
        return self.page_size_padded or self.unpadded_page_size_bytes


QUANTIZED = Spec(2176, 840, Mode(True))
DRAFTER = Spec(16, 4096, Mode(False), sliding_window=2048)


def test_a_drafters_block_becomes_the_longest_divisor_that_fits() -> None:
    got = specs.align_native_sliding({"a": QUANTIZED, "d": DRAFTER})
    assert got["a"] == QUANTIZED
    assert got["d"] == replace(DRAFTER, block_size=272, page_size_padded=2176 * 840)


@given(st.integers(1, 40), st.integers(1, 2000), st.integers(1, 9000))
def test_an_aligned_block_divides_the_primary_and_fits(tiles: int, page: int, token: int) -> None:
    block = 128 * tiles
    size = specs.native_block_size(block, block * page, token)
    if size is None:
        assert 16 * token > block * page
        return
    assert block % size == 0
    assert size % 16 == 0
    assert size * token <= block * page
    longer = [n for n in range(size + 16, block + 1, 16) if block % n == 0]
    assert all(n * token > block * page for n in longer)


def test_what_needs_no_alignment_is_left_alone() -> None:
    padded = replace(DRAFTER, page_size_padded=70_000)
    huge = replace(DRAFTER, per_token=2176 * 840)
    quantized_window = replace(QUANTIZED, sliding_window=1024)
    full = Spec(16, 4096, Mode(False))
    for alone in ({"d": DRAFTER}, {"a": QUANTIZED, "d": padded}, {"a": QUANTIZED, "d": huge}):
        assert specs.align_native_sliding(alone) == alone
    for other in (quantized_window, full):
        assert specs.align_native_sliding({"a": QUANTIZED, "o": other})["o"] == other
