"""Environment knobs: their registry, their place in ``envs.py``, and the audit of who reads them.

``registry`` holds the declarations; ``generate`` writes them into ``envs.py`` as ``envsfile`` reads
it; ``reads`` finds what a file reads; ``audit`` holds the three against each other. Everything here
is pure: bytes and values in, bytes and values out.
"""
