"""What the programs that hq starts (apt, pip) have in common: how they are ended."""

from __future__ import annotations

import subprocess

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
