"""Makes a base lock: which packages, resolved by the user's apt in a state of its own.

What was asked for stays in the lock (``packages``), so locking again takes new versions of the
same. The essential packages of the suite are always part of it. The packages stand in an order in
which each comes after what it depends on, ``base-files`` first; cycles are entered at the first
name. (The tree does not depend on the order; a reader does.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hq.debian.control import parse_stanza, relations
from hq.model.digest import Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.model.project import LockedDeb
from hq.store.disk import DiskStore

SCHEMA = "hq.base-lock/1"


class Request(NamedTuple):
    """What to lock."""

    suite: str
    architecture: str
    packages: tuple[str, ...]


class Refreshed(NamedTuple):
    """A lock made anew: the file's text, and what differs from the old one, line by line."""

    text: str
    changes: list[str]


def new_base_lock(store: DiskStore, request: Request) -> str:
    """The text of a lock for ``request``. Raises what ``lock_base`` raises."""
    return render(request, lock_base(store, request))


def refresh_base_lock(store: DiskStore, path: str, data: bytes) -> Refreshed:
    """Locks again what the lock file ``data`` asked for. What stands above its packages is kept.

    ``path`` names the file in messages. Raises ``UsageError`` for a bad file, and what
    ``lock_base`` raises.
    """
    from hq.app.bases import read_base_lock
    from hq.app.declaration import BaseLockFile
    from hq.app.validate import load_toml

    old = read_base_lock(path, data)
    request = Request(old.suite, old.architecture, load_toml(path, data, BaseLockFile).packages)
    debs = lock_base(store, request)
    head = data.decode("utf-8").partition("[[package]]")[0].rstrip("\n") + "\n\n"
    return Refreshed(head + _rows(debs), changes(old.debs, debs))


class _Candidate(NamedTuple):
    deb: LockedDeb
    depends: tuple[str, ...]
    provides: tuple[str, ...]


def lock_base(store: DiskStore, request: Request) -> tuple[LockedDeb, ...]:
    """Asks the archive of the user's apt sources. No package is fetched.

    Raises ``UsageError`` for a package that the suite has not, ``BuildError``,
    ``InfrastructureError``.
    """
    from hq.transfer.apt import Apt, AptError

    with store.staging() as folder:
        apt = Apt(folder, request.suite, request.architecture)
        try:
            apt.update()
        except AptError as error:
            raise _failure("apt cannot read the archive's lists", error.lines) from None
        try:
            essential = _essential(apt.run("apt-cache", "show", "?essential"))
            text = apt.run(
                "apt-get", "install", "--print-uris", "--yes", *sorted(essential), *request.packages
            )
            files = [line.split()[1] for line in text.split("\n") if line.startswith("'")]
            shown = apt.run("apt-cache", "show", *map(_specifier, files))
        except AptError as error:
            raise _unresolved(request, error.lines) from None
    return order(_candidate(stanza) for stanza in _stanzas(shown))


def _essential(text: str) -> set[str]:
    """Packages that say so; apt counts itself among them, an image does not need it."""
    return {
        stanza["Package"] for stanza in _stanzas(text) if stanza.get("Essential", "no") == "yes"
    }


def _specifier(file: str) -> str:
    """What to ask for the package that apt would fetch into ``file``: the name is quoted."""
    from urllib.parse import unquote

    name, version, rest = file.removesuffix(".deb").split("_")
    return f"{name}:{rest}={unquote(version)}" if rest != "all" else f"{name}={unquote(version)}"


def _stanzas(text: str) -> list[dict[str, str]]:
    return [parse_stanza(part.strip("\n")) for part in text.split("\n\n") if part.strip()]


def _candidate(stanza: Mapping[str, str]) -> _Candidate:
    try:
        deb = LockedDeb(
            name=stanza["Package"],
            version=stanza["Version"],
            architecture=stanza["Architecture"],
            file=stanza["Filename"].rpartition("/")[2],
            sha256=Digest.from_hex(stanza["SHA256"]),
            size=int(stanza["Size"]),
        )
    except (KeyError, ValueError) as error:
        raise BuildError(
            f"the archive says nothing usable of {stanza.get('Package', 'a package')}: {error}"
        ) from None
    depends = [
        relation.name
        for field in ("Pre-Depends", "Depends")
        for group in relations(stanza.get(field, ""))
        for relation in group
    ]
    provides = [
        relation.name for group in relations(stanza.get("Provides", "")) for relation in group
    ]
    return _Candidate(deb, tuple(depends), tuple(provides))


def order(candidates: Iterable[_Candidate]) -> tuple[LockedDeb, ...]:
    """The packages, each after what it depends on where there is no cycle."""
    by_name = {each.deb.name: each for each in candidates}
    provided = {
        virtual: each.deb.name
        for each in sorted(by_name.values(), reverse=True)
        for virtual in each.provides
    }
    done: dict[str, LockedDeb] = {}
    for first in sorted(by_name, key=lambda name: (name != "base-files", name)):
        pending = [(first, False)]
        entered = set()
        while pending:
            name, ready = pending.pop()
            if ready:
                done.setdefault(name, by_name[name].deb)
            elif name not in done and name not in entered:
                entered.add(name)
                pending.append((name, True))
                needed = {provided.get(other, other) for other in by_name[name].depends}
                pending += [(other, False) for other in sorted(needed & by_name.keys())[::-1]]
    first_deb = [done.pop("base-files")] if "base-files" in done else []
    return (*first_deb, *done.values())


def render(request: Request, debs: Sequence[LockedDeb]) -> str:
    """The lock file's text."""
    lines = [
        f"# Packages of Debian {request.suite} for a base, each named by its bytes. Where they",
        "# come from is the user's apt configuration; no archive is named here.",
        "",
        f'schema = "{SCHEMA}"',
        f'suite = "{request.suite}"',
        f'architecture = "{request.architecture}"',
        "# What was asked for, besides the suite's essential packages.",
        "packages = [",
        *(f'    "{name}",' for name in request.packages),
        "]",
    ]
    return "\n".join(lines) + "\n\n" + _rows(debs)


def _rows(debs: Sequence[LockedDeb]) -> str:
    return "\n".join(
        f'[[package]]\nname = "{deb.name}"\nversion = "{deb.version}"\n'
        f'architecture = "{deb.architecture}"\nfile = "{deb.file}"\n'
        f'sha256 = "{deb.sha256.hex}"\nsize = {deb.size}\n'
        for deb in debs
    )


def changes(old: Sequence[LockedDeb], new: Sequence[LockedDeb]) -> list[str]:
    """What a fresh lock changes, a line for each package: ``+``, ``-`` or old → new."""
    before = {deb.name: deb for deb in old}
    after = {deb.name: deb for deb in new}
    lines = []
    for name in sorted({*before, *after}):
        if name not in before:
            lines.append(f"+ {name} {after[name].version}")
        elif name not in after:
            lines.append(f"- {name} {before[name].version}")
        elif before[name] != after[name]:
            versions = before[name].version, after[name].version
            what = " → ".join(dict.fromkeys(versions))
            same = " (other bytes)" if versions[0] == versions[1] else ""
            lines.append(f"  {name} {what}{same}")
    return lines


def _unresolved(request: Request, lines: Sequence[str]) -> HqError:
    return UsageError(
        f"apt cannot resolve the base for {request.suite}",
        details=[f"apt: {line}" for line in lines],
        hint="check the names of the packages in the lock",
    )


def _failure(message: str, lines: Sequence[str]) -> HqError:
    return InfrastructureError(
        message,
        details=[f"apt: {line}" for line in lines],
        hint="look at apt's configuration, the network and the proxy; then run hq again",
    )
