"""The fast path: a build in which nothing changed, answered without loading the rest of hq.

After each build the state of everything it looked at is written down: the project's files and
folders, hq's own modules, the environment variables that count, and every blob and output that must
be there. ``replay`` compares all of that by ``stat`` and, if nothing differs, gives the
answer of that build again. Whatever it is not sure of makes it return ``None``, and the ordinary
path decides.

A file whose time stamps are not older than the state itself could have changed again within the
clock's grain (what git calls "racily clean"): such a file is read and hashed.

The format is lines of tab-separated fields, because reading it must not need ``json`` or ``re``:
this module may import ``os``, ``sys`` and ``time`` only, and ``hashlib`` for a racy file.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Known to type checkers by its name; importing typing itself would take half of the time.
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

FORMAT: Final = "hq.noop/3"
SECONDS: Final = "@SECONDS@"
"""Stands in the answer where the time of this run goes."""

_FINE_GRAIN_NS: Final = 20_000_000
_COARSE_GRAIN_NS: Final = 2_000_000_000
_TEXT: Final = 0
_JSON: Final = 1


class Request:
    """A build command that the fast path understands; anything else is ``None`` in ``parse``."""

    __slots__ = ("as_json", "images", "jobs", "offline", "output", "pin", "quiet", "root", "store")

    def __init__(self) -> None:
        self.pin = ""
        self.images = ""
        self.output = ""
        self.store = ""
        self.root = ""
        self.as_json = False
        self.offline = False
        self.quiet = False
        self.jobs = 0


def parse(arguments: Sequence[str]) -> Request | None:
    """Reads ``build`` with its plain options."""
    if not arguments or arguments[0] != "build":
        return None
    request = Request()
    texts = {"--pin": "pin", "--output": "output", "--store": "store"}
    rest = iter(arguments[1:])
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--json":
            request.as_json = True
        elif argument == "--offline":
            request.offline = True
        elif argument in ("--quiet", "-q"):
            request.quiet = True
        elif name in texts or name == "--image":
            found = value if equals else next(rest, "")
            if not found or (name == "--image" and "," in found):
                return None
            if name == "--image":
                request.images += f",{found}"
            else:
                setattr(request, texts[name], found)
        elif argument.startswith("-j") and argument[2:].isdecimal() and argument.isascii():
            request.jobs = int(argument[2:])
            if not 1 <= request.jobs <= 9999:
                return None
        else:
            return None
    return request


def find_root(start: str) -> str | None:
    """The nearest folder at or above ``start`` that has a ``build.toml``."""
    folder = start
    while True:
        if os.path.isfile(os.path.join(folder, "build.toml")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def default_store(environment: Mapping[str, str]) -> str:
    """``$HQ_STORE``, else ``hq`` in the user's cache folder (XDG base directory specification).

    Empty when what is set is no absolute path.
    """
    named = environment.get("HQ_STORE")
    if named:
        # Relative, it would be another store in each folder.
        return named if os.path.isabs(named) else ""
    cache = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "hq") if os.path.isabs(cache) else ""


def project_folder(store: str, root: str) -> str:
    """Where the store keeps what it knows of the project at ``root``."""
    return os.path.join(store, "projects", _file_name(root))


def _file_name(text: str) -> str:
    name = text.replace("%", "%25").replace("/", "%2F")
    if len(name.encode("utf-8", "surrogateescape")) <= 200:
        return name
    import hashlib

    return "%" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def state_path(store: str, root: str, request: Request, output: str) -> str:
    """The state file of one project, selection and output folder."""
    return os.path.join(
        project_folder(store, root),
        "noop@" + _file_name(f"{request.pin}@{request.images}@{output}"),
    )


def replay(arguments: Sequence[str], started: float) -> str | None:
    """The answer to ``hq ARGUMENTS`` if it is a build and nothing has changed, else ``None``.

    ``started``: ``time.perf_counter()`` at the start of the process.
    """
    request = parse(arguments)
    if request is None:
        return None
    try:
        return _replay(request, started)
    except (OSError, ValueError):  # no working directory, a damaged state: not for this path
        return None


def _replay(request: Request, started: float) -> str | None:
    root = find_root(os.getcwd())
    if root is None:
        return None
    store = os.path.abspath(request.store) if request.store else default_store(os.environ)
    if not store:
        return None
    output = os.path.abspath(request.output) if request.output else os.path.join(root, "dist")
    try:
        with open(
            state_path(store, root, request, output), encoding="utf-8", errors="surrogateescape"
        ) as file:
            lines = file.read().split("\n")
    except OSError:
        return None
    answers = _unchanged(lines)
    if answers is None:
        return None
    if request.quiet and not request.as_json:
        return ""
    answer = answers[_JSON if request.as_json else _TEXT]
    return answer.replace(SECONDS, f"{time.perf_counter() - started:.3f}")


def _unchanged(lines: list[str]) -> tuple[str, str] | None:
    # The last line is written last, and says that the file is whole.
    if len(lines) < 5 or lines[0] != FORMAT or lines[-1] != "end":
        return None
    written = int(lines[1])
    for line in lines[4:-1]:
        kind, _, rest = line.partition("\t")
        if kind == "f":
            same = _same_file(rest, written)
        elif kind == "o":
            same = _same_output(rest)
        elif kind == "d":
            same = _same_folder(rest)
        elif kind == "g":
            same = _same_commit(rest)
        elif kind == "e":
            name, _, value = rest.partition("\t")
            same = os.environ.get(name, "") == value
        else:
            same = False
        if not same:
            return None
    return _unescape(lines[2]), _unescape(lines[3])


def _signature(status: os.stat_result) -> str:
    return (
        f"{status.st_dev:x}.{status.st_ino:x}.{status.st_mode:o}.{status.st_size}"
        f".{status.st_mtime_ns}.{status.st_ctime_ns}"
    )


def _is_racy(status: os.stat_result, written: int) -> bool:
    latest = max(status.st_mtime_ns, status.st_ctime_ns)
    coarse = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return latest >= written - (_COARSE_GRAIN_NS if coarse else _FINE_GRAIN_NS)


def _same_file(rest: str, written: int) -> bool:
    signature, digest, path = rest.split("\t", 2)
    path = _unescape(path)
    try:
        status = os.stat(path)
    except OSError:
        return False
    if _signature(status) != signature:
        return False
    return not _is_racy(status, written) or _digest(path) == digest


def _digest(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _same_folder(rest: str) -> bool:
    names, path = rest.split("\t", 1)
    try:
        found: list[str] | None = marked_names(_unescape(path))
    except OSError:
        found = None
    return folder_field(found) == names


def _same_commit(rest: str) -> bool:
    from hq.app.commit import head_commit

    commit, root = rest.split("\t", 1)
    return head_commit(_unescape(root)) == commit


def marked_names(path: str) -> list[str]:
    """A folder's names, sorted; those of folders end in ``/``, those of links in ``//``."""
    with os.scandir(path) as entries:
        return sorted(entry.name + _mark(entry) for entry in entries)


def _mark(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "//"
    return "/" if entry.is_dir(follow_symlinks=False) else ""


def folder_field(names: list[str] | None) -> str:
    """``marked_names`` as one field: what is there is an input, times are not.

    ``None``: no folder is there.
    """
    return "-" if names is None else "+" + "\\0".join(_escape(name) for name in names)


def _same_output(rest: str) -> bool:
    size, path = rest.split("\t", 1)
    try:
        status = os.stat(_unescape(path))
    except OSError:
        return False
    return f"{status.st_size}.{status.st_mtime_ns}" == size


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    rest = iter(text)
    for character in rest:
        if character == "\\":
            follower = next(rest, "\\")
            out.append({"n": "\n", "t": "\t"}.get(follower, follower))
        else:
            out.append(character)
    return "".join(out)


class State:
    """Collects what a build looked at, and writes it down.

    Files are given with the status they had *before* they were read, so that a change in between
    shows as a difference.
    """

    def __init__(self, text: str, json_text: str) -> None:
        self._head = [_escape(text), _escape(json_text)]
        self._lines: list[str] = []

    def file(self, path: str, status: os.stat_result, sha256_hex: str) -> None:
        """An input file."""
        self._lines.append(f"f\t{_signature(status)}\t{sha256_hex}\t{_escape(path)}")

    def folder(self, path: str, field: str) -> None:
        """A folder, and what was in it when it was looked into (``folder_field``)."""
        self._lines.append(f"d\t{field}\t{_escape(path)}")

    def commit(self, root: str, commit: str) -> None:
        """The commit that the project stands at: the provenance names it."""
        self._lines.append(f"g\t{commit}\t{_escape(root)}")

    def environment(self, name: str) -> None:
        """A variable whose value is an input."""
        self._lines.append(f"e\t{name}\t{_escape(os.environ.get(name, ''))}")

    def outputs(self, paths: Iterable[str]) -> None:
        """Files that must be there."""
        for path in paths:
            status = os.stat(path)
            self._lines.append(f"o\t{status.st_size}.{status.st_mtime_ns}\t{_escape(path)}")

    def modules(self, package: str) -> None:
        """The code of hq, so that an upgraded or edited hq takes the ordinary path."""
        for folder, folders, names in os.walk(package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    status = os.stat(path)
                    self._lines.append(f"o\t{status.st_size}.{status.st_mtime_ns}\t{_escape(path)}")

    def encode(self, written_ns: int) -> bytes:
        """The state file's content. ``written_ns``: the clock, after all was looked at."""
        lines = [FORMAT, str(written_ns), *self._head, *self._lines, "end"]
        return "\n".join(lines).encode("utf-8", "surrogateescape")


def emit(answer: str) -> int:
    """Writes the answer to standard output; returns the exit code."""
    if sys.stdout is None:  # closed by whoever started hq
        return 0
    try:
        sys.stdout.buffer.write(answer.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except OSError as error:
        return output_failed(error)
    return 0


def output_failed(error: OSError) -> int:
    """What a failure to write the answer means: 1 when the reader has gone, else 3 with words."""
    # The interpreter must not flush once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 1
    if sys.stderr is not None:
        sys.stderr.write(f"error: cannot write to standard output: {error.strerror}\n")
    return 3
