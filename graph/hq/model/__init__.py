"""The vocabulary that every other package speaks: digests, trees, actions, results, errors, ports.

Nothing here reads a disk, a clock, the environment or a network, and nothing here imports another
package of hq. The modules are imported one by one (``from hq.model.tree import Delta``), never
re-exported, so that a short command loads only what it uses.

Values are ``NamedTuple`` classes, not dataclasses: defining one frozen, slotted dataclass costs
about 0.6 ms at import time and the ``dataclasses`` module itself 19 ms, which is more than a
whole no-op build may take (docs/adr/0002).
"""
