"""What each kind of node does: one function per kind, in ``hq.rules.table``.

A rule sees its parameters and its resolved inputs through a ``Context`` and gives back a ``Made``.
It reads and writes bytes only through the store's protocol.
"""
