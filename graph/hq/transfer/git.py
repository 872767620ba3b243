"""Git as far as hq needs it: which commits there are, and files read out of a commit.

The one place that starts the git process. Everything is read from objects: nothing is checked out,
no index is written (``GIT_OPTIONAL_LOCKS``), no hook, filter or pager runs. Attributes are not
applied: a file is the bytes of its blob, as a checkout on Linux gives them without filters. The
variables by which git tells its own children about a repository (githooks(5)) are taken away, or hq
run from a hook would look into the hook's repository.

A tree is listed once and its blobs are read through one ``git cat-file --batch``. A submodule is
read from its own repository where that is checked out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Final, NamedTuple, Self

from hq.model.errors import BuildError, HqError, InfrastructureError, Location, UsageError

_LOCAL: Final = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_FORCED: Final = {
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_MAX_LINKS: Final = 40
_MAX_BLOB: Final = 256 << 20
FILE: Final = ("100644", "100755", "100664")
SYMLINK: Final = "120000"
SUBMODULE: Final = "160000"


class GitEntry(NamedTuple):
    """One entry of a listed tree: its mode as git writes it, its object's id."""

    mode: str
    oid: str


class Git:
    """The repository around a folder. Raises ``UsageError`` when there is none, or no git."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.top = self._line("rev-parse", "--show-toplevel")
        self.prefix = self._line("rev-parse", "--show-prefix").rstrip("/")

    def commit(self, revision: str) -> str | None:
        """The commit that a revision names, or ``None``."""
        # Threat: a revision that git would take for an option.
        if not revision or revision.startswith("-") or "\0" in revision:
            return None
        found = self._try("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        return found.strip() if found else None

    def branch(self) -> str:
        """The branch that is checked out, or empty for a detached HEAD."""
        return (self._try("symbolic-ref", "--quiet", "--short", "HEAD") or "").strip()

    def origin_head(self) -> str:
        """The branch that ``origin`` calls its own, as ``origin/main``, or empty."""
        return (
            self._try("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD") or ""
        ).strip()

    def is_shallow(self) -> bool:
        """Whether the history was cut when the repository was cloned."""
        return self._line("rev-parse", "--is-shallow-repository") == "true"

    def merge_bases(self, one: str, other: str) -> list[str]:
        """The best common ancestors of two commits, sorted."""
        return sorted((self._try("merge-base", "--all", one, other) or "").split())

    def changes(self) -> list[str]:
        """Files of the folder that differ from HEAD or are new, by path from it, sorted."""
        text = self._run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--", ".")
        fields = iter(text.split("\0"))
        found: set[str] = set()
        for field in fields:
            if not field:
                continue
            found.add(field[3:])
            if field[0] in "RC":
                next(fields, "")
        start = f"{self.prefix}/" if self.prefix else ""
        return sorted(path.removeprefix(start) for path in found)

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        return self._line("log", "-1", "--format=%s", commit)

    def entries(self, commit: str) -> dict[str, GitEntry]:
        """Every file of a commit's tree by path from the repository's root."""
        found: dict[str, GitEntry] = {}
        for row in self._run("ls-tree", "-r", "-z", "--full-tree", commit).split("\0"):
            if row:
                head, _, path = row.partition("\t")
                mode, _, oid = head.split(" ")
                found[path] = GitEntry(mode, oid)
        return found

    def batch(self) -> Batch:
        """Reads objects; use as a context manager."""
        return Batch(self._start("cat-file", "--batch", stdin=subprocess.PIPE))

    def _line(self, *arguments: str) -> str:
        return self._run(*arguments).strip("\n")

    def _try(self, *arguments: str) -> str | None:
        """Standard output, or ``None`` when git answered no (1) or knows no such thing (128)."""
        process = self._start(*arguments)
        out, err = process.communicate()
        if process.returncode == 0:
            return _text(out)
        if process.returncode in (1, 128) and b"dubious ownership" not in err:
            return None
        raise _failed(arguments, err)

    def _run(self, *arguments: str) -> str:
        process = self._start(*arguments)
        out, err = process.communicate()
        if process.returncode != 0:
            raise _failed(arguments, err)
        return _text(out)

    def _start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        environment = {name: text for name, text in os.environ.items() if name not in _LOCAL}
        command = ["git", "--no-pager", "-c", "core.fsmonitor=false", *arguments]
        try:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment | _FORCED,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if stdin == subprocess.DEVNULL else subprocess.DEVNULL,
            )
        except FileNotFoundError:
            raise UsageError(
                "git is not installed", hint="install it, or build with --control none"
            ) from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _failed(arguments: Sequence[str], err: bytes) -> HqError:
    lines = [line for line in _text(err).split("\n") if line.strip()]
    first = lines[0].removeprefix("fatal: ").strip() if lines else "git gave no reason"
    if "not a git repository" in first:
        return UsageError(
            "the project is in no git repository",
            hint="build with --control none or --control PIN, or where its repository is",
        )
    if "dubious ownership" in first:
        return UsageError(
            "git does not trust the repository: it belongs to another user",
            hint="see safe.directory in git-config(1)",
        )
    return InfrastructureError(f"git {arguments[0]} failed: {first}")


class Batch:
    """Objects by id, through one process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def read(self, oid: str, what: str) -> bytes:
        """A blob. Raises ``UsageError`` when it is not there, naming ``what``."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(oid.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise InfrastructureError("git cat-file ended early", where=Location(what)) from None
        head = stdout.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise UsageError(
                f"the repository does not have the content of {what}",
                details=[f"object: {oid}"],
                hint="fetch it: git fetch, in a partial clone with --refetch",
            )
        size = int(head[2])
        if size > _MAX_BLOB:
            raise UsageError(f"{what} is larger than {_MAX_BLOB} bytes", where=Location(what))
        data = _exactly(stdout, size)
        _exactly(stdout, 1)
        return data


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise InfrastructureError("git cat-file ended early")
    return data


class CommitTree:
    """The files of one commit beneath a folder of the repository, with symlinks followed.

    A path that leads out of the repository, or goes round in a circle, is refused. Use as a context
    manager. Raises ``UsageError``.
    """

    def __init__(self, git: Git, commit: str, prefix: str = "") -> None:
        self.commit = commit
        self._git = git
        self._prefix = prefix
        self._entries = git.entries(commit)
        self._folders = _folders(self._entries)
        self._batch = git.batch()
        self._inner: dict[str, CommitTree] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for inner in self._inner.values():
            inner.close()
        self._batch.close()

    def close(self) -> None:
        """Ends git's processes."""
        self.__exit__()

    def read(self, path: str) -> bytes:
        """A file's content. Raises ``FileNotFoundError`` when the commit has no such file."""
        full = self._resolve(self._absolute(path))
        inner = self._submodule(full)
        if inner is not None:
            return inner[0].read(inner[1])
        entry = self._entries.get(full)
        if full in self._folders:
            raise UsageError(f"{path} is not a regular file", where=Location(path))
        if entry is None:
            raise FileNotFoundError(2, "No such file in the commit", path)
        data = self._batch.read(entry.oid, path)
        if data.startswith(_LFS):
            raise BuildError(
                f"{path} is kept outside git: the commit holds a pointer of Git LFS to it",
                where=Location(path),
                hint="keep the files that hq builds from in git itself",
            )
        return data

    def is_executable(self, path: str) -> bool:
        """Whether the file has git's executable mode."""
        full = self._resolve(self._absolute(path))
        inner = self._submodule(full)
        if inner is not None:
            return inner[0].is_executable(inner[1])
        entry = self._entries.get(full)
        return entry is not None and entry.mode == "100755"

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, by path from it, sorted; none without such a folder.

        As walking a checkout finds them: a symlink counts as a file and is not followed, what a
        submodule holds is there.
        """
        base = self._resolve(self._absolute(folder))
        inner = self._submodule(base)
        if inner is not None:
            return inner[0].names(inner[1])
        start = f"{base}/" if base else ""
        found: list[str] = []
        for path, entry in self._entries.items():
            if not path.startswith(start):
                continue
            name = path[len(start) :]
            if entry.mode == SUBMODULE:
                found += [f"{name}/{one}" for one in self._open(path).names("")]
            else:
                found.append(name)
        return sorted(found)

    def _absolute(self, path: str) -> str:
        return f"{self._prefix}/{path}"

    def _resolve(self, path: str) -> str:
        """The path from the repository's root, step by step, with symlinks followed."""
        done: list[str] = []
        ahead = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        links = 0
        while ahead:
            part = ahead.pop()
            if part == "..":
                if not done:
                    raise UsageError(f"{path} leads out of the repository", where=Location(path))
                if "/".join(done) not in self._folders:
                    return "/".join([*done, part, *reversed(ahead)])  # there is no such place
                done.pop()
                continue
            done.append(part)
            place = "/".join(done)
            if self._is_link(place):
                links += 1
                if links > _MAX_LINKS:
                    raise UsageError(
                        f"{place} is a symlink that leads to itself", where=Location(place)
                    )
                done.pop()
                ahead += self._target(place, len(done))
        return "/".join(done)

    def _target(self, link: str, depth: int) -> list[str]:
        """The parts of a symlink's target, the last first."""
        target = self._batch.read(self._entries[link].oid, link).decode("utf-8", "surrogateescape")
        parts = [part for part in target.split("/") if part not in ("", ".")]
        if target.startswith("/") or _climbs(parts) > depth:
            raise UsageError(
                f"{link} is a symlink out of the repository, to {target}", where=Location(link)
            )
        return parts[::-1]

    def _is_link(self, path: str) -> bool:
        entry = self._entries.get(path)
        return entry is not None and entry.mode == SYMLINK

    def _submodule(self, path: str) -> tuple[CommitTree, str] | None:
        """The submodule that a path lies in, and the path from there."""
        for above in _prefixes(path):
            entry = self._entries.get(above)
            if entry is not None and entry.mode == SUBMODULE:
                return self._open(above), path[len(above) :].lstrip("/")
        return None

    def _open(self, path: str) -> CommitTree:
        if path not in self._inner:
            self._inner[path] = self._opened(path)
        return self._inner[path]

    def _opened(self, path: str) -> CommitTree:
        folder = os.path.join(self._git.top, path)
        wanted = self._entries[path].oid
        if not os.path.lexists(os.path.join(folder, ".git")):
            raise UsageError(
                f"the submodule {path} is not checked out",
                where=Location(path),
                hint=f"git submodule update --init {path}",
            )
        inner = Git(folder)
        if inner.commit(wanted) is None:
            raise UsageError(
                f"the submodule {path} does not have the commit {wanted[:12]}",
                where=Location(path),
                hint=f"git -C {path} fetch",
            )
        return CommitTree(inner, wanted)


def _climbs(parts: Sequence[str]) -> int:
    """How many folders up a target begins."""
    return next((n for n, part in enumerate(parts) if part != ".."), len(parts))


def _prefixes(path: str) -> Iterator[str]:
    """``a``, ``a/b`` and ``a/b/c`` of ``a/b/c``."""
    for found in re.finditer("/|$", path):
        yield path[: found.start()]


def _folders(entries: dict[str, GitEntry]) -> set[str]:
    found = {""}
    for path, entry in entries.items():
        if entry.mode == SUBMODULE:
            found.add(path)
        while "/" in path:
            path = path.rpartition("/")[0]  # noqa: PLW2901  # walks up
            found.add(path)
    return found
