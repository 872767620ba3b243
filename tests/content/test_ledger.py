"""The ledger: every patch of a series, and every patch that the port of 0.29.0 names."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from . import trees

STATUS = {"carried", "retired", "absent"}
PORTED_AS = {"retired", "regenerated", "adjusted", "carried", "fuzz", "added", "named"}
KEYS = {"name", "status", "kind", "pins", "ported-as", "reason", "retires-when"}
OPTIONAL = {"part", "upstream", "formerly"}

# Every patch that the notes on the move from 0.28.0 to 0.29.0 name, under each name they use.
NAMED = [
    "vllm-pr54282-draft-gumbel-salt",
    "xgrammar-spec-terminated",
    "hybrid-kv-groups-v2-cudagraph",
    "int4-kv-per-token-head",
    "dflash2-prewarm",
    "dflash2-lookup-drafting",
    "offload-mtp-serve",
    "mamba-align-retire-null-gaps",
    "hybrid-sw-block-promote",
    "mamba-align-checkpoint-order",
    "offload-dflash-eagle-groups",
    "offload-wsl2-devptr",
    "spec-decode-attn",
    "spec-sampler-prewarm",
    "speed-knobs-envs",
    "prefill-attn-int8",
    "triton-prefill-attn-int8",
    "vision-tower-cpu-offload",
    "ngram-chains",
    "dflash2-z-adaptive-emitted",
    "kvarn-0.29.0",
    "kvarn-v2-runner-0.29.0",
    "memory-profile-after-warmup",
    "cudagraph-memory-from-allocator",
    "marlin-int8-layer-select",
    "marlin-int8-negative-scales",
    "mamba-chunked-prefill-align",
    "dflash2-ngram-chains",
]


def entries() -> list[dict[str, Any]]:
    with (trees.PATCHES / "ledger.toml").open("rb") as file:
        document = tomllib.load(file)
    assert document["schema"] == "hq.ledger/1"
    found: list[dict[str, Any]] = document["patch"]
    return found


def test_every_entry_says_what_it_must() -> None:
    for entry in entries():
        assert entry.keys() >= KEYS, entry["name"]
        assert entry.keys() <= KEYS | OPTIONAL, entry["name"]
        assert entry["status"] in STATUS, entry["name"]
        assert entry["ported-as"] in PORTED_AS, entry["name"]
        assert entry["reason"].strip(), entry["name"]
        assert entry["retires-when"].strip(), entry["name"]
        assert bool(entry["pins"]) == (entry["status"] == "carried"), entry["name"]
        assert ("upstream" in entry) or entry["status"] != "retired", entry["name"]


def test_no_entry_is_there_twice() -> None:
    names = [(entry["name"], entry.get("part")) for entry in entries()]
    assert sorted(set(names), key=str) == sorted(names, key=str)


@pytest.mark.parametrize("pin", tuple(trees.PINS))
def test_the_series_and_the_ledger_agree(pin: str) -> None:
    carried = {entry["name"] for entry in entries() if pin in entry["pins"]}
    assert carried == {patch.stem for patch in trees.series(pin)}


@pytest.mark.parametrize("pin", tuple(trees.PINS))
def test_the_kind_is_the_headers(pin: str) -> None:
    kinds = {entry["name"]: entry["kind"] for entry in entries() if entry["status"] == "carried"}
    for patch in trees.series(pin):
        [kind] = re.findall(r"^Kind: (.*)$", patch.read_text(), re.MULTILINE)
        assert kinds[patch.stem] == kind, patch.name


def test_every_patch_that_the_port_names_is_there() -> None:
    known = {entry["name"] for entry in entries()}
    known |= {entry["formerly"] for entry in entries() if "formerly" in entry}
    assert set(NAMED) - known == set()


def test_no_patch_file_lies_outside_the_series() -> None:
    listed = {patch for pin in trees.PINS for patch in trees.series(pin)}
    lying = set(trees.PATCHES.rglob("*.patch")) - listed
    assert lying == set()
