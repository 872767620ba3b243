"""``patch``: one patch of a series, applied to the files it touches as those before left them."""

from __future__ import annotations

import json

from hq.patchwork.report import patch_report
from hq.rules.context import Context, Made
from hq.rules.patching import Tree


def run(context: Context) -> Made:
    """The delta; blob ``report``; value ``reads``. Raises ``BuildError`` if it does not apply."""
    tree = Tree(context)
    strip, reverse = context.params["strip"], context.params["reverse"]
    assert isinstance(strip, int)
    outcome = tree.apply("patch", strip=strip, reverse=bool(reverse))
    report = json.dumps(patch_report(outcome), sort_keys=True, separators=(",", ":"))
    return tree.made({"report": context.store.put(report.encode())})
