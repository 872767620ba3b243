"""What maintainer scripts would have left in the root, made from the packages' own files.

No script is run. The list below is what the scripts of a base with Python and a compiler do that
an image needs; everything in it is a rule over the root, so it works for any set of packages:

==============================  ==============================================================
made                            from
==============================  ==============================================================
``/etc/passwd``, ``group``      base-passwd's masters; no shadow file: no password is set
``/root/.profile`` and others   base-files', libc-bin's and readline's defaults (``_COPIES``)
``/srv``, ``/usr/local/…``      base-files (``_FOLDERS``); ``/var/run``, ``/var/lock`` are links
``/etc/shells``                 debianutils' list and ``shells.d``
``/etc/localtime``              UTC
``awk``, ``cc``, ``which`` …    the alternatives system, with its records (``_ALTERNATIVES``)
``/etc/ssl/certs``              ``hq.debian.certificates``
``/etc/ld.so.cache``            ``hq.debian.loader``
``/var/lib/dpkg``               the database: status, lists, sums, and the scripts for later
==============================  ==============================================================

Not made: what pam-auth-update, debconf, systemd helpers and py3compile write. Nobody logs in to an
image, and bytecode is not reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hq.debian.certificates import lay_out
from hq.debian.loader import loader_cache
from hq.debian.package import Item, Package
from hq.debian.root import MERGED, Root

_COPIES: Final = (
    ("usr/share/base-passwd/passwd.master", "etc/passwd"),
    ("usr/share/base-passwd/group.master", "etc/group"),
    ("usr/share/base-files/dot.profile", "root/.profile"),
    ("usr/share/base-files/dot.bashrc", "root/.bashrc"),
    ("usr/share/base-files/profile", "etc/profile"),
    ("usr/share/base-files/motd", "etc/motd"),
    ("usr/share/libc-bin/nsswitch.conf", "etc/nsswitch.conf"),
    ("usr/share/readline/inputrc", "etc/inputrc"),
)
_MAIL, _UTMP = 8, 43  # base-passwd's group.master
_FOLDERS: Final = (
    ("etc/opt", 0o755, 0),
    ("media", 0o755, 0),
    ("mnt", 0o755, 0),
    ("opt", 0o755, 0),
    ("run/lock", 0o1777, 0),
    ("srv", 0o755, 0),
    *((f"usr/local/{name}", 0o755, 0) for name in
      ("bin", "etc", "games", "include", "lib", "libexec", "sbin", "share/man", "src")),
    ("var/mail", 0o2775, _MAIL),
    ("var/opt", 0o755, 0),
)  # fmt: skip
_BASE_LINKS: Final = (
    ("etc/dpkg/origins/default", "debian"),
    ("usr/local/man", "share/man"),
    ("var/lock", "/run/lock"),
    ("var/run", "/run"),
    ("var/spool/mail", "../mail"),
)
_LOGS: Final = (("btmp", 0o660), ("lastlog", 0o664), ("wtmp", 0o664))


class _Alternative(NamedTuple):
    """A link of the alternatives system (update-alternatives(1)) with its best candidate."""

    name: str
    link: str
    target: str
    priority: int
    slaves: tuple[tuple[str, str, str], ...] = ()


_ALTERNATIVES: Final = (
    _Alternative(
        "awk", "usr/bin/awk", "usr/bin/mawk", 5, (("nawk", "usr/bin/nawk", "usr/bin/mawk"),)
    ),
    _Alternative("c++", "usr/bin/c++", "usr/bin/g++", 20),
    _Alternative("c89", "usr/bin/c89", "usr/bin/c89-gcc", 20),
    _Alternative("c99", "usr/bin/c99", "usr/bin/c99-gcc", 20),
    _Alternative("cc", "usr/bin/cc", "usr/bin/gcc", 20),
    _Alternative("cpp", "usr/lib/cpp", "usr/bin/cpp", 10),
    _Alternative("pager", "usr/bin/pager", "usr/bin/more", 50),
    _Alternative("rmt", "usr/sbin/rmt", "usr/sbin/rmt-tar", 50),
    _Alternative("which", "usr/bin/which", "usr/bin/which.debianutils", 0),
)

_CERTIFICATES: Final = "usr/share/ca-certificates"
_DATABASE: Final = "var/lib/dpkg"
_SCRIPTS: Final = frozenset({"preinst", "postinst", "prerm", "postrm", "config"})


class Made(NamedTuple):
    """An entry that is in no package. ``data``: a file's content."""

    item: Item
    data: bytes = b""


Read = Callable[[str], bytes]
"""The content of a file of the root by its path."""


def make_state(root: Root, packages: Sequence[Package], read: Read) -> list[Made]:
    """Every entry to add to the root; none that a package already has, links of it aside."""
    made: dict[str, Made] = {}
    for entry in _entries(root, packages, read):
        standing = root.get(entry.item.path)
        # Directories that a package ships for a place that is a link are replaced, as scripts do.
        if standing is None or (entry.item.type == "l" and standing.item.type == "d"):
            made.setdefault(entry.item.path, entry)
    return [made[path] for path in sorted(made)]


def _entries(root: Root, packages: Sequence[Package], read: Read) -> Iterator[Made]:
    names = {package.name for package in packages}
    for source, target in _COPIES:
        if _is_file(root, source):
            yield _file(target, read(source))
    if "base-passwd" in names:
        yield _file("etc/subgid", b"")
        yield _file("etc/subuid", b"")
    if "base-files" in names:
        yield from _base()
    yield from _shells(root, read)
    if "usr/share/zoneinfo/Etc/UTC" in root:
        yield _link("etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    if "usr/bin/dash" in root:
        yield _link("usr/bin/sh", "dash")
    yield from _alternatives(root)
    yield from _certificates(root, read)
    if "usr/sbin/ldconfig" in root:
        yield _file("etc/ld.so.cache", loader_cache(root, read))
    yield from _database(packages)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_file(root: Root, path: str) -> bool:
    return path in root and root[path].item.type == "f"


def _file(path: str, data: bytes, mode: int = 0o644, gid: int = 0) -> Made:
    return Made(Item(path, "f", mode, 0, gid), data)


def _link(path: str, target: str) -> Made:
    return Made(Item(path, "l", 0o777, 0, 0, target))


def _base() -> Iterator[Made]:
    for path, mode, gid in _FOLDERS:
        yield Made(Item(path, "d", mode, 0, gid))
    for path, target in _BASE_LINKS:
        yield _link(path, target)
    for name, mode in _LOGS:
        yield _file(f"var/log/{name}", b"", mode, _UTMP)


def _shells(root: Root, read: Read) -> Iterator[Made]:
    """The lines of debianutils and of each package, under both names of a merged directory."""
    first = "usr/share/debianutils/shells"
    if not _is_file(root, first):
        return
    text = read(first).decode("utf-8", "surrogateescape")
    lines = text.rstrip("\n").split("\n")
    for path in sorted(path for path in root if path.startswith(f"{first}.d/")):
        if _is_file(root, path):
            lines += read(path).decode("utf-8", "surrogateescape").split("\n")
    listed: dict[str, None] = {}
    for line in lines:
        listed[line] = None
        if line.split("/")[1:2] in ([name] for name in MERGED):
            listed[f"/usr{line}"] = None
    listed.pop("", None)
    yield _file("etc/shells", "".join(f"{line}\n" for line in listed).encode())


def _alternatives(root: Root) -> Iterator[Made]:
    for name, link, target, priority, slaves in _ALTERNATIVES:
        if target not in root or link in root:
            continue
        lines = ["auto", f"/{link}"]
        for slave, slave_link, _ in slaves:
            lines += [slave, f"/{slave_link}"]
        lines += ["", f"/{target}", str(priority)]
        lines += [f"/{slave_target}" for _, _, slave_target in slaves]
        yield _file(f"{_DATABASE}/alternatives/{name}", "\n".join([*lines, "", ""]).encode())
        for called, place, real in ((name, link, target), *slaves):
            yield _link(place, f"/etc/alternatives/{called}")
            yield _link(f"etc/alternatives/{called}", f"/{real}")


def _certificates(root: Root, read: Read) -> Iterator[Made]:
    beneath = f"{_CERTIFICATES}/"
    files = {
        path.removeprefix(beneath): read(path)
        for path in root
        if path.startswith(beneath) and path.endswith(".crt") and _is_file(root, path)
    }
    if not files:
        return
    listed = "".join(f"{path}\n" for path in sorted(files))
    yield _file("etc/ca-certificates.conf", _bytes(listed))
    yield Made(Item("usr/local/share/ca-certificates", "d", 0o755, 0, 0))
    found = lay_out(files, f"/{_CERTIFICATES}")
    yield _file("etc/ssl/certs/ca-certificates.crt", found.bundle)
    for name, target in found.links.items():
        yield _link(f"etc/ssl/certs/{name}", target)


def _database(packages: Sequence[Package]) -> Iterator[Made]:
    """``/var/lib/dpkg`` as dpkg keeps it (dpkg's admin directory, format 1)."""
    ordered = sorted(packages, key=lambda package: (package.name, package.architecture))
    if not ordered:
        return
    yield _file(f"{_DATABASE}/status", _bytes("\n".join(map(_stanza, ordered))))
    yield _file(f"{_DATABASE}/info/format", b"1\n")
    for name in ("available", "diversions", "statoverride"):
        yield _file(f"{_DATABASE}/{name}", b"")
    native = sorted({package.architecture for package in ordered} - {"all"})
    yield _file(f"{_DATABASE}/arch", "".join(f"{name}\n" for name in native).encode())
    for package in ordered:
        yield from _info(package)


def _stanza(package: Package) -> str:
    """The control file with its status and the sums of the configuration files."""
    first, _, rest = package.files["control"].strip("\n").partition("\n")
    lines = [first]
    if first.startswith("Package:"):
        lines.append("Status: install ok installed")
    else:
        lines = ["Status: install ok installed", first]
    lines.append(rest)
    sums = _conffile_sums(package)
    if sums:
        lines += ["Conffiles:", *sums]
    return "\n".join(lines) + "\n"


def _conffile_sums(package: Package) -> list[str]:
    by_path = {item.path: item for item in package.items}
    found = []
    for path in package.conffiles():
        item = by_path[path]
        md5 = by_path[item.link].md5 if item.type == "h" else item.md5
        if md5:
            found.append(f" /{path} {md5}")
    return found


def _info(package: Package) -> Iterator[Made]:
    same = package.fields.get("Multi-Arch") == "same"
    stem = f"{package.name}:{package.architecture}" if same else package.name
    base = f"{_DATABASE}/info/{stem}"
    listed = "".join(f"/{item.path}\n" for item in package.items)
    yield _file(f"{base}.list", _bytes(f"/.\n{listed}"))
    if "md5sums" not in package.files:
        yield _file(f"{base}.md5sums", _bytes(_sums(package)))
    for name, text in sorted(package.files.items()):
        if name != "control":
            mode = 0o755 if name in _SCRIPTS else 0o644
            yield _file(f"{base}.{name}", _bytes(text), mode)


def _sums(package: Package) -> str:
    kept = set(package.conffiles())
    return "".join(
        f"{item.md5}  {item.path}\n"
        for item in package.items
        if item.type == "f" and item.path not in kept
    )
