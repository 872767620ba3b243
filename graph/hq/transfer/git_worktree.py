"""git, as far as porting patches needs it: merging, diffing, branches, scratch repositories.

All of git is reached through ``Git.run``: no shell, no pager, no prompts, messages in English. In a
scratch repository the user's and the system's configuration count for nothing, so that a merge or a
diff gives the same bytes on every machine. In the user's own repository they do count (identity,
object format), and no hook runs: commits are made of objects, the working tree and the index are
never touched.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hq.model.errors import BuildError, InfrastructureError, Location, UsageError
from hq.patchwork.apply import File

_CLEARED: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT",
)  # fmt: skip
_ATTRIBUTES: Final = "*.py diff=python\n*.pyi diff=python\n"
MARKER: Final = 7  # characters of a conflict marker


class Merged(NamedTuple):
    """What a 3-way merge gave: with ``conflicts`` the data has markers, the base among them."""

    data: bytes
    conflicts: int


class Commit(NamedTuple):
    """A commit to make: its message, and files by path (``None``: removed).

    ``kinds``: ``x`` or ``l`` for paths that are no plain files.
    """

    message: str
    files: Mapping[str, bytes | None]
    kinds: Mapping[str, str] = {}


class Git:
    """git in one folder; ``scratch``: without anyone's configuration."""

    def __init__(self, folder: str, *, scratch: bool = False) -> None:
        self.folder = folder
        self._scratch = scratch

    def run(
        self,
        *arguments: str,
        data: bytes = b"",
        codes: Sequence[int] = (0,),
        environment: Mapping[str, str] | None = None,
    ) -> bytes:
        """Standard output. Raises ``InfrastructureError`` for another exit code than ``codes``."""
        return self.call(*arguments, data=data, codes=codes, environment=environment)[1]

    def call(
        self,
        *arguments: str,
        data: bytes = b"",
        codes: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Exit code and standard output; every code is taken without ``codes``."""
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=self.folder, input=data, env=self._environment(environment or {}),
                capture_output=True, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            if not os.path.isdir(self.folder):
                raise UsageError("there is no such folder", where=Location(self.folder)) from None
            raise InfrastructureError(
                "git is not installed", hint="install git; porting patches needs it"
            ) from None
        except OSError as error:
            raise InfrastructureError(f"cannot run git: {error.strerror}") from None
        if codes is not None and done.returncode not in codes:
            said = done.stderr.decode("utf-8", "replace").strip().split("\n")
            raise InfrastructureError(
                f"git {_verb(arguments)} failed with exit code {done.returncode}",
                where=Location(self.folder),
                details=[f"git: {line}" for line in said[-8:] if line],
            )
        return done.returncode, done.stdout

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in _CLEARED}
        own.update(
            LC_ALL="C", GIT_PAGER="cat", GIT_TERMINAL_PROMPT="0", GIT_EDITOR="true",
            GIT_OPTIONAL_LOCKS="0",
        )  # fmt: skip
        if self._scratch:
            own.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull)
            own.update(GIT_ATTR_NOSYSTEM="1")
        own.update(more)
        return own

    # -- the user's repository ------------------------------------------------------------------

    def prefix(self) -> str | None:
        """Where the folder lies in its repository (``"sub/"`` or empty); ``None`` outside one."""
        code, out = self.call("rev-parse", "--show-prefix")
        return None if code else os.fsdecode(out).rstrip("\n")

    def changed(self, paths: Iterable[str]) -> list[str]:
        """Those of ``paths`` (from the folder) that differ from HEAD, or that HEAD has not."""
        wanted = [f":(literal){path}" for path in paths]
        if not wanted:
            return []
        out = self.run(
            "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *wanted
        )
        return sorted({os.fsdecode(row[3:]) for row in out.split(b"\0") if len(row) > 3})

    def has_branch(self, name: str) -> bool:
        """Whether a branch of this name is there. Raises ``UsageError`` for no branch's name."""
        if self.call("check-ref-format", f"refs/heads/{name}")[0]:
            raise UsageError(f"{name!r} is no name for a branch", hint="give --branch another name")
        code, _ = self.call("show-ref", "--verify", "--quiet", f"refs/heads/{name}")
        return code == 0

    def commit_branch(self, name: str, commits: Sequence[Commit], base: str = "HEAD") -> str:
        """Makes a branch from ``base`` with ``commits`` on top; returns its tip.

        Paths are from the folder. The branch appears at once, whole. Raises ``UsageError`` when the
        name is taken or HEAD has no commit, ``InfrastructureError``.
        """
        if self.has_branch(name):
            raise UsageError(
                f"there is a branch {name} already",
                hint=f"give --branch another name, or delete it (git branch -D {name})",
            )
        tip = self.commit_id(base)
        with tempfile.TemporaryDirectory(prefix="hq-index-") as folder:
            index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            self.run("read-tree", tip, environment=index)
            for commit in commits:
                tip = self._commit(commit, tip, index)
        self.run("update-ref", f"refs/heads/{name}", tip, "")
        return tip

    def commit_id(self, revision: str) -> str:
        """The commit that a revision names. Raises ``UsageError``."""
        if not revision.startswith("-"):
            wanted = f"{revision}^{{commit}}"
            code, out = self.call("rev-parse", "--verify", "--quiet", wanted)
            if not code:
                return out.decode().strip()
        if revision == "HEAD":
            raise UsageError(
                "the repository has no commit yet",
                where=Location(self.folder), hint="commit something first, then try again",
            )  # fmt: skip
        raise UsageError(f"there is no commit {revision!r}", where=Location(self.folder))

    def file(self, commit: str, path: str) -> File | None:
        """A file as a commit has it; a path from the top of the repository."""
        out = self.run("ls-tree", "-z", "--full-tree", commit, "--", f":(literal){path}")
        row = out.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        if not row:
            return None
        mode, kind, blob = row.partition("\t")[0].split()
        if kind != "blob":
            return None
        data = self.run("cat-file", "blob", blob)
        return File({"100755": "x", "120000": "l"}.get(mode, "f"), data)

    def changed_between(self, one: str, other: str) -> list[str]:
        """The paths in which two commits differ, sorted."""
        out = self.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", one, other)
        return sorted(raw.decode("utf-8", "surrogateescape") for raw in out.split(b"\0") if raw)

    def commits(self, first: str, last: str) -> list[str]:
        """The commits after ``first`` up to ``last``, oldest first.

        Raises ``UsageError`` when one of them is a merge.
        """
        span = f"{self.commit_id(first)}..{self.commit_id(last)}"
        out = self.run("rev-list", "--reverse", "--topo-order", "--parents", span)
        rows = [row.split() for row in out.decode().split("\n") if row]
        merges = [row[0] for row in rows if len(row) > 2]
        if merges:
            raise UsageError(
                f"the commit {merges[0][:12]} is a merge",
                where=Location(self.folder),
                hint="a series is made from a straight line of commits",
            )
        return [row[0] for row in rows]

    def message(self, commit: str) -> str:
        """A commit's message."""
        return self.run("log", "-1", "--format=%B", commit).decode("utf-8", "replace").strip("\n")

    def _commit(self, commit: Commit, parent: str, index: Mapping[str, str]) -> str:
        prefix = self.prefix() or ""
        rows = []
        for path, data in sorted(commit.files.items()):
            if data is None:
                rows.append(f"0 {'0' * 40}\t{prefix}{path}\0".encode())
                continue
            blob = self.run("hash-object", "-w", "--stdin", data=data).decode().strip()
            mode = {"x": "100755", "l": "120000"}.get(commit.kinds.get(path, "f"), "100644")
            rows.append(f"{mode} {blob}\t{prefix}{path}\0".encode())
        # --index-info takes paths from the top of the repository, wherever it is run.
        self.run("update-index", "-z", "--index-info", data=b"".join(rows), environment=index)
        tree = self.run("write-tree", environment=index).decode().strip()
        message = commit.message.encode()
        return self.run("commit-tree", tree, "-p", parent, data=message).decode().strip()


def _verb(arguments: Sequence[str]) -> str:
    """The command among git's arguments; ``-c`` takes the one behind it."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] == "-c" else 1
    return arguments[at] if at < len(arguments) else ""


# -- texts -----------------------------------------------------------------------------------------


def merge_texts(base: bytes, ours: bytes, theirs: bytes, labels: tuple[str, str, str]) -> Merged:
    """The 3-way merge of ``git merge-file``; ``labels`` for ours, base and theirs.

    Raises ``InfrastructureError``, also for binary content.
    """
    with tempfile.TemporaryDirectory(prefix="hq-merge-") as folder:
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            _write(os.path.join(folder, name), data)
        marks = [part for label in labels for part in ("-L", label)]
        code, out = Git(folder, scratch=True).call(
            "merge-file", "-p", "--diff3", *marks, "ours", "base", "theirs"
        )
    if code >= 128:
        raise InfrastructureError(
            "git cannot merge a file", hint="3-way merges are for text; port this file by hand"
        )
    return Merged(out, code)


def diff_files(
    before: Mapping[str, File | None], after: Mapping[str, File | None], context: int = 3
) -> bytes:
    """The diff that git makes of two sets of files, with ``a/`` and ``b/`` before the names.

    Raises ``BuildError`` where one of them is binary, ``InfrastructureError``.
    """
    with tempfile.TemporaryDirectory(prefix="hq-diff-") as folder:
        for side, files in (("a", before), ("b", after)):
            os.mkdir(os.path.join(folder, side))
            for path, file in files.items():
                if file is not None:
                    _place(os.path.join(folder, side), path, file)
        attributes = os.path.join(folder, "attributes")
        _write(attributes, _ATTRIBUTES.encode())
        out = Git(folder, scratch=True).run(
            "-c", f"core.attributesFile={attributes}", "-c", "core.quotePath=false",
            "-c", "diff.algorithm=myers", "-c", "core.fileMode=true",
            "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
            "--no-prefix", "--full-index", f"-U{context}", "a", "b",
            codes=(0, 1),
        )  # fmt: skip
    for line in out.split(b"\n"):
        if line.startswith(b"Binary files "):
            raise BuildError(
                "a patch cannot hold a binary file", details=[line.decode("utf-8", "replace")]
            )
    return out


def _place(folder: str, path: str, file: File) -> None:
    target = os.path.join(folder, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if file.kind == "l":
        os.symlink(file.data, os.fsencode(target))
        return
    _write(target, file.data)
    os.chmod(target, 0o755 if file.kind == "x" else 0o644)


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)


# -- scratch repositories --------------------------------------------------------------------------

_WHO: Final = b"hq <hq@localhost> 0 +0000"
BELOW: Final = "hq-below"
"""The tag of the commit that an edit begins at."""


class Layer(NamedTuple):
    """A commit of a scratch repository: files by path, ``None`` for removed ones."""

    message: str
    files: Mapping[str, File | None]


def make_repository(folder: str, layers: Iterable[Layer]) -> None:
    """A new repository in ``folder`` with a commit for each layer, checked out, its tip tagged.

    Names, dates and so the commits are the same everywhere. Raises ``InfrastructureError``.
    """
    os.makedirs(folder, exist_ok=True)
    git = Git(folder, scratch=True)
    git.run("init", "-q", "-b", "series", ".")
    git.run("config", "core.autocrlf", "false")
    git.run("config", "core.fileMode", "true")
    with open(os.path.join(folder, ".git", "info", "exclude"), "w", encoding="utf-8") as file:
        file.write("*.rej\n*.orig\n__pycache__/\n")
    with open(os.path.join(folder, ".git", "info", "attributes"), "w", encoding="utf-8") as file:
        file.write("* -text\n" + _ATTRIBUTES)
    git.run("-c", "core.compression=1", "fast-import", "--quiet", data=_stream(layers))
    git.run("reset", "-q", "--hard", "series")
    git.run("tag", BELOW)


def _stream(layers: Iterable[Layer]) -> bytes:
    """The layers as git-fast-import(1) reads them."""
    out: list[bytes] = []
    for layer in layers:
        message = layer.message.encode()
        out.append(b"commit refs/heads/series\ncommitter " + _WHO + b"\n")
        out.append(b"data %d\n%s\n" % (len(message), message))
        for path, file in sorted(layer.files.items()):
            name = _quoted(path)
            if file is None:
                out.append(b"D " + name + b"\n")
                continue
            mode = {"x": b"100755", "l": b"120000"}.get(file.kind, b"100644")
            out.append(b"M %s inline %s\ndata %d\n" % (mode, name, len(file.data)))
            out += [file.data, b"\n"]
    return b"".join(out)


def _quoted(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    escaped = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def changed_files(folder: str) -> dict[str, File | None]:
    """What differs in a work tree from where its edit began, committed or not.

    Files that git ignores there do not count. Raises ``InfrastructureError``, ``BuildError``.
    """
    git = Git(folder, scratch=True)
    named = git.run("diff", "--name-only", "-z", "--no-renames", BELOW, "--")
    fresh = git.run("ls-files", "--others", "--exclude-standard", "-z")
    paths = sorted({os.fsdecode(raw) for raw in (named + fresh).split(b"\0") if raw})
    return {path: _read(os.path.join(folder, path)) for path in paths}


def _read(path: str) -> File | None:
    try:
        if os.path.islink(path):
            return File("l", os.fsencode(os.readlink(path)))
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return File("x" if os.fstat(file.fileno()).st_mode & 0o100 else "f", file.read())
    except OSError as error:
        raise InfrastructureError(
            f"cannot read a file: {error.strerror}", where=Location(path)
        ) from None


def apply_what_fits(folder: str, patch: bytes) -> bool:
    """Applies a patch to a work tree; what does not fit is left in ``.rej`` files beside it."""
    code, _ = Git(folder, scratch=True).call(
        "apply", "--reject", "--whitespace=nowarn", "-", data=patch
    )
    return code == 0


# -- a clone of upstream ---------------------------------------------------------------------------


class LogEntry(NamedTuple):
    """A commit as ``git log`` lists it."""

    id: str
    subject: str


class UpstreamClone:
    """The history between two releases in a clone of upstream, found by their tags."""

    def __init__(self, folder: str, old: str, new: str) -> None:
        """Raises ``UsageError`` when the folder is no repository or a release has no tag."""
        self._git = Git(folder)
        if self._git.prefix() is None:
            raise UsageError(
                "there is no git repository",
                where=Location(folder),
                hint="give a clone of upstream",
            )
        self._old, self._new = self._tag(old), self._tag(new)

    def _tag(self, version: str) -> str:
        for name in (f"refs/tags/v{version}", f"refs/tags/{version}"):
            code, out = self._git.call("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            if not code:
                return out.decode().strip()
        raise UsageError(
            f"the clone has no tag v{version}",
            where=Location(self._git.folder),
            hint="fetch upstream's tags: git fetch --tags",
        )

    def touching(self, path: str, first: int, last: int) -> list[LogEntry]:
        """Commits of the new release that touched these lines of a file."""
        return self._log(f"-L{first},{last}:{path}", "-s", f"{self._old}..{self._new}")

    def lost(self, path: str) -> list[LogEntry]:
        """Commits to a file that the old release has and the new one has not."""
        return self._log("--cherry-pick", "--left-only", f"{self._old}...{self._new}", "--", path)

    def between(self) -> list[LogEntry]:
        """Every commit that the new release has and the old one has not."""
        return self._log(f"{self._old}..{self._new}")

    def _log(self, *arguments: str) -> list[LogEntry]:
        # git exits with 128 for lines that the file has not: there is nothing to tell then.
        code, out = self._git.call("log", "--no-color", "--format=%H%x1f%s", *arguments)
        rows = out.decode("utf-8", "replace").split("\n") if not code else []
        return [LogEntry(*row.split("\x1f", 1)) for row in rows if "\x1f" in row]
