"""A registry by the OCI distribution specification 1.1: manifests, blobs, referrers.

What it answers is a stranger's word. A manifest asked for by digest must have that digest, a blob
the length that its descriptor says, a list the shape of the specification, and everything ends
somewhere; a page of HTML (a proxy, a login form) is told apart from a registry's answer.

Every request knows its *scopes* (``auth``), so tokens are asked for once and cover what is done.
Uploads are in ``upload``, and what a push or a pull consists of in ``push`` and ``pull``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urljoin

from hq.model.digest import BlobRef, Digest, DigestError
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.oci.image import INDEX_TYPE
from hq.oci.reference import Reference
from hq.oci.remote import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    MAX_DOCUMENT,
    Descriptor,
    ImageIndex,
    read_document,
    referrers_tag,
)
from hq.transfer.auth import Authenticator, pull_scope
from hq.transfer.http import ATTEMPTS, Answer, Body, Broken, Http, TooLong, origin_of, said

_ACCEPT: Final = ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))
_AUTH_ROUNDS: Final = 3
_PAGES: Final = 100
Scopes = tuple[str, ...]


class Manifest(NamedTuple):
    """A manifest or an index as a registry holds it."""

    media_type: str
    data: bytes
    ref: BlobRef


class Registry:
    """A client of one registry. For any number of threads; ``close`` ends the connections.

    ``name``: the registry as users write it; ``endpoint``: the host that answers.
    """

    def __init__(self, http: Http, reference: Reference, auth: Authenticator) -> None:
        self.http = http
        self.name = reference.registry
        self.base = http.base(reference.endpoint)
        self._auth = auth

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()

    # Requests.

    def call(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        doing: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        attempts: int = ATTEMPTS,
    ) -> Answer:
        """One request with authorization. ``url`` may be a path. ``doing``: for errors, after "to".

        Raises ``UsageError`` when the registry does not let us, ``InfrastructureError``.
        """
        full = urljoin(self.base, url)
        for _ in range(_AUTH_ROUNDS):
            authorization = self._auth.header(scopes)
            answer = self.http.request(
                method,
                full,
                headers=headers,
                authorization=authorization,
                origin=origin_of(self.base),
                body=body,
                attempts=attempts,
            )
            if answer.status == 403:
                raise self._auth.denied(answer, doing)
            if answer.status != 401:
                return answer
            if not self._auth.accept(answer, scopes, authorization):
                raise self._auth.denied(answer, doing)
            answer.drain()
        raise self._auth.denied(answer, doing)

    def ping(self, scopes: Scopes) -> None:
        """Checks that this is a registry that lets us in, and learns how to say who we are.

        Raises ``HqError``.
        """
        answer = self.call("GET", "/v2/", scopes, "use it")
        kind = answer.headers.get("Content-Type", "")
        if answer.status != 200 or "html" in kind:
            raise InfrastructureError(
                f"{self.name} is no registry: it answers /v2/ with status {answer.status}",
                details=[f"registry: {line}" for line in said(answer)],
                hint="check the name and the port; a proxy may answer in the registry's place",
            )
        answer.drain()

    def unexpected(self, answer: Answer, doing: str) -> HqError:
        """The error for a status that nothing else explains. ``doing``: after "to"."""
        return InfrastructureError(
            f"{self.name} refuses to {doing}: status {answer.status}",
            details=[f"registry: {line}" for line in said(answer)],
            hint="look at what the registry says; a proxy may answer in its place",
        )

    def garbled(self, doing: str, why: str) -> InfrastructureError:
        """The error for an answer that makes no sense."""
        return InfrastructureError(
            f"{self.name} gives a wrong answer to the request to {doing}",
            details=[why],
            hint="run hq again; if it stays, look at the registry and at proxies in between",
        )

    def _read(
        self, url: str, scopes: Scopes, doing: str, accept: str
    ) -> tuple[Answer, bytes] | None:
        """A short answer whole; ``None`` for 404."""
        for attempt in range(1, ATTEMPTS + 1):
            answer = self.call("GET", url, scopes, doing, headers={"Accept": accept})
            if answer.status == 404:
                answer.drain()
                return None
            if answer.status != 200:
                raise self.unexpected(answer, doing)
            try:
                return answer, answer.read(MAX_DOCUMENT)
            except TooLong as error:
                raise self.garbled(doing, f"it is {error} long") from error
            except Broken as error:
                if attempt == ATTEMPTS:
                    raise self.garbled(doing, str(error)) from error
                self.http.pause(attempt)
        raise AssertionError("there is at least one attempt")

    # Manifests.

    def manifest(self, repository: str, target: str, scopes: Scopes = ()) -> Manifest | None:
        """A manifest or index by tag or digest; ``None`` when there is none.

        Raises ``BuildError`` when a digest was asked for and the content has another.
        """
        doing = f"read {repository}{'@' if ':' in target else ':'}{target}"
        found = self._read(
            f"/v2/{repository}/manifests/{target}", scopes or _pull(repository), doing, _ACCEPT
        )
        if found is None:
            return None
        answer, data = found
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if "html" in kind or data.lstrip()[:1] == b"<":
            raise self.garbled(doing, "an HTML page, which is no registry's answer")
        ref = BlobRef.of(data)
        self._same(doing, target if ":" in target else "", ref.digest)
        self._same(doing, answer.headers.get("Docker-Content-Digest", ""), ref.digest)
        return Manifest(kind if kind in MANIFEST_TYPES + INDEX_TYPES else "", data, ref)

    def _same(self, doing: str, expected: str, found: Digest) -> None:
        if expected.startswith("sha256:") and expected != found:
            raise BuildError(
                f"{self.name} gives other content than its name says, when asked to {doing}",
                details=[f"expected: {expected}", f"found:    {found}"],
                hint="do not use it; ask who runs the registry, and look at proxies in between",
            )

    def manifest_digest(self, repository: str, target: str, scopes: Scopes) -> Digest | None:
        """The digest of what a tag or digest names, by the registry's word; ``None``: nothing."""
        doing = f"look at {repository}"
        url = f"/v2/{repository}/manifests/{target}"
        answer = self.call("HEAD", url, scopes, doing, headers={"Accept": _ACCEPT})
        with answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise self.unexpected(answer, doing)
        try:
            return Digest.parse(answer.headers.get("Docker-Content-Digest", ""))
        except DigestError:  # the header is optional
            found = self.manifest(repository, target, scopes)
            return found.ref.digest if found else None

    def put_manifest(
        self, repository: str, target: str, media_type: str, data: bytes, scopes: Scopes
    ) -> bool:
        """Puts a manifest under a tag or its digest, and reads it back.

        Returns whether the registry took note of its subject (distribution-spec, "OCI-Subject").
        Raises ``InfrastructureError`` when something else is found there afterwards.
        """
        doing = f"write {repository}{'@' if ':' in target else ':'}{target}"
        answer = self.call(
            "PUT",
            f"/v2/{repository}/manifests/{target}",
            scopes,
            doing,
            headers={"Content-Type": media_type},
            body=Body.of(data),
        )
        with answer:
            if answer.status not in (200, 201, 202):
                raise self.unexpected(answer, doing)
            native = "OCI-Subject" in answer.headers
            answer.drain()
        found = self.manifest(repository, target, scopes)
        if found is None or found.data != data:
            there = found.ref.digest if found else "nothing"
            raise InfrastructureError(
                f"{self.name} does not hold what was pushed to {repository}:{target}"
                if ":" not in target
                else f"{self.name} does not hold what was pushed to {repository}",
                details=[f"expected: {Digest.of(data)}", f"found:    {there}"],
                hint="another push may have moved the tag meanwhile; push again",
            )
        return native

    # Blobs.

    def has_blob(self, repository: str, ref: BlobRef, scopes: Scopes) -> bool:
        """Whether a blob is there. Raises ``InfrastructureError`` when it has another length."""
        doing = f"look for a blob in {repository}"
        answer = self.call("HEAD", f"/v2/{repository}/blobs/{ref.digest}", scopes, doing)
        with answer:
            if answer.status == 404:
                return False
            if answer.status != 200 or "html" in answer.headers.get("Content-Type", ""):
                raise self.unexpected(answer, doing)
            if answer.length not in (None, ref.size):
                raise self.garbled(
                    doing, f"{ref.digest}: expected {ref.size} bytes, found {answer.length}"
                )
        return True

    def open_blob(self, repository: str, ref: BlobRef, offset: int) -> tuple[Answer, int]:
        """A blob's bytes from ``offset``, and where they begin: 0 if it cannot begin elsewhere.

        Raises ``UsageError`` for a blob that is not there, ``InfrastructureError``.
        """
        doing = f"read a blob of {repository}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        url = f"/v2/{repository}/blobs/{ref.digest}"
        answer = self.call("GET", url, _pull(repository), doing, headers=headers)
        if answer.status == 404:
            answer.drain()
            raise UsageError(
                f"{self.name} has no blob {ref.digest} in {repository}",
                hint="the image is not whole there; push it again, or take another",
            )
        begins = 0
        if answer.status == 206:
            begins = offset
            stated = answer.headers.get("Content-Range", "")
            if not stated.startswith(f"bytes {offset}-"):
                answer.close()
                raise self.garbled(doing, f"asked for bytes from {offset}, got {stated or '?'}")
        elif answer.status != 200:
            raise self.unexpected(answer, doing)
        if answer.length not in (None, ref.size - begins):
            answer.close()
            raise self.garbled(
                doing,
                f"{ref.digest}: expected {ref.size - begins} bytes, announced {answer.length}",
            )
        return answer, begins

    # Referrers.

    def referrers(
        self, repository: str, subject: Digest, scopes: Scopes = ()
    ) -> tuple[list[Descriptor], bool]:
        """What refers to a manifest, and whether the registry keeps that list itself."""
        url = f"/v2/{repository}/referrers/{subject}"
        entries: list[Descriptor] = []
        for _ in range(_PAGES):
            page = self._referrers_page(url, repository, scopes or _pull(repository))
            if page is None:
                return self._tagged_referrers(repository, subject, scopes), False
            found, url = page
            entries += found
            if not url:
                return entries, True
        raise self.garbled(f"list referrers in {repository}", f"more than {_PAGES} pages")

    def _referrers_page(
        self, url: str, repository: str, scopes: Scopes
    ) -> tuple[list[Descriptor], str] | None:
        doing = f"list referrers in {repository}"
        answer = self.call("GET", url, scopes, doing, headers={"Accept": INDEX_TYPE})
        with answer:
            kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if answer.status != 200 or kind != INDEX_TYPE:
                # A registry of before 1.1 says anything here, as a rule 404.
                answer.drain()
                return None
            try:
                data = answer.read(MAX_DOCUMENT)
            except (TooLong, Broken) as error:
                raise self.garbled(doing, f"{error}") from error
        return self._entries(data, doing), _next_page(answer.headers.get("Link", ""))

    def _tagged_referrers(
        self, repository: str, subject: Digest, scopes: Scopes
    ) -> list[Descriptor]:
        found = self.manifest(repository, referrers_tag(subject), scopes)
        return self._entries(found.data, f"list referrers in {repository}") if found else []

    def _entries(self, data: bytes, doing: str) -> list[Descriptor]:
        document = read_document(data, f"{self.name} ({doing})", INDEX_TYPE)
        assert isinstance(document, ImageIndex)
        return list(document.manifests)


def _pull(repository: str) -> Scopes:
    return (pull_scope(repository),)


def _next_page(link: str) -> str:
    """The target of a ``Link`` with ``rel="next"`` (RFC 8288), or nothing."""
    target, _, rest = link.partition(">")
    return target.removeprefix("<") if target.startswith("<") and "next" in rest else ""
