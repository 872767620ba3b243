"""Launchers and profiles: what they set, how it is checked, and the layer they make."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.project import SampleProject
from hq.app.imagescan import LayerRef, scan
from hq.knobs.exports import exported
from hq.knobs.exports import settings as looked_at
from hq.oci.remote import ImageManifest, read_diff_ids, read_document
from hq.store.source import LayoutSource

ROOT = Path(__file__).resolve().parent.parent.parent
SERVE = ROOT / "images" / "launch" / "serve"
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]

LAUNCHER = """\
#!/bin/sh
# export VLLM_COMMENT=1
if [ "${LEVEL:-}" ]; then export VLLM_FORK_LEVEL="$LEVEL"; fi
exec python3 "$@"
"""
PROFILE = """\
schema = "hq.profile/1"
name = "one"
image = "demo"
what = "words"
env = { LEVEL = "3" }
"""


def launching(project: SampleProject, launcher: str = LAUNCHER, profile: str = PROFILE) -> None:
    """Gives the project a launcher and a profile."""
    project.write("images/launch/serve", launcher)
    project.write("images/launch/data.txt", "words\n")
    project.write("images/profiles/one.toml", profile)
    project.replace(
        "build.toml",
        'images = ["images/demo.toml"]\n',
        'images = ["images/demo.toml"]\nprofiles = "images/profiles"\n',
    )
    project.write(
        "images/demo.toml",
        project.read("images/demo.toml") + '\n[launch]\nfiles = { "/bin/serve" = '
        '"images/launch/serve", "/share/data.txt" = "images/launch/data.txt" }\n',
    )
    project.replace(
        "patches/knobs.toml",
        "compile-key = false\n",
        'compile-key = false\nexported-by = ["images/launch/serve"]\n',
    )


# What a script exports.


def test_exports_are_found_where_commands_begin() -> None:
    script = (
        "export A=1\n  export B='x y' C\n# export D=1\nif x; then export E=\"$F\"; fi\n"
        "echo export G\nx && export H=1\ncase $X in y) export I=1 ;; esac\n"
    )
    assert list(exported(script)) == [
        ("A", 1),
        ("B", 2),
        ("C", 2),
        ("E", 4),
        ("H", 6),
        ("I", 7),
    ]
    assert looked_at(script) == {"F", "X"}


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"\A[A-Z][A-Z0-9_]{1,8}\Z"),
        st.text(st.sampled_from("ab c;#'\"$"), max_size=8),
        max_size=4,
    )
)
def test_what_a_shell_exports_is_what_is_found(values: dict[str, str]) -> None:
    import shlex

    script = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in values.items())
    assert [name for name, _ in exported(script)] == list(values)


# The layer.


def test_launchers_are_a_layer_of_their_own(project: SampleProject) -> None:
    project.build()
    launching(project)
    made = project.build()
    assert [name for name in made["built"] if "launch" in name] == ["layer:launch/demo"]
    layout = LayoutSource(str(project.layout()))
    manifest = read_document(layout.read(layout.manifest()), "m")
    assert isinstance(manifest, ImageManifest)
    diff_ids = read_diff_ids(layout.read(manifest.config.ref), "c")
    layer = LayerRef(manifest.layers[-1].ref, manifest.layers[-1].media_type, diff_ids[-1])
    found = scan(layout, [layer], lambda _: True)
    assert [(path, leaf.kind) for path, leaf in found.stack.files()] == [
        ("bin/serve", "x"),
        ("share/data.txt", "f"),
    ]
    assert found.text("bin/serve") == LAUNCHER.encode()
    done = project.run("verify", "demo")
    assert done.returncode == 0, done.stdout


def test_a_mode_or_an_owner_of_the_checkout_does_not_matter(project: SampleProject) -> None:
    launching(project)
    first = project.build()["images"][0]["image_id"]
    (project.root / "images/launch/serve").chmod(0o700)
    (project.root / "images/launch/data.txt").chmod(0o777)
    shutil.rmtree(project.store)
    project.supply()
    assert project.build()["images"][0]["image_id"] == first


def test_a_changed_launcher_rebuilds_its_layer_only(project: SampleProject) -> None:
    launching(project)
    project.build()
    project.replace("images/launch/serve", "exec python3", "exec python3 -I")
    assert project.build()["built"] == ["layer:launch/demo", "image:demo"]


def test_a_project_without_launchers_has_the_keys_it_had(built: SampleProject) -> None:
    records = json.loads(Path(f"{built.layout()}.records.json").read_bytes())
    assert "exports" not in records["audit"]["params"]
    assert "exporters" not in records["audit"]["params"]


# The audit.


def refused(project: SampleProject) -> str:
    done = project.run("build")
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


def test_an_export_that_nothing_reads_stops_the_build(project: SampleProject) -> None:
    launching(project, LAUNCHER.replace("exec", "export VLLM_FORK_LEVLE=1\nexec"))
    error = refused(project)
    assert (
        "images/launch/serve:4: VLLM_FORK_LEVLE is exported and nothing reads it: envs.py does not "
        "know it (did you mean VLLM_FORK_LEVEL?)"
    ) in error


def test_a_knob_of_a_profile_that_nothing_reads_stops_the_build(project: SampleProject) -> None:
    profile = PROFILE.replace('LEVEL = "3"', 'DEMO_NO = "3"')
    launching(project, profile=profile)
    error = refused(project)
    assert "images/profiles/one.toml:5: DEMO_NO is exported and nothing reads it" in error


def test_a_setting_that_no_launcher_looks_at_is_refused(project: SampleProject) -> None:
    launching(project, profile=PROFILE.replace("LEVEL", "LEVLE"))
    assert refused(project) == (
        "error: images/profiles/one.toml has one mistake\n"
        "  images/profiles/one.toml:5: env.LEVLE: no launcher of demo looks at it "
        "(did you mean 'LEVEL'?)\n"
    )


def test_a_profile_of_no_image_and_a_second_of_one_name(project: SampleProject) -> None:
    launching(project, profile=PROFILE.replace('"demo"', '"demi"'))
    assert refused(project) == (
        "error: images/profiles/one.toml has one mistake\n"
        "  images/profiles/one.toml:3: image: there is no image 'demi' (did you mean 'demo'?)\n"
    )
    project.write("images/profiles/one.toml", PROFILE)
    project.write("images/profiles/two.toml", PROFILE)
    assert refused(project) == (
        "error: images/profiles/two.toml has one mistake\n  images/profiles/two.toml:2: "
        "name: images/profiles/one.toml is also called 'one'\n"
    )


def test_a_launcher_that_is_said_to_export_must(project: SampleProject) -> None:
    launching(project, LAUNCHER.replace("export VLLM_FORK_LEVEL", "VLLM_FORK_LEVEL"))
    error = refused(project)
    assert "VLLM_FORK_LEVEL is declared as exported by images/launch/serve, which does not" in error


def test_envs_check_knows_the_launchers(project: SampleProject) -> None:
    launching(project)
    done = project.run("envs", "check")
    assert done.returncode == 0, done.stdout
    assert "launcher" not in done.stdout


# hq run.


def test_run_lists_shows_and_starts(project: SampleProject, tmp_path: Path) -> None:
    launching(project)
    assert project.run("run", "--list").stdout == "one  words\n"
    shown = project.run("run", "one", "-v", "/srv/a b:/models").stdout
    assert "--volume '/srv/a b:/models' \\\n" in shown
    done = project.run("run", "one", "--json", "-e", "LEVEL=4", "--", "--port", "1", "a b")
    assert done.returncode == 0, done.stderr
    command = json.loads(done.stdout)["command"]
    assert command == [
        *("docker", "run", "--rm", "--gpus", "all", "--ipc", "host", "--publish", "8000:8000"),
        *("--env", "LEVEL=4", "demo:1.0", "--port", "1", "a b"),
    ]
    shown = project.run("run", "one", "-e", "LEVEL=4", "--", "--port", "1", "a b").stdout
    assert (
        subprocess.run(
            ["sh", "-c", shown.replace("docker", "printf '%s\\n' docker", 1)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")[:-1]
        == command
    )
    fake = tmp_path / "bin" / "engine"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    fake.chmod(0o755)
    done = project.run("run", "one", "--start", "--with", str(fake), "--", "x")
    assert done.returncode == 7
    assert done.stdout.endswith("|demo:1.0|x|")


def test_run_of_no_profile_and_of_a_bad_setting(project: SampleProject) -> None:
    launching(project)
    done = project.run("run", "onne")
    assert done.returncode == 2
    assert done.stderr == ("error: there is no profile 'onne'\n  help: did you mean 'one'?\n")
    assert project.run("run", "x").stderr == (
        "error: there is no profile 'x'\n  help: known here: one\n"
    )
    told = "warning: --env: no launcher of demo looks at "
    for setting, words in (
        ("LEVL=4", f"{told}LEVL; did you mean 'LEVEL'?\n"),
        ("HTTPS_PROXY=x", f"{told}HTTPS_PROXY\n"),
        ("VLLM_ANYTHING=1", ""),
        ("DEMO_ANY=1", ""),
        ("HF_HOME=/x", ""),
        ("LEVEL=", ""),
    ):
        done = project.run("run", "one", "-e", setting)
        assert (done.returncode, done.stderr) == (0, words)
        assert f"--env {setting} " in done.stdout
    done = project.run("run", "one", "-e", "x")
    assert done.stderr == "error: --env: expected NAME=VALUE, found 'x'\n"
    done = project.run("run", "one", "--start", "--with", "no-such-engine")
    assert done.stderr == (
        "error: there is no program 'no-such-engine'\n"
        "  help: install it, or name another with --with\n"
    )


# This repository's launcher.


def serve(*arguments: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
    command = [shell, "sh"] if shell == "busybox" else [shell]
    return subprocess.run(
        [*command, str(SERVE), *arguments],
        env={"PATH": os.environ["PATH"], "DRY_RUN": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def command_of(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, str], list[str]]:
    """The environment and the arguments that the launcher would use."""
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    at = lines.index("vllm")
    return dict(line.split("=", 1) for line in lines[:at]), lines[at:]


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_default_settings(shell: str) -> None:
    env, words = command_of(serve("--seed", "a b", shell=shell, MODEL="m", DRAFT_MODEL="d"))
    assert env == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert words[:3] == ["vllm", "serve", "m"]
    assert option(words, "--gpu-memory-utilization") == "0.90"
    assert json.loads(option(words, "--speculative-config")) == {
        "method": "dflash",
        "model": "d",
        "num_speculative_tokens": 7,
    }
    assert "--enable-prefix-caching" in words
    assert words[-2:] == ["--seed", "a b"]


def test_huge_is_kvarn() -> None:
    _, words = command_of(serve(MODEL="m", CTX="huge"))
    assert option(words, "--kv-cache-dtype") == "kvarn_k4v2_g128"
    assert option(words, "--max-model-len") == "262144"


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        ((), {"OFFLOAD_GIB": "12"}),
        (("--kv-transfer-config", "{}"), {}),
        (("--kv-transfer-config={}",), {}),
        (("--kv-transfer-config.kv_connector=x",), {}),
        (("--kv-offloading-size=3",), {}),
    ],
)
def test_expandable_segments_are_off_with_a_connector(
    arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    found, _ = command_of(serve(*arguments, MODEL="m", **env))
    assert "PYTORCH_CUDA_ALLOC_CONF" not in found
    for bad in ({"EXPANDABLE": "1"}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}):
        done = serve(*arguments, MODEL="m", **env, **bad)
        assert done.returncode == 2
        assert done.stderr == (
            "vllm-serve: a KV connector needs expandable_segments off: unset EXPANDABLE and "
            "PYTORCH_CUDA_ALLOC_CONF\n"
        )


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "MODEL is not set: name the model to serve"),
        ({"MODEL": "m", "CTX": "x"}, "CTX=x: expected one of: fast long huge"),
        ({"MODEL": "m", "KV": "x"}, "KV=x: expected one of: auto fp8 int4pth kvarn"),
        ({"MODEL": "m", "SPEC": "dflash2"}, "SPEC=dflash2 needs DRAFT_MODEL"),
        ({"MODEL": "m", "MAX_LEN": "1k"}, "MAX_LEN=1k: expected a whole number"),
        ({"MODEL": "m", "INT8_ACT": "yes"}, "INT8_ACT=yes: expected one of: 0 1"),
        ({"MODEL": "m", "POOL_FRAC": "0.1"}, "POOL_FRAC is for KV=kvarn, and KV is auto"),
        (
            {"MODEL": "m", "DRAFT_MODEL": 'x","y":"z'},
            "DRAFT_MODEL has a quote or a backslash",
        ),
    ],
)
def test_a_wrong_setting_is_refused(env: dict[str, str], message: str) -> None:
    done = serve(**env)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"vllm-serve: {message}\n")


def profiles() -> dict[str, dict[str, Any]]:
    import tomllib

    found = {}
    for path in sorted((ROOT / "images" / "profiles").glob("*.toml")):
        found[path.stem] = tomllib.loads(path.read_text())
    return found


def test_every_profile_starts() -> None:
    found = profiles()
    assert sorted(found) == [
        *("batch", "default", "huge", "int4", "long", "offload", "production", "reproduction"),
    ]
    words = {}
    for name, profile in found.items():
        assert profile["name"] == name
        draft = {"DRAFT_MODEL": "d"} if profile["env"].get("SPEC") == "dflash2" else {}
        words[name] = command_of(serve(MODEL="m", **profile["env"], **draft))
    assert option(words["batch"][1], "--gpu-memory-utilization") == "0.95"
    drafts = json.loads(option(words["reproduction"][1], "--speculative-config"))
    assert drafts["num_speculative_tokens"] == 15
    assert words["production"][0]["VLLM_PREFILL_ATTN"] == "int8"
    assert words["production"][0]["VLLM_MARLIN_INPUT_DTYPE"] == "int8"
    assert option(words["offload"][1], "--kv-offloading-size") == "12"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in words["offload"][0]
    assert option(words["int4"][1], "--kv-cache-dtype") == "int4_per_token_head"


def test_the_tar_of_a_launch_layer_is_plain(project: SampleProject) -> None:
    launching(project)
    project.replace(
        "images/demo.toml", 'prefix = "/opt/demo"\n', 'prefix = "/opt/demo"\ncompression = "none"\n'
    )
    project.build()
    layout = LayoutSource(str(project.layout()))
    manifest = read_document(layout.read(layout.manifest()), "m")
    assert isinstance(manifest, ImageManifest)
    path = project.layout() / "blobs/sha256" / manifest.layers[-1].ref.digest.hex
    with tarfile.open(path) as tar:
        rows = [(m.name, m.mode, m.uid, m.gid, m.mtime) for m in tar if m.isreg()]
    assert rows == [("bin/serve", 0o755, 0, 0, 0), ("share/data.txt", 0o644, 0, 0, 0)]
