"""Built images leave and base images arrive: load, push, pull.

An image is named as the project names it, and what goes out is what the last build of the pin laid
into the output folder; or it is named by the folder of any image layout. Nothing is built here.

Beside a layout lie files about the image. Each kind has a place in ``ATTACHED`` and is pushed as a
referrer. The tag ``sha-<commit>`` is given only if the commit holds every file that the image was
made from, which git is asked about: a tag that lies is worse than none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hq.app.commit import head_commit
from hq.app.session import Session
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, Location, UsageError
from hq.model.project import PinSpec
from hq.oci.image import INDEX_TYPE, LAYOUT, REF_NAME, Document, Platform, descriptor
from hq.oci.reference import Reference, check_tag, parse_reference
from hq.provenance.slsa import BASE_IMAGE, PREDICATE_TYPE
from hq.store.disk import DiskStore
from hq.store.layout import write_layout
from hq.store.source import LayoutSource

if TYPE_CHECKING:
    from hq.transfer.pull import Pulled
    from hq.transfer.push import Attachment, Pushed
    from hq.transfer.registry import Registry

_MAX_FILE: Final = 64 << 20
_MOUNTS: Final = 4  # repositories remembered for a blob
_STATEMENT: Final = ".provenance.json"
_SBOM: Final = ".sbom.json"


class Kind(NamedTuple):
    """What a file beside a layout is, as a referrer."""

    suffix: str
    media_type: str
    annotations: Mapping[str, str]


ATTACHED: Final = (
    Kind(
        _STATEMENT,
        "application/vnd.in-toto+json",
        {"in-toto.io/predicate-type": PREDICATE_TYPE},
    ),
    Kind(_SBOM, "application/vnd.cyclonedx+json", {}),
)


class Shipment(NamedTuple):
    """An image that can be loaded or pushed. ``pin`` is empty for a layout that names none."""

    name: str
    pin: str
    layout: str
    manifest: BlobRef

    @property
    def source(self) -> LayoutSource:
        """Its blobs."""
        return LayoutSource(self.layout)


# Finding the image.


def is_layout(name: str) -> bool:
    """Whether ``name`` is the folder of an image layout."""
    return os.path.isfile(os.path.join(name, "index.json"))


def find_image(name: str, pin: str, session: Session | None) -> Shipment:
    """The image called ``name`` of the project, or in the layout of that folder.

    Raises ``UsageError`` when there is none, or it was not built.
    """
    if is_layout(name):
        layout = os.path.abspath(name)
        manifest = LayoutSource(layout).manifest()
        return Shipment(os.path.basename(layout), _ref_name(layout), layout, manifest)
    if os.sep in name:
        raise UsageError(
            f"there is no image layout in {name}", hint="name the folder that has index.json"
        )
    if session is None:
        raise UsageError(
            f"there is no project here to have an image {name!r}",
            hint="run hq inside a project, or name the folder of an image layout",
        )
    return _project_image(session, name, pin)


def _project_image(session: Session, name: str, pin: str) -> Shipment:
    """The image as it was built last; the session was opened for it."""
    spec = session.spec(pin)
    layout = os.path.join(session.settings.output, f"{name}-{spec.pin}")
    if not is_layout(layout):
        raise UsageError(
            f"the image {name} of pin {spec.pin} is not built",
            where=Location(layout),
            hint=f"run 'hq build --pin {spec.pin} --image {name}' first",
        )
    return Shipment(name, spec.pin, layout, LayoutSource(layout).manifest())


def _ref_name(layout: str) -> str:
    """The name that a layout gives its image, if it gives one."""
    with open(os.path.join(layout, "index.json"), "rb") as file:
        try:
            entry = json.loads(file.read(_MAX_FILE))["manifests"][0]
            return str(entry.get("annotations", {}).get(REF_NAME, ""))
        except (ValueError, LookupError, TypeError, AttributeError):
            return ""


def commit_of(shipment: Shipment, session: Session | None) -> str:
    """HEAD, or else the commit that the build named, if it holds the files as they were used."""
    if session is None or not session.settings.images:
        return ""
    made = _made_from(shipment, session.spec(shipment.pin))
    if made is None:
        return ""
    named, used = made
    declared = {path: seen.ref.digest.hex for path, seen in session.sources.seen.items()}
    root = session.settings.root
    commits = dict.fromkeys(commit for commit in (head_commit(root), named) if commit)
    return next((c for c in commits if _holds(root, c, declared | used)), "")


def changed_since(shipment: Shipment, session: Session | None) -> str:
    """A file that is not as it was when the image of this project was built, or empty."""
    if session is None or not session.settings.images:
        return ""
    made = _made_from(shipment, session.spec(shipment.pin))
    for path, digest in sorted(made[1].items()) if made is not None else ():
        try:
            if session.sources.ref(path).digest.hex != digest:
                return path
        except UsageError:
            return path
    return ""


def _made_from(shipment: Shipment, spec: PinSpec) -> tuple[str, dict[str, str]] | None:
    """The commit that the build named, and the project's files that it used, by SHA-256 in hex."""
    try:
        with open(shipment.layout + _STATEMENT, "rb") as file:
            made = json.loads(file.read(_MAX_FILE))["predicate"]["buildDefinition"]
        materials = [(str(item["name"]), item["digest"]) for item in made["resolvedDependencies"]]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    named = next((d["gitCommit"] for _, d in materials if "gitCommit" in d), "")
    fetched = _fetched(spec)
    return named, {n: d["sha256"] for n, d in materials if "sha256" in d and n not in fetched}


def _fetched(spec: PinSpec) -> set[str]:
    """What provenance calls the materials that no commit has."""
    wheels = (wheel.file for wheel in (spec.wheel, *spec.dependencies))
    bases = [image.base for image in spec.images if image.base is not None]
    return {BASE_IMAGE, *wheels, *(deb.file for base in bases for deb in base.debs)}


def _holds(root: str, commit: str, files: Mapping[str, str]) -> bool:
    """Whether a commit has these files (path from ``root`` to SHA-256 in hex)."""
    import hashlib
    import subprocess

    names = sorted(files)
    if any("\n" in name for name in names):
        return False
    asked = "".join(f"{commit}:./{name}\n" for name in names)
    try:
        done = subprocess.run(
            ["git", "-C", root, "cat-file", "--batch"],
            input=asked.encode("utf-8", "surrogateescape"),
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    data, at = done.stdout, 0
    for name in names:
        end = data.find(b"\n", at)
        head = data[at:end].split(b" ")
        if end < 0 or len(head) != 3 or head[1] != b"blob":
            return False
        at = end + 1 + int(head[2])
        if hashlib.sha256(data[end + 1 : at]).hexdigest() != files[name]:
            return False
        at += 1
    return True


# Load.


def default_image_tag(shipment: Shipment) -> str:
    """``name:pin``, in the characters that Docker allows."""
    return f"{shipment.name.lower()}:{shipment.pin or 'latest'}"


def engine_tags(shipment: Shipment, tags: Sequence[str]) -> list[str]:
    """The tags for an engine, fully written. Raises ``UsageError``."""
    found = []
    for text in tags or [default_image_tag(shipment)]:
        reference = parse_reference(text)
        if reference.digest is not None:
            raise UsageError(f"--tag: {text!r} has a digest", hint="give NAME:TAG")
        # As docker shows it: without its own registry's name.
        name = text.rpartition(":")[0] if reference.tag else text
        found.append(f"{name}:{reference.tag or 'latest'}")
    return found


# Push.


class Target(NamedTuple):
    """Where an image goes. ``repository`` has neither tag nor digest."""

    repository: Reference
    tags: tuple[str, ...]
    notes: tuple[str, ...]


def push_target(
    shipment: Shipment, text: str, tags: Sequence[str], commit: Callable[[], str]
) -> Target:
    """The repository and the tags of a push. Raises ``UsageError``.

    Without a tag in ``text`` or ``tags``: the pin, and ``sha-<commit>`` where a commit holds the
    image.
    """
    reference = parse_reference(text)
    if reference.digest is not None:
        raise UsageError(
            f"a push goes to a repository or a tag; {text!r} has a digest",
            hint="the digest comes from the image itself",
        )
    chosen = [*([reference.tag] if reference.tag else []), *(check_tag(tag) for tag in tags)]
    notes: list[str] = []
    if not chosen:
        chosen = [check_tag(shipment.pin)] if shipment.pin else []
        held_by = commit()
        if held_by:
            chosen.append(f"sha-{held_by}")
        else:
            notes.append("no commit holds what the image was made from, so there is no sha- tag")
    if not chosen:
        raise UsageError("the image has no pin to be tagged with", hint="give --tag TAG")
    return Target(reference._replace(tag=""), tuple(dict.fromkeys(chosen)), tuple(notes))


def attachments_of(shipment: Shipment) -> list[Attachment]:
    """What lies beside the layout, as attachments. Raises ``BuildError``."""
    from hq.transfer.push import Attachment

    found = []
    for kind in ATTACHED:
        path = shipment.layout + kind.suffix
        try:
            with open(path, "rb") as file:
                data = file.read(_MAX_FILE + 1)
        except FileNotFoundError:
            continue
        if len(data) > _MAX_FILE:
            raise BuildError(
                f"a file to attach has more than {_MAX_FILE} bytes", where=Location(path)
            )
        _check_subject(kind.suffix, data, shipment.manifest.digest, path)
        found.append(Attachment(kind.media_type, kind.media_type, data, kind.annotations))
    return found


def _check_subject(suffix: str, data: bytes, manifest: Digest, path: str) -> None:
    """What is about another image must not be attached to this one."""
    what, read = _SUBJECTS[suffix]
    try:
        found = str(read(json.loads(data)))
    except (ValueError, LookupError, TypeError, AttributeError):
        found = "none"
    if found != manifest:
        raise BuildError(
            f"{what} is about another image",
            where=Location(path),
            details=[f"expected: {manifest}", f"found:    {found}"],
            hint="build the image again, or push it with --no-attach",
        )


def _statement_subject(document: Any) -> str:
    return f"sha256:{document['subject'][0]['digest']['sha256']}"


def _sbom_subject(document: Any) -> str:
    # pkg:oci/NAME@sha256:HEX?arch=...
    purl: str = document["metadata"]["component"]["purl"]
    return purl.partition("@")[2].partition("?")[0]


_SUBJECTS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    _STATEMENT: ("the provenance statement", _statement_subject),
    _SBOM: ("the bill of materials", _sbom_subject),
}


class Mounts:
    """Which repositories of a registry have which blobs, as earlier pushes of the project saw."""

    def __init__(self, session: Session | None, registry: str) -> None:
        self._session = session
        self._name = f"blobs@{registry}"
        loaded = session.memory.load(self._name) if session else None
        self._known: dict[str, list[str]] = loaded if isinstance(loaded, dict) else {}

    def for_repository(self, repository: str, first: str = "") -> Callable[[Digest], list[str]]:
        """Candidates to mount a blob from, the latest first; ``first`` before all others."""

        def candidates(digest: Digest) -> list[str]:
            known = self._known.get(digest)
            names = [first] if first else []
            names += [str(name) for name in known] if isinstance(known, list) else []
            return [name for name in names if name != repository]

        return candidates

    def add(self, repository: str, digests: Sequence[Digest]) -> None:
        """Notes that the repository has these blobs now."""
        if self._session is None or not digests:
            return
        for digest in digests:
            names = [name for name in self._known.get(digest, []) if name != repository]
            self._known[digest] = [repository, *names][:_MOUNTS]
        self._session.memory.save(self._name, self._known)


def connect(
    reference: Reference,
    environment: Mapping[str, str],
    *,
    plain_http: bool,
    threads: int,
    sleep: Callable[[float], None] = time.sleep,
) -> Registry:
    """A client of the reference's registry, with the user's credentials."""
    from hq.transfer.auth import Authenticator
    from hq.transfer.credentials import find_credentials
    from hq.transfer.http import Http
    from hq.transfer.registry import Registry

    credentials = find_credentials(environment, reference.registry)
    http = Http(
        environment,
        plain_http=[reference.endpoint] if plain_http else [],
        sleep=sleep,
        connections=threads,
    )
    return Registry(http, reference, Authenticator(http, reference.registry, credentials))


def push(
    session: Session | None,
    shipment: Shipment,
    target: Target,
    environment: Mapping[str, str],
    *,
    plain_http: bool = False,
    attach: bool = True,
    mount_from: str = "",
    threads: int = 4,
    progress: Callable[[str, int, int], None],
) -> Pushed:
    """Pushes an image with what is attached to it. Raises ``HqError``."""
    from hq.transfer.push import push_image

    where = target.repository
    registry = connect(where, environment, plain_http=plain_http, threads=threads)
    mounts = Mounts(session, where.registry)
    try:
        pushed = push_image(
            registry,
            where.repository,
            shipment.source,
            shipment.manifest,
            target.tags,
            attachments=attachments_of(shipment) if attach else (),
            mounts=mounts.for_repository(where.repository, mount_from),
            progress=progress,
            threads=threads,
        )
    finally:
        registry.close()
    mounts.add(where.repository, list(pushed.blobs))
    return pushed


# Pull.


def pull(
    store: DiskStore,
    reference: Reference,
    platform: Platform,
    environment: Mapping[str, str],
    *,
    plain_http: bool = False,
    threads: int = 4,
    progress: Callable[[str, int, int], None],
) -> Pulled:
    """Brings an image into the store. Raises ``HqError``."""
    from hq.transfer.pull import pull_image

    registry = connect(reference, environment, plain_http=plain_http, threads=threads)
    try:
        return pull_image(
            registry,
            reference,
            store,
            platform,
            progress=progress,
            room=lambda needed: check_space(store, needed),
            threads=threads,
        )
    finally:
        registry.close()


def parse_platform(text: str) -> Platform:
    """``os/architecture[/variant]``. Raises ``UsageError``."""
    parts = text.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise UsageError(
            f"{text!r} is no platform", hint="give OS/ARCHITECTURE[/VARIANT], such as linux/amd64"
        )
    return Platform(parts[1], parts[0], parts[2] if len(parts) == 3 else "")


def write_pulled(store: DiskStore, pulled: Pulled, folder: str) -> None:
    """The pulled image as a layout in ``folder``. Raises ``UsageError``, ``InfrastructureError``.

    The manifest is kept as it is, also when its media type is Docker's.
    """
    taken = os.path.lexists(folder) and not os.path.isfile(os.path.join(folder, "oci-layout"))
    if taken and (not os.path.isdir(folder) or os.listdir(folder)):
        raise UsageError(
            "the layout goes into a new or empty folder, or over another layout",
            where=Location(folder),
            hint="give --output another name",
        )
    entry = descriptor(
        pulled.media_type,
        pulled.manifest,
        {REF_NAME: pulled.reference.tag} if pulled.reference.tag else None,
    )
    entry["platform"] = {
        "architecture": pulled.platform.architecture,
        "os": pulled.platform.os,
    }
    index = Document.of(
        INDEX_TYPE,
        {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]},
    )
    refs = [pulled.manifest, pulled.config, *(layer.ref for layer in pulled.layers)]
    write_layout(store, folder, refs, index.data, marker=LAYOUT)


def check_space(store: DiskStore, needed: int) -> None:
    """Says at once what would otherwise come out after minutes. Raises ``InfrastructureError``."""
    import errno

    from hq.store.faults import disk_fault

    found = os.statvfs(store.root)
    if found.f_bavail * found.f_frsize < needed:
        raise disk_fault(OSError(errno.ENOSPC, ""), "pull the image", store.root, size=needed)
