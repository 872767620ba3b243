"""What hq says about a build: plan, why, graph, provenance, store; for people and as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from helpers.project import SampleProject, diff, patch
from helpers.unpack import blob, manifest

NODES = (
    *("wheel:demo", "patch:first", "patch:second", "patch:third", "patch:fourth", "envs"),
    *("overlay:over", "audit", "layer:wheel", "layer:series", "layer:envs", "layer:over"),
    "image:demo",
)


def said(project: SampleProject, *arguments: str, code: int = 0) -> str:
    """What a command prints; nothing may stand on standard error."""
    done = project.run(*arguments)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def plan(project: SampleProject) -> dict[str, dict[str, Any]]:
    """The plan's rows by node."""
    document = json.loads(said(project, "plan", "--json"))
    assert set(document) == {"schema", "pin", "nodes", "failure"}
    assert (document["schema"], document["pin"]) == ("hq.plan/1", "1.0")
    return {row["name"]: row for row in document["nodes"]}


def test_01_a_plan_before_the_first_build(project: SampleProject) -> None:
    assert said(project, "plan") == (
        "run     wheel:demo    it was never built for this project\n"
        "unknown patch:first   it waits for wheel:demo\n"
        "unknown patch:second  it waits for wheel:demo\n"
        "unknown patch:third   it waits for wheel:demo, patch:first\n"
        "unknown patch:fourth  it waits for wheel:demo\n"
        "unknown envs          it waits for wheel:demo\n"
        "unknown overlay:over  it waits for wheel:demo\n"
        "unknown audit         it waits for patch:first and 5 more\n"
        "unknown layer:wheel   it waits for wheel:demo\n"
        "unknown layer:series  it waits for patch:first, patch:second, patch:third, patch:fourth\n"
        "unknown layer:envs    it waits for envs\n"
        "unknown layer:over    it waits for wheel:demo and 6 more\n"
        "unknown image:demo    it waits for audit, layer:wheel, layer:series, layer:envs, "
        "layer:over\n"
        "pin 1.0, 13 nodes: 1 to run, 12 unknown until those have run\n"
    )
    waits = {row["name"]: row["waits_for"] for row in plan(project).values()}
    assert waits["wheel:demo"] == []
    assert waits["patch:third"] == ["wheel:demo", "patch:first"]
    assert waits["audit"] == [
        *("patch:first", "patch:second", "patch:third", "patch:fourth", "envs", "overlay:over")
    ]
    assert list((project.store / "ac").rglob("*")) == []


def test_02_a_plan_after_a_build(built: SampleProject) -> None:
    rows = plan(built)
    assert tuple(rows) == NODES
    assert {row["action"] for row in rows.values()} == {"reuse"}
    assert said(built, "plan").endswith("pin 1.0, 13 nodes: 13 to reuse\n")


CHANGED = """\
reuse   wheel:demo
run     patch:first   patches/first.patch changed
                        line 18:
                        -+line ten
                        ++line TEN
reuse   patch:second
run     patch:third   vllm/one.py as patch:first left it changed
                        line 10:
                        -line ten
                        +line TEN
reuse   patch:fourth
reuse   envs
reuse   overlay:over
reuse   audit
reuse   layer:wheel
run     layer:series  the files of patch:first changed
                      the files of patch:third changed
reuse   layer:envs
reuse   layer:over
run     image:demo    layer of layer:series changed
pin 1.0, 13 nodes: 4 to run, 9 to reuse
"""


def test_03_a_plan_names_input_file_and_line(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    assert said(built, "plan") == CHANGED
    assert plan(built)["patch:first"] == {
        "name": "patch:first",
        "action": "run",
        "reasons": [
            {
                "text": "patches/first.patch changed",
                "details": ["line 18:", "-+line ten", "++line TEN"],
            }
        ],
        "waits_for": [],
    }


def test_04_a_plan_is_what_the_build_then_does(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    built.replace("patches/knobs.toml", "default = 3", "default = 4")
    built.write("over/files/vllm/extra/__init__.py", "EXTRA = 2\n")
    rows = plan(built)
    runs = [name for name, row in rows.items() if row["action"] == "run"]
    before = sorted(path.name for path in (built.store / "cas").rglob("*"))
    assert runs == [
        *("patch:first", "patch:third", "envs", "overlay:over"),
        *("layer:series", "layer:envs", "layer:over", "image:demo"),
    ]
    assert rows["envs"]["reasons"][0]["text"] == (
        "registry.knobs.VLLM_FORK_LEVEL.default changed from '3' to '4'"
    )
    # A plan keeps nothing of what it tried.
    assert sorted(path.name for path in (built.store / "cas").rglob("*")) == before
    assert built.build()["built"] == runs


def test_05_a_plan_that_would_fail(built: SampleProject) -> None:
    built.replace("patches/third.patch", " line 39\n", " line 39 and more\n")
    done = built.run("plan")
    assert done.returncode == 1
    assert done.stderr.startswith("error: patches/third.patch does not apply: hunk 1 of vllm/one.")
    assert "fail    patch:third   patches/third.patch changed\n" in done.stdout
    assert "unknown layer:series  it waits for patch:third\n" in done.stdout
    assert done.stdout.endswith(
        "pin 1.0, 13 nodes: 8 to reuse, 4 unknown until those have run, 1 failing\n"
    )
    as_json = json.loads(built.run("plan", "--json").stdout)
    assert as_json["failure"] == done.stderr.removesuffix("\n")


def test_05_many_rows_alike_are_one(built: SampleProject) -> None:
    names = []
    for number in range(12):
        built.write(f"patches/n{number:02}.patch", patch("One", diff(f"n{number}.py", "", "X\n")))
        names.append(f"n{number:02}.patch\n")
    built.write("patches/series", built.read("patches/series") + "".join(names))
    new = "run     patch:… (12 nodes)  it was never built for this project\n"
    assert new in said(built, "plan")
    assert said(built, "plan", "--all").count("it was never built for this project\n") == 12
    series = next(line for line in said(built, "graph").splitlines() if "layer:series " in line)
    assert series.endswith(" and 7 more")
    assert series.count(", ") == 7
    assert said(built, "graph", "--format", "dot").count('-> "layer:series"') == 15
    built.build()
    assert "reuse   patch:… (16 nodes)\nreuse   envs\n" in said(built, "plan")
    rows = plan(built)
    assert len(rows) == said(built, "plan", "--all").count("\nreuse ") + 1 == 25


WHY = """\
patch:first ran the last time because:
  patches/first.patch changed
    line 18:
    -+line ten
    ++line TEN
"""


def test_06_why(built: SampleProject) -> None:
    assert said(built, "why", "patch:first").startswith(
        "patch:first ran the last time because:\n  it was never built for this project\n"
    )
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    built.build()
    assert said(built, "why", "patch:first").startswith(WHY)
    assert said(built, "why", "layer:series").startswith(
        "layer:series ran the last time because:\n  the files of patch:first changed\n"
        "  the files of patch:third changed\n"
    )
    # A build that runs nothing does not wipe out the reason.
    built.write("build.toml", "# a remark\n" + built.read("build.toml"))
    built.build()
    assert said(built, "why", "patch:first").startswith(WHY)
    record = json.loads(said(built, "why", "patch:first", "--json"))
    assert record["schema"] == "hq.record/1"
    assert (record["node"], record["kind"], record["version"]) == ("patch:first", "patch", 1)
    assert record["reasons"][0]["details"] == ["line 18:", "-+line ten", "++line TEN"]
    assert [one["what"] for one in record["inputs"]] == [
        "patches/first.patch",
        "vllm/one.py as wheel:demo left it",
    ]


def test_07_why_a_lost_result_was_made_again(built: SampleProject) -> None:
    record = json.loads(said(built, "why", "layer:envs", "--json"))
    digest = record["result"]["blobs"]["blob"][0].removeprefix("sha256:")
    (built.store / "cas/sha256" / digest[:2] / digest).unlink()
    built.build()
    assert said(built, "why", "layer:envs").startswith(
        "layer:envs ran the last time because:\n  its result is no longer in the store\n"
    )


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            "patch:firs",
            "error: there is no node 'patch:firs'\n  help: did you mean 'patch:first'?\n",
        ),
        ("zzz", "error: there is no node 'zzz'\n  help: see hq plan\n"),
        (
            "series",
            "error: series is a group, not a node\n"
            "  its nodes: patch:first, patch:second, patch:third, patch:fourth\n"
            "  help: ask for one of them\n",
        ),
    ],
)
def test_08_why_of_no_node(built: SampleProject, node: str, message: str) -> None:
    done = built.run("why", node)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_09_why_before_a_build(project: SampleProject) -> None:
    done = project.run("why", "envs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: envs was never built here\n  help: run hq build first\n"


def test_10_the_graph_as_text(project: SampleProject) -> None:
    # No build, no wheel is needed for it.
    assert said(project, "graph") == (
        "wheel:demo\n"
        "patch:first   wheel:demo\n"
        "patch:second  wheel:demo\n"
        "patch:third   patch:first\n"
        "patch:fourth  wheel:demo\n"
        "envs          wheel:demo\n"
        "overlay:over  wheel:demo\n"
        "audit         envs, overlay:over, patch:fourth, patch:second, patch:third\n"
        "layer:wheel   wheel:demo\n"
        "layer:series  patch:fourth, patch:second, patch:third\n"
        "layer:envs    envs\n"
        "layer:over    envs, overlay:over, patch:fourth, patch:second, patch:third\n"
        "image:demo    audit, layer:envs, layer:over, layer:series, layer:wheel\n"
    )


@pytest.mark.system
def test_11_graphviz_reads_the_dot(project: SampleProject) -> None:
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("graphviz is not installed")
    text = said(project, "graph", "--format", "dot")
    drawn = subprocess.run([dot, "-Tplain"], input=text, check=True, capture_output=True, text=True)
    kinds = [line.split()[0] for line in drawn.stdout.splitlines()]
    assert kinds.count("node") == 13
    assert kinds.count("edge") == text.count("->")


def test_12_mermaid_and_svg_have_every_node(project: SampleProject) -> None:
    mermaid = said(project, "graph", "--format", "mermaid")
    assert mermaid.startswith("flowchart LR\n")
    assert all(f'["{node}"]' in mermaid for node in NODES)
    svg = ET.fromstring(said(project, "graph", "--format", "svg"))
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert set(NODES) <= set(texts)


def test_13_provenance(built: SampleProject) -> None:
    statement = json.loads(said(built, "provenance", "demo"))
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    manifest_digest = built.first["images"][0]["manifest"]
    assert statement["subject"] == [
        {"name": "demo:1.0", "digest": {"sha256": manifest_digest.removeprefix("sha256:")}}
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"pin": "1.0", "image": "demo", "epoch": 0}
    dependencies = {
        one["name"]: one["digest"]["sha256"] for one in definition["resolvedDependencies"]
    }
    wheel = next(built.links.glob("*.whl")).read_bytes()
    assert dependencies.pop("demo-1.0-py3-none-any.whl") == hashlib.sha256(wheel).hexdigest()
    assert sorted(dependencies) == [
        "over/files/vllm/extra/__init__.py",
        "over/patches/register.patch",
        *(f"patches/{name}.patch" for name in ("first", "fourth", "second", "third")),
    ]
    for path, digest in dependencies.items():
        assert hashlib.sha256((built.root / path).read_bytes()).hexdigest() == digest
    details = statement["predicate"]["runDetails"]
    assert details["builder"]["id"]
    assert [one["name"] for one in details["byproducts"]] == list(NODES)


def test_14_provenance_names_the_commit_and_the_image_does_not(built: SampleProject) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run(
            [*git, *command], cwd=built.root, check=True, env={"PATH": os.environ["PATH"]}
        )
    built.write("build.toml", "# a remark\n" + built.read("build.toml"))
    again = built.build()
    assert again["images"] == built.first["images"]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=built.root, check=True, capture_output=True, text=True
    ).stdout.strip()
    statement = json.loads(said(built, "provenance", "demo"))
    first = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert (first["name"], first["digest"]) == ("project", {"gitCommit": head})
    everything = b"".join(path.read_bytes() for path in built.layout().rglob("*") if path.is_file())
    assert head.encode() not in everything


def test_15_provenance_of_no_image(project: SampleProject) -> None:
    done = project.run("provenance", "demi")
    assert done.returncode == 2
    assert done.stderr == (
        "error: there is no image 'demi' in build.toml\n  at: build.toml:3\n  declared: demo\n"
    )
    done = project.run("provenance", "demo")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: demo 1.0 is not built in {project.root}/dist\n"
        "  help: run hq build --image demo first\n"
    )


def test_16_a_record_for_every_node(built: SampleProject) -> None:
    records = json.loads((built.root / "dist/demo-1.0.records.json").read_text())
    assert tuple(records) == NODES
    for name, record in records.items():
        assert set(record) == {
            *("schema", "node", "kind", "version", "key", "params", "inputs", "result"),
            *("reasons", "warnings", "tool"),
        }
        assert record["node"] == name
        assert record["reasons"]
        assert record["tool"].startswith("hq ")
    # No path, user or time of this machine.
    text = json.dumps(records)
    assert str(built.root.parent) not in text
    assert "/home" not in text


def test_17_build_as_json(built: SampleProject) -> None:
    document = built.build()
    assert set(document) == {"schema", "pin", "images", "nodes", "built", "seconds"}
    assert document["schema"] == "hq.build/1"
    assert set(document["images"][0]) == {
        *("name", "role", "pin", "image_id", "manifest", "layout", "tag")
    }
    assert isinstance(document["seconds"], float)
    assert document["images"][0]["layout"] == str(built.layout())
    assert blob(built.layout(), document["images"][0]["image_id"]).is_file()
    assert manifest(built.layout())["config"]["digest"] == document["images"][0]["image_id"]


def test_18_data_and_talk_are_apart(project: SampleProject) -> None:
    done = project.run("build")
    assert done.stdout.splitlines()[0] == "demo 1.0 (image)"
    assert done.stdout.splitlines()[-1].startswith("13 nodes: 13 built, 0 reused, in ")
    assert [line.split()[:2] for line in done.stderr.splitlines()] == [
        ["built", name] for name in [line.split()[1] for line in done.stderr.splitlines()]
    ]
    assert sorted(line.split()[1] for line in done.stderr.splitlines()) == sorted(NODES)
    quiet = project.run("build", "-q", "-j1", "--output", "elsewhere")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def on_terminal(project: SampleProject, variables: dict[str, str]) -> str:
    """What a build writes to a terminal."""
    import pty

    done = []

    def read(fd: int) -> bytes:
        data = os.read(fd, 1024)
        done.append(data)
        return data

    pid, fd = pty.fork()
    if pid == 0:
        environment = project.environment(TERM="xterm", **variables)
        os.chdir(project.root)
        os.execve("/usr/bin/env", ["env", *command()], environment)
    try:
        while read(fd):
            pass
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(fd)
    return b"".join(done).decode()


def command() -> list[str]:
    import sys

    return [sys.executable, "-m", "hq", "build", "-j1"]


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_19_colours_on_a_terminal_unless_unwanted(project: SampleProject) -> None:
    assert "\x1b[32mbuilt\x1b[0m wheel:demo" in on_terminal(project, {})
    shutil.rmtree(project.store / "ac")
    shutil.rmtree(project.store / "projects")
    plain = on_terminal(project, {"NO_COLOR": "1"})
    assert "built wheel:demo" in plain
    assert "\x1b[3" not in plain


def test_20_store_commands(built: SampleProject) -> None:
    stats = json.loads(said(built, "store", "stats", "--json"))
    assert stats["store"] == str(built.store)
    assert stats["results"] == 13
    assert stats["temporary"] == 0
    verified = json.loads(said(built, "store", "verify", "--json"))
    assert verified["problems"] == []
    assert verified["blobs"] == stats["blobs"]
    kept = json.loads(said(built, "store", "gc", "--json"))
    assert kept["results"] == 0
    done = built.run("store", "gc", "--max-size", "lots")
    assert done.returncode == 2
    assert done.stderr == ("error: --max-size: expected a size such as 500M or 20G, found 'lots'\n")


def test_21_help_and_version(project: SampleProject) -> None:
    assert said(project, "--version").startswith("hq ")
    text = said(project, "--help")
    for name in ("build", "plan", "why", "graph", "series", "store"):
        assert f"    {name} " in text
    done = project.run()
    assert done.returncode == 2
    done = project.run("nothing")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
