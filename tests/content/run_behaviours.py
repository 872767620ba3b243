"""Observe behaviours of one tree; run by the interpreter that has torch, with the tree on its path.

``python run_behaviours.py TOPIC...`` prints one JSON object on its last line: for each topic what
``behaviours/<topic>.py`` observed, or ``{"error": TEXT}``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def observe(topic: str) -> Any:
    file = Path(__file__).parent / "behaviours" / f"{topic}.py"
    spec = importlib.util.spec_from_file_location(f"behaviour_{topic}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        return module.observe()
    except Exception:  # noqa: BLE001  # the report of one topic must not cost the others
        return {"error": traceback.format_exc()}


def main(topics: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parent / "behaviours"))
    print(json.dumps({topic: observe(topic) for topic in topics}))


if __name__ == "__main__":
    main(sys.argv[1:])
