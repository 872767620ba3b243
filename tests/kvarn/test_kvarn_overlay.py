"""The overlay as data: its files, patches, facts and knobs belong together."""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest
from kvarnload import OPS, ROOT

PINS = ("0.29.0", "0.28.0")
FILES = os.path.join(ROOT, "files")


def python_files() -> list[str]:
    found = [os.path.join(at, name) for at, _, names in os.walk(FILES) for name in names]
    return sorted(path for path in found if path.endswith(".py"))


def read(*parts: str) -> str:
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def trees() -> list[tuple[str, ast.Module]]:
    return [(path, ast.parse(read(path))) for path in python_files()]


def overlay() -> dict[str, object]:
    return tomllib.loads(read("overlay.toml"))


def names(pin: str) -> list[str]:
    lines = read("patches", f"series-{pin}").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_declaration_has_a_series_for_every_pin() -> None:
    declared = overlay()
    assert declared["schema"] == "hq.overlay/1"
    assert list(declared["pins"]) == list(PINS)
    for pin in PINS:
        assert declared["pins"][pin]["series"] == f"series-{pin}"
        assert names(pin) == [f"kvarn-{pin}.patch", f"kvarn-v2-runner-{pin}.patch"]


@pytest.mark.parametrize("pin", PINS)
def test_every_patch_says_what_it_is(pin: str) -> None:
    for name in names(pin):
        header, _, rest = read("patches", name).partition("\n\n")
        fields = dict(line.split(": ", 1) for line in header.splitlines())
        assert set(fields) == {
            "Subject",
            "Origin",
            "Forwarded",
            "Kind",
            "Cut-Against",
            "Retires-When",
            "Last-Update",
        }
        assert fields["Cut-Against"] == f"vllm {pin}"
        prose, rule, _ = rest.partition("\n---\n")
        assert rule
        assert len(prose) > 200


def test_each_check_names_a_declared_fact_and_reads_a_file() -> None:
    facts = overlay()["facts"]
    own = {os.path.relpath(path, FILES) for path in python_files()}
    patched = {
        match
        for name in names("0.29.0")
        for match in re.findall(r"^\+\+\+ b/(\S+)", read("patches", name), re.MULTILINE)
    }
    series = {
        match
        for path in Path(ROOT, "..", "patches").glob("*.patch")
        for match in re.findall(r"^\+\+\+ b/(\S+)", path.read_text(), re.MULTILINE)
    }
    for check in facts["check"]:
        assert check["fact"] in facts
        assert check["path"] in own | patched | series
        assert check["what"]


def test_no_module_reads_the_environment_but_through_envs() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                pytest.fail(f"{path}:{node.lineno} reads the environment itself")


def test_the_modules_read_exactly_the_registered_knobs() -> None:
    text = "\n".join(read(path) for path in python_files()) + read(
        "patches", "kvarn-v2-runner-0.29.0.patch"
    )
    used = set(re.findall(r"\benvs\.(KVARN_[A-Z0-9_]+)", text))
    registry = os.path.join(ROOT, "..", "patches", "knobs.toml")
    with open(registry, "rb") as file:
        knobs = {knob["name"] for knob in tomllib.load(file)["knob"]}
    assert used == {name for name in knobs if name.startswith("KVARN_")}
    assert len(used) == 20


def test_the_method_is_apart_from_the_engine() -> None:
    for path, tree in trees():
        if not path.startswith(OPS):
            continue
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            assert not any(name.split(".")[0] == "vllm" for name in modules), path
