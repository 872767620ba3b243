"""``overlay``: new files, then patches after the whole series, then the declared facts.

An overlay stops the build at the first thing that does not fit: a file that is already there and
not listed under ``replaces``, a patch that does not apply whole, a fact that does not hold.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, cast

from hq.model.action import Json
from hq.model.errors import BuildError, Location
from hq.patchwork.apply import File
from hq.patchwork.report import patch_report
from hq.rules.context import Context, Made
from hq.rules.facts import check, parse
from hq.rules.patching import Tree


def run(context: Context) -> Made:
    """The delta; blob ``report``; value ``reads``."""
    tree = Tree(context)
    _copy(context, tree)
    reports = [_patch(tree, patch) for patch in cast("list[Any]", context.params["patches"])]
    facts = _facts(context, tree)
    document = {"files": context.params["files"], "patches": reports, "facts": facts}
    report = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return tree.made({"report": context.store.put(report)})


def _copy(context: Context, tree: Tree) -> None:
    replaces = cast("list[str]", context.params["replaces"])
    programs = cast("list[str]", context.params.get("executable", []))
    for path in context.names("new:"):
        source = context.source(f"new:{path}").path
        standing = tree.read(path)
        data = context.source_bytes(f"new:{path}")
        if standing is not None and path not in replaces:
            raise BuildError(
                f"the overlay would overwrite {path}",
                where=Location(source),
                details=[_standing(standing, data)],
                hint="give the file another name, or list the path in overlay.toml: files.replaces",
            )
        above = context.file(f"file:{path}").above
        if above is not None:
            raise BuildError(
                f"the overlay cannot put a file at {path}: {above[0]} is no directory",
                where=Location(source),
            )
        tree.write(path, File("x" if path in programs else "f", data))


def _standing(standing: File, data: bytes) -> str:
    if standing.kind == "d":
        return "a directory stands there"
    same = "equal to the overlay's" if standing.data == data else "with another content"
    return f"a file stands there already, {same}"


def _patch(tree: Tree, patch: Mapping[str, Any]) -> Json:
    outcome = tree.apply(
        f"patch:{patch['name']}", strip=patch["strip"], reverse=bool(patch["reverse"])
    )
    return cast("Json", patch_report(outcome))


def _facts(context: Context, tree: Tree) -> list[Json]:
    modules: dict[str, ast.Module] = {}
    held: list[Json] = []
    for fact in cast("list[dict[str, Any]]", context.params["facts"]):
        path = fact["path"]
        if path not in modules:
            modules[path] = _module(fact, path, tree)
        found = check(fact["kind"], fact["params"], modules[path])
        if found is not None:
            raise _refuted(fact, found)
        held.append(fact["what"])
    return held


def _module(fact: Mapping[str, Any], path: str, tree: Tree) -> ast.Module:
    file = tree.read(path)
    if file is None or file.kind == "d":
        raise _refuted(fact, "there is no such file")
    module = parse(file.data)
    if isinstance(module, str):
        raise _refuted(fact, f"it is no Python module: {module}")
    return module


def _refuted(fact: Mapping[str, Any], found: str) -> BuildError:
    params = ", ".join(f"{name} = {value!r}" for name, value in sorted(fact["params"].items()))
    return BuildError(
        f"the declared fact {fact['fact']!r} does not hold: {fact['what']}",
        where=Location(fact["path"]),
        details=[f"check: {fact['kind']}, {params}", f"found: {found}"],
        hint="mend the overlay's files or patches, or the fact in overlay.toml if it is wrong",
    )
