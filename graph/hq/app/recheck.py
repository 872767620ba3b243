"""The second build of ``hq build --check``, in a process that differs in all that must not count.

Another hash seed, time zone, locale, umask and working directory: what shows any of them in a
result comes out otherwise. The child is given what to build as JSON on standard input and answers
with its findings as JSON; it works offline, on the same store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from hq.app.check import Finding, check
from hq.app.session import Session, Settings
from hq.model.errors import BuildError, HqError, InfrastructureError

_OTHER: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "TZ": "Pacific/Kiritimati",
}
_SEEDS: Final = ("1", "2")
_START: Final = "from hq.app.recheck import main; main()"


def environment(current: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: ``current`` with everything changed that must make no difference."""
    seed = _SEEDS[current.get("PYTHONHASHSEED") == _SEEDS[0]]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**current, **_OTHER, "PYTHONHASHSEED": seed, "PYTHONPATH": path}


def check_elsewhere(session: Session, pin: str) -> tuple[Finding, ...]:
    """Builds every node of a built pin again in another process. Raises ``HqError``."""
    settings = session.settings._replace(offline=True)
    request = json.dumps({"pin": pin, "settings": settings._asdict()})
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", _START],
        input=request,
        cwd="/",
        umask=0o077,
        env=environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise InfrastructureError(
            "the second build ended without an answer",
            details=[line for line in done.stderr.split("\n") if line.strip()][-6:],
        ) from None
    if "error" in answer:
        raise BuildError(
            "the second build failed where the first did not", details=answer["error"].split("\n")
        )
    return tuple(Finding(*row) for row in answer["findings"])


def main() -> None:
    """The child: reads the request, writes the answer."""
    request: Any = json.loads(sys.stdin.read())
    settings = Settings(**request["settings"])
    settings = settings._replace(images=tuple(settings.images))
    try:
        answer: dict[str, Any] = {"findings": _findings(settings, request["pin"])}
    except HqError as error:
        answer = {"error": error.render()}
    sys.stdout.write(json.dumps(answer))


def _findings(settings: Settings, pin: str) -> tuple[Finding, ...]:
    from hq.app.build import run_nodes
    from hq.execute.speculate import Quiet

    with Session(settings, lambda _: None) as session:
        spec = session.spec(pin)
        _, outcomes = run_nodes(session, spec, session.graph(spec), Quiet())
        return check(session, outcomes, Quiet())
