"""Brings one blob into a repository: it may be there, in a sister repository, or has to be sent.

A small blob goes in one PUT. A large one goes in a PATCH that can be taken up again: when the
connection breaks, the registry is asked how far it came (distribution-spec 1.1, "Pushing a blob in
chunks"), and one that does not know is sent everything again. Where a single request may not be
that long (status 413), the blob goes in chunks.

While it is sent the blob is hashed, and if it is not what its name says the last bytes are
withheld: a damaged blob never becomes one of the registry's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin

from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError, InfrastructureError
from hq.model.ports import RandomAccess
from hq.transfer.auth import pull_scope
from hq.transfer.http import ATTEMPTS, Answer, Body, Unreachable
from hq.transfer.registry import Registry, Scopes

_SMALL: Final = 4 << 20
_CHUNK: Final = 32 << 20
_LONGEST_CHUNK: Final = 1 << 30
_PIECE: Final = 1 << 20
_OCTETS: Final = "application/octet-stream"


class Session(NamedTuple):
    """An upload in progress: where to go on, and how much the registry has."""

    url: str
    offset: int
    minimum: int = 0


class Lost(Exception):
    """The registry no longer knows the upload."""


class TooLarge(Exception):
    """A request is longer than the registry takes."""


def bring_blob(
    registry: Registry,
    repository: str,
    ref: BlobRef,
    content: RandomAccess,
    scopes: Scopes,
    *,
    mounts: Sequence[str] = (),
    progress: Callable[[int], None],
) -> str:
    """Makes sure that a blob is in the repository; ``there``, ``mounted`` or ``sent``.

    ``mounts``: repositories of the registry that may have it, the likeliest first. ``progress``
    gets how many bytes were sent of it. Raises ``HqError``; ``BuildError`` for a damaged blob.
    """
    if registry.has_blob(repository, ref, scopes):
        return "there"
    job = _Job(registry, repository, ref, content, scopes, progress)
    for source in mounts[:1]:
        if job.mount(source):
            return "mounted"
    job.send()
    return "sent"


class _Job:
    """The sending of one blob."""

    def __init__(
        self,
        registry: Registry,
        repository: str,
        ref: BlobRef,
        content: RandomAccess,
        scopes: Scopes,
        progress: Callable[[int], None],
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._ref = ref
        self._content = content
        self._scopes = scopes
        self._progress = progress
        self._doing = f"push a blob to {repository}"
        self._session: Session | None = None
        self._chunk = _LONGEST_CHUNK

    def mount(self, source: str) -> bool:
        """Asks the registry to take the blob from another repository of its own."""
        url = (
            f"/v2/{self._repository}/blobs/uploads/"
            f"?mount={quote(self._ref.digest, safe='')}&from={quote(source, safe='')}"
        )
        scopes = (*self._scopes, pull_scope(source))
        try:
            answer = self._registry.call("POST", url, scopes, self._doing)
        except HqError as error:
            # Not to be allowed to read there is no reason not to push here.
            if error.exit_code == 2:
                return False
            raise
        with answer:
            if answer.status == 201:
                return True
            if answer.status == 202:
                self._session = self._begun(answer)
            answer.drain()
            return False

    def send(self) -> None:
        """Sends the blob. Raises ``HqError``."""
        failure: HqError | None = None
        attempt = 0
        while attempt < ATTEMPTS:
            if attempt:
                self._registry.http.pause(attempt)
                if self._recover():
                    return
            attempt += 1
            try:
                self._send_from(self._session or self._start())
                return
            except TooLarge:
                self._chunk, self._session, attempt = _CHUNK, None, 0
            except Lost:
                self._session = None
            except Unreachable as error:
                failure = error
        raise failure or self._given_up()

    def _recover(self) -> bool:
        """Finds out how far a broken upload came. Returns whether the blob is there after all."""
        session, self._session = self._session, None
        if self._registry.has_blob(self._repository, self._ref, self._scopes):
            self._progress(self._ref.size)
            return True
        if session is None or self._ref.size <= _SMALL:
            return False
        answer = self._registry.call("GET", session.url, self._scopes, self._doing)
        with answer:
            answer.drain()
            if answer.status == 204:
                self._session = self._continued(answer, session)
        return False

    def _start(self) -> Session:
        url = f"/v2/{self._repository}/blobs/uploads/"
        answer = self._registry.call("POST", url, self._scopes, self._doing)
        with answer:
            if answer.status != 202:
                raise self._registry.unexpected(answer, self._doing)
            answer.drain()
            self._session = self._begun(answer)
        return self._session

    def _begun(self, answer: Answer) -> Session:
        minimum = answer.headers.get("OCI-Chunk-Min-Length", "")
        known = minimum.isascii() and minimum.isdigit() and len(minimum) < 12
        return Session(self._location(answer), 0, int(minimum) if known else 0)

    def _location(self, answer: Answer) -> str:
        target = answer.headers.get("Location", "")
        if not target:
            raise self._registry.garbled(self._doing, "no Location for the upload")
        return urljoin(answer.url, target)

    def _continued(self, answer: Answer, session: Session) -> Session:
        """The session after an answer with ``Range``."""
        text = answer.headers.get("Range", "").removeprefix("bytes=")
        first, dash, last = text.partition("-")
        # "0-0" stands for nothing yet as well as for one byte; nobody sends a single byte.
        offset = int(last) + 1 if dash and first == "0" and last.isdigit() and last != "0" else 0
        if offset > self._ref.size:
            raise self._registry.garbled(self._doing, f"it has more than was sent: {text}")
        url = self._location(answer) if "Location" in answer.headers else session.url
        return Session(url, offset, session.minimum)

    def _send_from(self, session: Session) -> None:
        if self._ref.size <= _SMALL:
            self._finish(session, Body(lambda: self._pieces(0, self._ref.size), self._ref.size))
            return
        while session.offset < self._ref.size:
            session = self._session = self._patch(session)
        self._finish(session, None)

    def _patch(self, session: Session) -> Session:
        start = session.offset
        end = min(start + max(self._chunk, session.minimum), self._ref.size)
        body = Body(lambda: self._pieces(start, end), end - start)
        headers = {"Content-Type": _OCTETS, "Content-Range": f"{start}-{end - 1}"}
        answer = self._request("PATCH", session.url, headers, body)
        with answer:
            if answer.status == 202:
                answer.drain()
                found = self._continued(answer, session)
                return found._replace(offset=found.offset or end)
            raise self._failed(answer, start)

    def _finish(self, session: Session, body: Body | None) -> None:
        separator = "&" if "?" in session.url else "?"
        url = f"{session.url}{separator}digest={quote(self._ref.digest, safe='')}"
        answer = self._request("PUT", url, {"Content-Type": _OCTETS}, body)
        with answer:
            if answer.status != 201:
                raise self._failed(answer, session.offset)
            answer.drain()
        self._progress(self._ref.size)

    def _request(self, method: str, url: str, headers: dict[str, str], body: Body | None) -> Answer:
        # Sent once: after a failure the registry has to be asked what it took.
        return self._registry.call(
            method, url, self._scopes, self._doing, headers=headers, body=body, attempts=1
        )

    def _failed(self, answer: Answer, offset: int) -> Exception:
        if answer.status == 413 and self._chunk != _CHUNK and self._ref.size > _CHUNK:
            return TooLarge()
        # In the middle, 400 is how some registries say that the offset is not theirs.
        if answer.status in (404, 416) or (answer.status == 400 and 0 < offset < self._ref.size):
            answer.drain()
            return Lost()
        return self._registry.unexpected(answer, self._doing)

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The content from ``start`` to ``end``; the blob's last piece only if the whole is right.

        A blob that is taken up in the middle was hashed up to there when it was sent first; it is
        read again for that, which costs less than an upload.
        """
        whole = hashlib.sha256()
        last = end == self._ref.size
        if last:
            for at in range(0, start, _PIECE):
                whole.update(self._content.pread(at, min(_PIECE, start - at)))
        at = start
        while at < end:
            piece = self._content.pread(at, min(_PIECE, end - at))
            at += len(piece)
            if last:
                whole.update(piece)
            if not piece or (at == end and last and whole.hexdigest() != self._ref.digest.hex):
                raise self._damaged()
            yield piece
            self._progress(at)

    def _damaged(self) -> BuildError:
        return BuildError(
            f"a blob of the image is damaged: {self._ref.digest}",
            details=[f"size: {self._ref.size} bytes"],
            hint="build the image again; 'hq store verify' finds damage in the store",
        )

    def _given_up(self) -> HqError:
        return InfrastructureError(
            f"{self._registry.name} loses the upload of {self._ref.digest}, {ATTEMPTS} times",
            hint="run hq again; if it stays, look at the registry and at proxies in between",
        )
