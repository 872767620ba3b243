"""Profiles: named settings of an image's launcher, and the container that runs them.

A profile sets environment variables. Knobs among them go through the audit like those that a
launcher exports; any other name must be a setting that a launcher of the image looks at, so that a
misspelt setting is no silent default.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from hq.app.declaration import Env, Name, Table, Text
from hq.app.launchers import Launchers
from hq.app.validate import Document, did_you_mean, load_document
from hq.knobs.exports import exported, settings
from hq.model.errors import Problem, UsageError, problems_error
from hq.model.project import Exported

_PORT = r"^(\d{1,5}:)?\d{1,5}(/(tcp|udp))?$"
# Read by what every image of a model server runs, not by a launcher.
_COMMON = ("CUDA_", "HF_", "NCCL_", "PYTORCH_", "TORCH_", "TRITON_", "OMP_")


class ProfileFile(Table):
    """``images/profiles/<name>.toml``."""

    schema_: Literal["hq.profile/1"] = Field(alias="schema")
    name: Name
    image: Name
    what: Text
    env: Env = {}  # noqa: RUF012 - pydantic copies it
    args: tuple[str, ...] = ()
    gpus: Text = "all"
    ports: tuple[Annotated[str, StringConstraints(pattern=_PORT)], ...] = ("8000:8000",)
    volumes: tuple[Text, ...] = ()
    ipc: Literal["private", "host"] = "host"


def launcher_exports(launchers: Iterable[Launchers]) -> list[Exported]:
    """What every launcher exports; one script that several images use counts once."""
    found: dict[Exported, None] = {}
    for each in launchers:
        for path, script in each.scripts.items():
            for name, line in exported(script):
                found[Exported(name, path, path, line)] = None
    return list(found)


def read_profiles(
    paths: Sequence[str], read: Callable[[str], bytes]
) -> list[tuple[ProfileFile, Document]]:
    """The profiles in those files. Raises ``UsageError``."""
    names: dict[str, str] = {}
    found = []
    for path in paths:
        profile, document = load_document(path, read(path), ProfileFile)
        if profile.name in names:
            message = f"name: {names[profile.name]} is also called {profile.name!r}"
            problem = Problem(document.locator()("name"), message)
            raise problems_error(f"{path} has one mistake", [problem])
        names[profile.name] = path
        found.append((profile, document))
    return found


def profile_exports(
    profiles: Sequence[tuple[ProfileFile, Document]],
    launchers: Mapping[str, Launchers],
    prefixes: tuple[str, ...],
) -> list[Exported]:
    """What the profiles set of knobs. Raises ``UsageError`` for an image or a setting unknown."""
    found: list[Exported] = []
    for profile, document in profiles:
        at = document.locator()
        problems = []
        of_image = launchers.get(profile.image)
        if of_image is None:
            hint = did_you_mean(profile.image, sorted(launchers))
            message = f"image: there is no image {profile.image!r}"
            problems.append(Problem(at("image"), message, hint))
        for name in profile.env if of_image is not None else ():
            assert of_image is not None
            if name.startswith(prefixes):
                found.append(Exported(name, document.file, document.file, at("env", name).line))
            elif not _is_looked_at(name, of_image):
                message = f"env.{name}: no launcher of {profile.image} looks at it"
                problems.append(Problem(at("env", name), message, _alike(name, of_image)))
        if problems:
            count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
            raise problems_error(f"{document.file} has {count}", problems)
    return found


def setting_warnings(
    names: Iterable[str], launchers: Launchers, prefixes: tuple[str, ...]
) -> Iterator[str]:
    """What to say of settings that a command line gives and no launcher looks at.

    In a profile that is a mistake; here it may be meant for another program (``HTTPS_PROXY``).
    """
    for name in names:
        if not name.startswith(prefixes) and not _is_looked_at(name, launchers):
            hint = _alike(name, launchers)
            near = f"; {hint}" if hint.startswith("did") else ""
            yield f"--env: no launcher of {launchers.image} looks at {name}{near}"


def _is_looked_at(name: str, launchers: Launchers) -> bool:
    known = _settings(launchers)
    return not known or name in known or name.startswith(_COMMON)


def _settings(launchers: Launchers) -> set[str]:
    return {name for script in launchers.scripts.values() for name in settings(script)}


def _alike(name: str, launchers: Launchers) -> str:
    return did_you_mean(name, sorted(_settings(launchers)))


def find_profile(profiles: Sequence[tuple[ProfileFile, Document]], name: str) -> ProfileFile:
    """The profile called ``name``. Raises ``UsageError``."""
    for profile, _ in profiles:
        if profile.name == name:
            return profile
    names = sorted(profile.name for profile, _ in profiles)
    raise UsageError(
        f"there is no profile {name!r}", hint=did_you_mean(name, names) or "see hq run --list"
    )


def container_command(
    profile: ProfileFile,
    image: str,
    *,
    program: str,
    env: Mapping[str, str],
    args: Sequence[str],
    volumes: Sequence[str] = (),
) -> list[str]:
    """The command line that runs the profile.

    ``env``, ``args`` and ``volumes`` are the user's own; they come last and win.
    """
    command = [program, "run", "--rm"]
    if profile.gpus != "none":
        command += ["--gpus", profile.gpus]
    if profile.ipc != "private":
        command += ["--ipc", profile.ipc]
    for port in profile.ports:
        command += ["--publish", port]
    for volume in (*profile.volumes, *volumes):
        command += ["--volume", volume]
    for name, value in sorted({**profile.env, **env}.items()):
        command += ["--env", f"{name}={value}"]
    return [*command, image, *profile.args, *args]


def shown(command: Sequence[str]) -> str:
    """The command line as a shell reads it, an option to a line."""
    return shlex.join(command).replace(" --", " \\\n    --")
