"""A registry in memory that misbehaves on demand, over real HTTP on this machine.

It knows what the real one of ``helpers.registry`` does not: uploads that can be taken up again,
referrers, tokens. ``faults`` are tried in order for every request; the first that fits is used up
and answers instead.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"
Handling = Callable[["_Handler"], None]


@dataclass
class Fault:
    """Answers requests whose ``METHOD path`` contains ``when`` by ``act``, ``times`` times."""

    when: str
    act: Handling
    times: int = 1


@dataclass
class Request:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: int = 0


@dataclass
class FakeRegistry:
    """The registry's content and manners."""

    host: str = ""
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    referrers: bool = True
    token: str = ""
    """When set, a token of this text is wanted, and ``/token`` gives it to ``USER``."""
    basic: str = ""
    """When set, ``user:password`` that requests must bear."""
    begun: int = 0
    most: int = 1 << 40
    """The longest body that is taken, in bytes."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, repository: str, data: bytes) -> str:
        """Adds a blob; returns its digest."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[repository, digest] = data
        return digest

    def put_manifest(self, repository: str, tag: str, media_type: str, data: bytes) -> str:
        """Adds a manifest under its digest and a tag; returns its digest."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        for name in (digest, tag):
            self.manifests[repository, name] = (media_type, data)
        return digest

    def count(self, start: str) -> int:
        """How many requests began ``METHOD path``."""
        return sum(f"{r.method} {r.path}".startswith(start) for r in self.requests)


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Runs a fake registry, with TLS if asked to."""
    registry = FakeRegistry()

    class Handler(_Handler):
        registry_ = registry

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.host = f"localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# What faults do.


def status(code: int, data: bytes = b"", **headers: str) -> Handling:
    """Answers with a status."""

    def act(handler: _Handler) -> None:
        handler.swallow()
        handler.answer(code, data, {k.replace("_", "-"): v for k, v in headers.items()})

    return act


def reset(handler: _Handler) -> None:
    """Breaks the connection without an answer."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.connection.close()


def reset_after(taken: int, *, keep: bool = True) -> Handling:
    """Takes some bytes of an upload, then breaks the connection."""

    def act(handler: _Handler) -> None:
        data = handler.rfile.read(taken)
        if keep:
            upload = urlsplit(handler.path).path.rpartition("/")[2]
            handler.registry_.uploads[upload] += data
        reset(handler)

    return act


def cut(data: bytes, announced: int | None = None, code: int = 200, **headers: str) -> Handling:
    """Sends ``data``, announced as longer, and closes."""

    def act(handler: _Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if announced is not None:
            handler.send_header("Content-Length", str(announced))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    return act


def endless(handler: _Handler) -> None:
    """Sends without an end, as long as somebody reads."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        return


def html(code: int = 200) -> Handling:
    """A page, as login forms and proxies give."""
    page = b"<html><body>Please log in</body></html>"

    def act(handler: _Handler) -> None:
        handler.swallow()
        handler.answer(code, page, {"Content-Type": "text/html; charset=utf-8"})

    return act


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry_: FakeRegistry
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def swallow(self) -> bytes:
        """Reads the request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(
        self, code: int, data: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _serve(self) -> None:
        registry = self.registry_
        size = int(self.headers.get("Content-Length") or 0)
        with registry.lock:
            registry.requests.append(
                Request(self.command, self.path, dict(self.headers.items()), size)
            )
            line = f"{self.command} {self.path}"
            fault = next((f for f in registry.faults if f.times and f.when in line), None)
            if fault is not None:
                fault.times -= 1
        if fault is not None:
            fault.act(self)
        elif self.path.startswith("/token"):
            self._token()
        elif not self._allowed():
            self.swallow()
            self.answer(401, _error("UNAUTHORIZED", "authentication required"), self._challenge())
        else:
            self._dispatch()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _serve

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        if self.registry_.token:
            return given == f"Bearer {self.registry_.token}"
        if self.registry_.basic:
            wanted = base64.b64encode(self.registry_.basic.encode()).decode()
            return given == f"Basic {wanted}"
        return True

    def _challenge(self) -> dict[str, str]:
        if self.registry_.token:
            realm = f"http://{self.registry_.host}/token"
            value = f'Bearer realm="{realm}",service="fake",scope="x"'
        else:
            value = 'Basic realm="fake"'
        return {"WWW-Authenticate": value, "Content-Type": "application/json"}

    def _token(self) -> None:
        self.swallow()
        self.answer(200, json.dumps({"token": self.registry_.token}).encode())

    def _dispatch(self) -> None:
        path = urlsplit(self.path).path
        if path == "/v2/":
            self.answer(200, b"{}", {"Content-Type": "application/json"})
            return
        for pattern, act in (
            (r"/v2/(.+)/blobs/uploads/([^/]*)", self._upload),
            (r"/v2/(.+)/blobs/([^/]+)", self._blob),
            (r"/v2/(.+)/manifests/([^/]+)", self._manifest),
            (r"/v2/(.+)/referrers/([^/]+)", self._referrers),
        ):
            found = re.fullmatch(pattern, path)
            if found:
                act(found[1], found[2])
                return
        self.answer(404)

    def _blob(self, repository: str, digest: str) -> None:
        data = self.registry_.blobs.get((repository, digest))
        if data is None:
            self.answer(404, _error("BLOB_UNKNOWN", "blob unknown to registry"))
            return
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            start = int(asked[6:].partition("-")[0])
            place = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.answer(206, data[start:], {"Content-Range": place})
        else:
            head = {"Content-Length": str(len(data))} if self.command == "HEAD" else {}
            self.answer(200, data, head)

    def _upload(self, repository: str, name: str) -> None:
        registry = self.registry_
        query = parse_qs(urlsplit(self.path).query)
        if int(self.headers.get("Content-Length") or 0) > registry.most:
            self.close_connection = True
            self.answer(413, b"", {"Connection": "close"})
            return
        if self.command == "POST":
            self._begin(repository, query)
        elif name not in registry.uploads:
            self.swallow()
            self.answer(404, _error("BLOB_UPLOAD_UNKNOWN", "upload unknown"))
        elif self.command == "GET":
            self.answer(204, b"", self._progress(repository, name))
        elif self.command == "PATCH":
            start = int(self.headers["Content-Range"].partition("-")[0])
            data = self.swallow()
            if start != len(registry.uploads[name]):
                self.answer(416, b"", self._progress(repository, name))
                return
            registry.uploads[name] += data
            self.answer(202, b"", self._progress(repository, name))
        else:
            registry.uploads[name] += self.swallow()
            self._finish(repository, name, query["digest"][0])

    def _begin(self, repository: str, query: dict[str, list[str]]) -> None:
        registry = self.registry_
        self.swallow()
        if "mount" in query:
            data = registry.blobs.get((query["from"][0], query["mount"][0]))
            if data is not None:
                registry.put(repository, data)
                self.answer(201)
                return
        with registry.lock:
            name = f"u{registry.begun}"
            registry.begun += 1
            registry.uploads[name] = bytearray()
        self.answer(202, b"", {"Location": f"/v2/{repository}/blobs/uploads/{name}"})

    def _progress(self, repository: str, name: str) -> dict[str, str]:
        last = max(0, len(self.registry_.uploads[name]) - 1)
        place = f"/v2/{repository}/blobs/uploads/{name}"
        return {"Location": place, "Range": f"0-{last}"}

    def _finish(self, repository: str, name: str, digest: str) -> None:
        data = bytes(self.registry_.uploads.pop(name))
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            self.answer(400, _error("DIGEST_INVALID", "provided digest did not match"))
            return
        self.registry_.put(repository, data)
        self.answer(201, b"", {"Docker-Content-Digest": digest})

    def _manifest(self, repository: str, target: str) -> None:
        registry = self.registry_
        if self.command == "PUT":
            data = self.swallow()
            digest = registry.put_manifest(
                repository, target, self.headers.get("Content-Type", ""), data
            )
            subject = json.loads(data).get("subject")
            more = {"OCI-Subject": subject["digest"]} if subject and registry.referrers else {}
            self.answer(201, b"", {"Docker-Content-Digest": digest, **more})
            return
        found = registry.manifests.get((repository, target))
        if found is None:
            self.answer(404, _error("MANIFEST_UNKNOWN", "manifest unknown"))
            return
        kind, data = found
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        head = {"Content-Type": kind, "Docker-Content-Digest": digest}
        if self.command == "HEAD":
            head["Content-Length"] = str(len(data))
        self.answer(200, data, head)

    def _referrers(self, repository: str, subject: str) -> None:
        if not self.registry_.referrers:
            self.answer(404, b"404 page not found", {"Content-Type": "text/plain"})
            return
        entries = []
        for (name, target), (kind, data) in self.registry_.manifests.items():
            document = json.loads(data)
            mine = name == repository and target.startswith("sha256:")
            if mine and (document.get("subject") or {}).get("digest") == subject:
                entries.append(
                    {
                        "mediaType": kind,
                        "digest": target,
                        "size": len(data),
                        "artifactType": document.get("artifactType", ""),
                    }
                )
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
        self.answer(200, json.dumps(index).encode(), {"Content-Type": INDEX})


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()
