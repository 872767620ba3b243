"""Commands in a root file system, shut off by bubblewrap: no network, nothing of the host but CPUs.

The tree is mounted read-only, with a ``/tmp`` of its own; process, user, mount, network and IPC
namespaces are new, the environment is only what is given, and capabilities are dropped. What a
command writes to its output is cut at a limit, and its process group ends with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from hq.model.ran import Ran

MAX_OUTPUT: Final = 1 << 20
_PROGRAM: Final = "bwrap"


class Sandbox:
    """Runs commands in the tree at ``rootfs``."""

    def __init__(self, rootfs: str) -> None:
        self._rootfs = rootfs

    def run(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> Ran:
        """Runs ``command``; a missing program gives the code that bubblewrap gives."""
        arguments = [_PROGRAM, "--ro-bind", self._rootfs, "/", *_SHUT, "--chdir", "/", "--clearenv"]
        for name, value in sorted(env.items()):
            arguments += ["--setenv", name, value]
        return _run([*arguments, "--", *command], timeout)


_SHUT: Final = (
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - inside the sandbox
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)


def why_not() -> str:
    """Why no sandbox can be made on this machine, or empty."""
    if shutil.which(_PROGRAM) is None:
        return "bubblewrap (bwrap) is not installed"
    done = _run([_PROGRAM, "--ro-bind", "/", "/", *_SHUT, "--", "true"], 60)
    if done.code:
        return f"bubblewrap makes no sandbox here: {' '.join(done.output.split())[:200]}"
    return ""


def _run(command: Sequence[str], timeout: float) -> Ran:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": os.environ.get("PATH", os.defpath)},
        start_new_session=True,
    ) as process:
        try:
            data, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()  # --die-with-parent ends everything inside
            data, _ = process.communicate()
            return Ran(-1, data[-MAX_OUTPUT:].decode("utf-8", "replace"))
    return Ran(process.returncode, data[-MAX_OUTPUT:].decode("utf-8", "replace"))
