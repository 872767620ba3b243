"""Running the user's own pip, watching it, and reading what it says.

The user's indexes, proxies, certificates and credentials are pip's business: pip runs as a program
with the user's configuration and environment, and hq reads none of that. What went wrong is told
from pip's complete log (``--log``), which does not depend on how talkative the user made it.

On Linux pip is started through a line of Python that asks the kernel to kill it when hq dies,
however hq dies: a download must not go on into a directory that is not owned any more.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from hq.model.errors import InfrastructureError
from hq.transfer.process import DIE_WITH_PARENT, end

Trouble = Literal["hash", "absent", "denied", "space", "cut", "network", "other"]

_START = f"""{DIE_WITH_PARENT}
import runpy
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

_ENVIRONMENT = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_REQUIRE_VIRTUALENV": "0",
}

_TMP = "unpack"
_POLL = 0.1  # seconds
_LAST_LINES = 6

# In this order: a hash that does not match is certain, a missing file may have many reasons.
_TROUBLES: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    ("cut", re.compile(r"not enough bytes|IncompleteRead|IncompleteDownload|Connection broken")),
    ("hash", re.compile(r"DO NOT MATCH THE HASHES")),
    ("space", re.compile(r"No space left on device|Disk quota exceeded")),
    ("denied", re.compile(r"\b(401|403) (Client )?Error|HTTP error (401|403)\b")),
    (
        "network",
        re.compile(
            r"connection error:|Retrying \(Retry|\b5\d\d Server Error|HTTP error 5\d\d|Max retries"
            r"|[Tt]imed out|Timeout|Connection (refused|reset)|confirming the ssl|SSLError"
            r"|Name or service not known|Temporary failure in name resolution"
        ),
    ),
    ("absent", re.compile(r"No matching distribution found|HTTP error 404")),
)


class PipFailure(NamedTuple):
    """Why pip gave nothing. ``found``: the SHA-256 in hex of a wrong file, else empty."""

    trouble: Trouble
    lines: tuple[str, ...]
    found: str = ""


def find_pip() -> str:
    """A Python that has pip: hq's own, else the one on the path. Raises ``InfrastructureError``."""
    from importlib.util import find_spec
    from shutil import which

    if find_spec("pip") is not None:
        return sys.executable
    for name in ("python3", "python"):
        other = which(name)
        if other and _has_pip(other):
            return other
    raise InfrastructureError(
        "no pip was found to fetch wheels with",
        details=[f"looked in: {sys.executable}", "looked in: python3 and python on the path"],
        hint="run 'python -m ensurepip' with that Python, or give the wheel with --wheel FILE",
    )


def _has_pip(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import pip"], check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.returncode == 0


def download(
    python: str, folder: str, arguments: Sequence[str], progress: Callable[[int], None]
) -> str | PipFailure:
    """Runs ``pip download`` with ``arguments`` in the empty directory ``folder``.

    Returns the path of the one file that came, or why none did. ``progress`` gets the bytes so far
    from time to time; an exception that it raises, like Ctrl-C, ends pip first and then goes on.
    """
    status = _download(python, folder, arguments, progress, _largest)
    names = os.listdir(f"{folder}/files")
    if status == 0 and len(names) == 1:
        return f"{folder}/files/{names[0]}"
    return read_failure(_text(f"{folder}/output"), _text(f"{folder}/log"))


def download_all(
    python: str, folder: str, arguments: Sequence[str], progress: Callable[[int], None]
) -> None:
    """As ``download``, for many files, which are somewhere below ``folder`` then.

    ``progress`` gets the bytes of all files so far.
    """
    _download(python, folder, arguments, progress, _together)


def _download(
    python: str,
    folder: str,
    arguments: Sequence[str],
    progress: Callable[[int], None],
    measure: Callable[[str], int],
) -> int:
    for name in (_TMP, "files"):
        os.mkdir(f"{folder}/{name}")
    command = [
        python, "-c", _START, str(os.getpid()), "download", "--no-deps", "--only-binary", ":all:",
        "--ignore-requires-python", "--log", f"{folder}/log", "--dest", f"{folder}/files",
        *arguments,
    ]  # fmt: skip
    return _run(command, folder, lambda: progress(measure(folder)))


def _run(command: Sequence[str], folder: str, tick: Callable[[], None]) -> int:
    environment = {**os.environ, **_ENVIRONMENT, "TMPDIR": f"{folder}/{_TMP}"}
    with open(f"{folder}/output", "wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        while True:
            try:
                return process.wait(_POLL)
            except subprocess.TimeoutExpired:
                tick()
                if not threading.main_thread().is_alive():  # Ctrl-C reaches that one only
                    raise KeyboardInterrupt from None
    finally:
        end(process)


def _largest(folder: str) -> int:
    """The size of the largest file that pip has written: the wheel on its way."""
    return max((size for part in (_TMP, "files") for size in _sizes(f"{folder}/{part}")), default=0)


def _together(folder: str) -> int:
    """The size of all wheels so far. At the end pip copies them from one folder to the other."""
    return max(sum(_sizes(f"{folder}/{part}")) for part in (_TMP, "files"))


def _sizes(folder: str) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield os.stat(f"{place}/{name}").st_size


def read_failure(output: str, log: str) -> PipFailure:
    """What pip's output and log say of a failure."""
    both = f"{output}\n{log}"
    found = re.search(r"Got\s+([0-9a-f]{64})", both)
    return PipFailure(_trouble(both), _last_lines(output), found[1] if found else "")


def _trouble(text: str) -> Trouble:
    for name, sign in _TROUBLES:
        if sign.search(text):
            return name
    return "other"


def _last_lines(output: str) -> tuple[str, ...]:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("ERROR", "WARNING"))]
    if lines and "ERROR: Exception:" in telling:  # a traceback of pip's; its last line says why
        telling = [*(line for line in telling if line != "ERROR: Exception:"), lines[-1]]
    return tuple((telling or lines)[-_LAST_LINES:])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(8 << 20)
    except OSError:
        return ""
