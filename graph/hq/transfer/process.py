"""What the programs that hq starts (apt, pip) have in common: how they are ended."""

from __future__ import annotations

import subprocess

DIE_WITH_PARENT = """
import os, sys
parent = int(sys.argv.pop(1))
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        os._exit(1)  # it died before it could be asked for
"""
"""Begins a program of Python that the kernel ends when hq dies, however that happens.

Its first argument is hq's process ID. The wish outlives ``exec``.
"""

_PATIENCE = 5.0  # seconds between asking a program to end and making it


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program that may still run, kindly first, and waits until it is gone."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
