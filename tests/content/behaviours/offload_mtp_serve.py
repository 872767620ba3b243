"""What the offloading connector serves and stores for a hybrid model under MTP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from offload_fakes import CHUNK, Tier, connector, full, key, mamba, request


def _served(states: list[int], method: str | None = "mtp") -> int | None:
    """Hit tokens of a prompt of eight chunks and a bit, all stored but for the states named."""
    tier = Tier()
    tier.held = {key(0, chunk) for chunk in range(8)} | {key(1, chunk) for chunk in states}
    scheduler = connector([full(), mamba()], method, tier)
    wanted = request(8 * CHUNK + 5)
    scheduler.on_new_request(wanted)
    hit, _ = scheduler.get_num_new_matched_tokens(wanted, 0)
    return hit


def _stored(num_output: int, computed: int, method: str | None) -> list[int]:
    """Chunks of the attention group that a finished request offers to the tier."""
    tier = Tier()
    scheduler = connector([full(), mamba()], method, tier)
    done = request(2 * CHUNK, num_output, computed)
    scheduler.on_new_request(done)
    state = scheduler._req_status["request"]
    state.update_offload_keys()
    for group in state.group_states:
        group.block_ids.extend(range(1, 1 + -(-done.num_tokens // CHUNK)))
    output = SimpleNamespace(num_scheduled_tokens={}, finished_req_ids={"request"})
    scheduler._build_store_jobs(output)
    names = {key(0, chunk): chunk for chunk in range(16)}
    return sorted(names[offer] for offer in tier.offered if offer in names)


def observe() -> dict[str, Any]:
    return {
        # Align mode keeps states apart: never two in a row.
        "states apart": _served([2, 6]),
        "a state at the end only": _served([7]),
        "no state": _served([]),
        "without a drafter": _served([2, 6], None),
        # Ends on a chunk's last token, which was sampled and never computed.
        "ends on a boundary": _stored(2 * CHUNK, 4 * CHUNK - 1, None),
        "ends past a boundary": _stored(2 * CHUNK + 1, 4 * CHUNK, None),
        # Stopped inside an accepted draft: more computed than kept.
        "stopped in a draft": _stored(2 * CHUNK, 4 * CHUNK + 3, None),
    }
