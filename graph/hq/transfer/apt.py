"""Running the user's apt in a state directory of hq's own, for a suite that need not be theirs.

Proxies, credentials and trust are apt's business: apt runs as a program with the user's
configuration. Only where it keeps its lists, and which sources it reads, is set: the user's own
source lines, with the suite of the base in the place of the user's (``bookworm-security`` becomes
``trixie-security`` for a base of trixie). If a line for the base's suite is there, such lines
are used alone and as they are. No archive's name is known here or written down anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hq.model.errors import BuildError, InfrastructureError
from hq.transfer.process import DIE_WITH_PARENT, end

_RELEASES: Final = frozenset({
    "buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid", "oldoldstable",
    "oldstable", "stable", "testing", "unstable",
})  # fmt: skip
_SUITE: Final = re.compile(r"([a-z]+)(-updates|-security|/updates)?\Z")
_ONE_LINE: Final = re.compile(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)\Z")
_MAX_FILE: Final = 4 << 20
_LAST_LINES: Final = 6
_POLL: Final = 0.1  # seconds

_START: Final = f"{DIE_WITH_PARENT}os.execvp(sys.argv[1], sys.argv[1:])\n"


class AptSource(NamedTuple):
    """One entry of apt's sources. ``options`` by their deb822 names (``Signed-By``)."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: Mapping[str, str]


class AptError(Exception):
    """apt failed; ``lines`` are the last that it said."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


def parse_one_line(text: str) -> list[AptSource]:
    """The sources of a ``.list`` file (sources.list(5), "One-Line-Style Format")."""
    found = []
    for line in text.split("\n"):
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            pairs = [pair.partition("=") for pair in (match[1] or "").split()]
            options = {_long_name(name): value.replace(",", " ") for name, _, value in pairs}
            components = tuple(match[4].split())
            found.append(AptSource((match[2],), (match[3],), components, options))
    return found


def _long_name(option: str) -> str:
    known = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
    return known.get(option, "-".join(part.capitalize() for part in option.split("-")))


def parse_deb822(text: str) -> list[AptSource]:
    """The sources of a ``.sources`` file (sources.list(5), "deb822-Style Format")."""
    found = []
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for stanza in re.split(r"\n[ \t]*\n", "\n".join(lines)):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.split("\n"):
            if line[:1] in (" ", "\t") and name:
                fields[name] += "\n" + line
            elif ":" in line:
                name, _, value = line.partition(":")
                name = "-".join(part.capitalize() for part in name.strip().split("-"))
                fields[name] = value.strip()
        if "deb" in fields.pop("Types", "").split() and fields.pop("Enabled", "yes") != "no":
            uris, suites, components = (
                tuple(fields.pop(key, "").split()) for key in ("Uris", "Suites", "Components")
            )
            found.append(AptSource(uris, suites, components, fields))
    return found


def for_suite(sources: Iterable[AptSource], suite: str) -> list[AptSource]:
    """The sources to use for ``suite``: the user's lines for it, else their others, rewritten."""
    listed = [source for source in sources if source.uris]
    own = [kept for source in listed if (kept := _suites(source, suite, suite))]
    if own:
        return own
    others = (_suites(source, release, suite) for source in listed for release in sorted(_RELEASES))
    return [source for source in others if source]


def _suites(source: AptSource, release: str, suite: str) -> AptSource | None:
    """The part of ``source`` that is for ``release``, said for ``suite``."""
    pockets = [
        match[2] or ""
        for match in map(_SUITE.match, source.suites)
        if match and match[1] == release
    ]
    if not pockets:
        return None
    renamed = tuple(f"{suite}{pocket}" for pocket in pockets)
    options = {
        name: value
        for name, value in source.options.items()
        if name not in ("Architectures", "Languages", "Targets", "Pdiffs", "By-Hash")
    }
    return source._replace(suites=renamed, options=options)


def render(sources: Iterable[AptSource]) -> str:
    """The sources as a ``.sources`` file."""
    stanzas = []
    for source in sources:
        fields = {
            "Types": "deb",
            "URIs": " ".join(source.uris),
            "Suites": " ".join(source.suites),
            "Components": " ".join(source.components),
            **source.options,
        }
        stanzas.append("".join(f"{name}: {value}\n" for name, value in fields.items()))
    return "\n".join(stanzas)


class Apt:
    """apt over a private state in ``folder``, which the caller takes away.

    Raises ``InfrastructureError`` when there is no apt, ``BuildError`` when its sources name no
    archive that could have the suite.
    """

    def __init__(self, folder: str, suite: str, architecture: str) -> None:
        if shutil.which("apt-get") is None:
            raise InfrastructureError(
                "no apt was found to fetch Debian packages with",
                details=["looked for: apt-get on the path"],
                hint="build images that need none (--image NAME), build the base once on a Debian "
                "machine with the same store, or take a base from a layout or a registry",
            )
        self.folder = folder
        self.suite = suite
        sources = for_suite(_configured(), suite)
        if not sources:
            raise BuildError(
                f"apt's sources name no Debian archive for {suite}",
                hint="add a source of a Debian archive to apt's configuration (sources.list(5))",
            )
        for name in ("lists/partial", "cache/archives/partial", "files", "parts"):
            os.makedirs(f"{folder}/{name}")
        _write(f"{folder}/base.sources", render(sources))
        _write(f"{folder}/status", "")
        self._options = self._settings(architecture)

    def _settings(self, architecture: str) -> list[str]:
        settings = {
            "Dir::State": self.folder,
            "Dir::State::lists": f"{self.folder}/lists",
            "Dir::State::status": f"{self.folder}/status",
            "Dir::State::extended_states": f"{self.folder}/extended_states",
            "Dir::Cache": f"{self.folder}/cache",
            "Dir::Etc::sourcelist": f"{self.folder}/base.sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Install-Recommends": "false",
            "APT::Install-Suggests": "false",
            "APT::Default-Release": "",
            "APT::Get::AllowUnauthenticated": "false",
            # Its files are in a directory of this user; _apt could not write there.
            "APT::Sandbox::User": "",
            "APT::Update::Post-Invoke": "",
            "APT::Update::Post-Invoke-Success": "",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
            "Debug::NoLocking": "true",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def update(self, *extra: str) -> None:
        """Fetches the lists. Raises ``AptError`` when one of them did not come."""
        self.run("apt-get", "update", "--error-on=any", "-o", "Acquire::Retries=3", *extra)

    def run(
        self,
        program: str,
        *arguments: str,
        look: Callable[[], None] | None = None,
    ) -> str:
        """Runs one of apt's programs; its standard output. Raises ``AptError``.

        ``look`` is called from time to time; an exception that it raises ends the program first.
        """
        start = [sys.executable, "-c", _START, str(os.getpid())]
        command = [*start, program, "-q", *self._options, *arguments]
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        out, log = f"{self.folder}/output", f"{self.folder}/log"
        with open(out, "wb") as output, open(log, "wb") as errors:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=f"{self.folder}/files",
            )
        try:
            status = _wait(process, look)
        finally:
            end(process)
        if status != 0:
            raise AptError(_last_lines(f"{_text(log)}\n{_text(out)}"))
        return _text(out, whole=True)


def _configured() -> list[AptSource]:
    """The user's sources."""
    done = subprocess.run(
        [
            "apt-config",
            "shell",
            "LIST",
            "Dir::Etc::sourcelist/f",
            "PARTS",
            "Dir::Etc::sourceparts/d",
        ],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    places = dict(re.findall(r"^(\w+)='(.*)'$", done.stdout, re.MULTILINE))
    paths = [places.get("LIST", "")]
    folder = places.get("PARTS", "")
    if os.path.isdir(folder):
        paths += [f"{folder.rstrip('/')}/{name}" for name in sorted(os.listdir(folder))]
    found: list[AptSource] = []
    for path in paths:
        if path.endswith(".sources"):
            found += parse_deb822(_text(path, whole=True))
        elif path.endswith(".list"):
            found += parse_one_line(_text(path, whole=True))
    return found


def _wait(process: subprocess.Popen[bytes], look: Callable[[], None] | None) -> int:
    while True:
        try:
            return process.wait(_POLL if look else None)
        except subprocess.TimeoutExpired:
            if look:
                look()


def _last_lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    telling = [line for line in lines if line.startswith("E:")]
    return list(dict.fromkeys(telling or lines))[-_LAST_LINES:]


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _text(path: str, *, whole: bool = False) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(-1 if whole else _MAX_FILE)
    except OSError:
        return ""
