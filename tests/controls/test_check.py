"""``hq build --check`` builds each node once more and names what came out otherwise."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from helpers.project import SampleProject
from hq.app.build import build
from hq.app.check import Finding, check, refusal
from hq.app.session import Session, settings_from
from hq.execute.speculate import Quiet
from hq.model.tree import Entry, make_delta
from hq.rules.context import Context, Made, Rule
from hq.rules.table import RULES


@pytest.fixture
def session(built: SampleProject) -> Iterator[Session]:
    settings = settings_from(
        str(built.root), store=str(built.store), output="", offline=True, jobs=1, environment={}
    )
    with Session(settings, pytest.fail) as opened:
        yield opened


class Rules(dict[str, Rule]):
    """The real table with one kind changed."""

    def __init__(self, kind: str, rule: Rule) -> None:
        super().__init__(RULES)
        self[kind] = rule


def findings(session: Session, rules: Mapping[str, Rule] = RULES) -> tuple[Finding, ...]:
    report = build(session, "", Quiet())
    return check(session, report.outcomes, Quiet(), rules)


def test_a_deterministic_build_has_no_finding(session: Session) -> None:
    before = sorted(session.disk.root.encode() and _blobs(session))
    assert findings(session) == ()
    assert sorted(_blobs(session)) == before


def _blobs(session: Session) -> Iterator[str]:
    import os

    for _, _, names in os.walk(session.disk.root + "/cas"):
        yield from names


def test_the_command(built: SampleProject) -> None:
    done = built.run("build", "--check")
    assert done.returncode == 0
    assert done.stderr == "built 13 nodes once more: each gave the same result\n"


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_a_time_in_a_layer_is_named_by_file(project: SampleProject, compression: str) -> None:
    image = project.read("images/demo.toml")
    project.write(
        "images/demo.toml", image.replace("[config]", f'compression = "{compression}"\n[config]')
    )
    settings = settings_from(
        str(project.root), store=str(project.store), output="", offline=True, jobs=1, environment={}
    )

    def later(context: Any) -> Made:
        context._node = context._node._replace(params={**context.params, "mtime": 5})
        return RULES["layer"](context)

    with Session(settings, pytest.fail) as opened:
        found = findings(opened, Rules("layer", later))
    assert {finding.node for finding in found} == {
        "layer:wheel",
        "layer:series",
        "layer:envs",
        "layer:over",
    }
    assert Finding("layer:envs", "opt/demo/vllm/envs.py", "mtime 0, then 5") in found


def test_changed_bytes_are_named_by_node_file_and_line(session: Session) -> None:
    counter = itertools.count()

    def odd(context: Context) -> Made:
        made = RULES["patch"](context)
        if context.node != "patch:second":
            return made
        path, entry = made.delta[0]
        assert entry is not None
        text = f"line one, {next(counter)}\nline 2\n".encode()
        ref = context.store.put(text)
        return made._replace(delta=make_delta({path: Entry("f", ref.digest, ref.size)}))

    found = findings(session, Rules("patch", odd))
    assert found == (Finding("patch:second", "vllm/two.py", "line 1: line 1 | line one, 0"),)
    assert refusal(found).render() == (
        "error: one node gave another result when built again\n"
        "  node: patch:second\n"
        "  patch:second: vllm/two.py: line 1: line 1 | line one, 0\n"
        "  help: the same inputs must give the same bytes; this is a fault of hq or of the machine"
    )


def test_values_and_blobs_are_compared_too(session: Session) -> None:
    def odd(context: Context) -> Made:
        made = RULES["wheel"](context)
        return made._replace(
            blobs={**made.blobs, "extra": context.store.put(b"x")}, values={"members": 0}
        )

    found = findings(session, Rules("wheel", odd))
    assert [(one.what, one.how) for one in found] == [
        ("blob extra", "it was made only once"),
        ("value members", "10, then 0"),
    ]


def test_a_failure_of_the_second_build_names_its_node(session: Session) -> None:
    from hq.model.errors import BuildError

    def broken(context: Context) -> Made:
        raise BuildError("it does not work any more")

    with pytest.raises(BuildError) as caught:
        findings(session, Rules("audit", broken))
    assert caught.value.render() == "error: it does not work any more\n  node: audit"


def test_the_second_build_differs_in_all_that_must_not_count() -> None:
    from hq.app.recheck import environment

    first = environment({"PYTHONHASHSEED": "1", "TZ": "UTC", "A": "b"})
    assert (first["PYTHONHASHSEED"], first["TZ"], first["A"]) == ("2", "Pacific/Kiritimati", "b")
    assert environment({})["PYTHONHASHSEED"] == "1"


def customized(built: SampleProject, expression: str) -> subprocess.CompletedProcess[str]:
    """Builds with a ``patch`` rule that puts ``expression`` into a file."""
    folder = built.root.parent / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import hq.rules.table as table\n"
        "from hq.model.tree import Entry, make_delta\n\n"
        "real = table.RULES\n\n\n"
        "def odd(context):\n"
        "    made = real['patch'](context)\n"
        "    if context.node != 'patch:second':\n"
        "        return made\n"
        f"    ref = context.store.put(('x\\n' + str({expression}) + '\\n').encode())\n"
        "    return made._replace(\n"
        "        delta=make_delta({'vllm/two.py': Entry('f', ref.digest, ref.size)})\n"
        "    )\n\n\n"
        "table.RULES = {**{kind: real[kind] for kind in real}, 'patch': odd}\n"
    )
    built.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    path = f"{folder}{os.pathsep}{built.environment()['PYTHONPATH']}"
    return built.run("build", "--check", "-q", env={"PYTHONPATH": path, "PYTHONHASHSEED": "1"})


@pytest.mark.parametrize(
    "expression",
    [
        "hash('a text') % 1000",
        "__import__('time').timezone",
        "oct(__import__('os').umask(0o22))",
        "__import__('os').getcwd()",
    ],
)
def test_what_depends_on_the_process_is_found(built: SampleProject, expression: str) -> None:
    done = customized(built, expression)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: one node gave another result when built again\n  node: patch:second\n"
        "  patch:second: vllm/two.py: line 2: "
    )


def test_a_rule_that_does_not_is_not(built: SampleProject) -> None:
    done = customized(built, "'the same'")
    assert done.returncode == 0, done.stderr


def test_a_child_without_an_answer(built: SampleProject) -> None:
    folder = built.root.parent / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('TZ') == 'Pacific/Kiritimati':\n"
        "    print('no', file=sys.stderr)\n    os._exit(9)\n"
    )
    path = f"{folder}{os.pathsep}{built.environment()['PYTHONPATH']}"
    done = built.run("build", "--check", "-q", env={"PYTHONPATH": path})
    assert done.returncode == 3
    assert done.stderr == "error: the second build ended without an answer\n  no\n"
