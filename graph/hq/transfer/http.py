"""HTTP with a registry: one request, tried again while that may help, and answers with limits.

Over urllib3, because it does no more than it is told: no redirect, retry, cookie or netrc file
happens behind the caller's back.

* **Retries.** Connections that fail or break, 429, 408 and 5xx are tried again with growing pauses
  (``Retry-After`` is heeded up to a minute). The body of a request can be made again, so it is.
* **Redirects.** Followed by hand. ``Authorization`` stays with the origin that it was meant for: a
  registry may send the reader to a storage host that must not see it. Never from https to http.
* **Transport.** Plain http only for this machine, or where the user asks for it. Certificates come
  from the user's environment (``hq.transfer.tls``), proxies from ``https_proxy``, ``http_proxy``,
  ``all_proxy`` and ``no_proxy``.
* **Answers.** Content is read as it was sent, in pieces, and never beyond a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urljoin, urlsplit

from hq.model.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

ATTEMPTS: Final = 5
_PAUSE: Final = 0.25  # seconds before the second attempt; doubled before each further one
_LONGEST_PAUSE: Final = 60.0
_CONNECT: Final = 15.0
_READ: Final = 90.0
_REDIRECTS: Final = 5
_PIECE: Final = 256 << 10
_TRANSIENT: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_REDIRECT: Final = frozenset((301, 302, 303, 307, 308))

Origin = tuple[str, str]
Sleep = Callable[[float], None]


class Body(NamedTuple):
    """What a request sends: ``pieces`` makes it anew for each attempt; ``size`` in bytes."""

    pieces: Callable[[], Iterable[bytes | memoryview]]
    size: int

    @classmethod
    def of(cls, data: bytes) -> Body:
        """A body of bytes."""
        return cls(lambda: (data,), len(data))


class Broken(Exception):
    """A connection failed, or ended in the middle of an answer. Trying again may help."""


class Unreachable(InfrastructureError):
    """A host does not answer, or answers with a failure of its own. Later it may."""


class TooLong(Exception):
    """An answer is longer than it may be."""


class Answer:
    """A response. Close it, or use it as a context manager, if it is not read to the end."""

    def __init__(self, response: BaseHTTPResponse, url: str) -> None:
        self._response = response
        self.url = url
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def challenges(self) -> list[str]:
        """The values of ``WWW-Authenticate``."""
        return self._response.headers.getlist("WWW-Authenticate")

    def pieces(self) -> Iterator[bytes]:
        """The content, piece by piece. Raises ``Broken``."""
        from urllib3.exceptions import HTTPError

        try:
            yield from self._response.stream(_PIECE, decode_content=False)
            self._ended = True
        except (HTTPError, OSError) as error:
            raise Broken(_reason(error)) from error
        finally:
            self.close()

    def read(self, limit: int) -> bytes:
        """The whole content. Raises ``TooLong`` beyond ``limit`` bytes, and ``Broken``."""
        found = bytearray()
        for piece in self.pieces():
            found += piece
            if len(found) > limit:
                raise TooLong(f"more than {limit} bytes")
        return bytes(found)

    def drain(self) -> None:
        """Reads a short content away, so that the connection can be used again."""
        try:
            self.read(64 << 10)
        except (Broken, TooLong):
            self.close()

    def close(self) -> None:
        """Gives the connection back; drops it when content is left."""
        if self._ended or self._response.length_remaining == 0:
            self._response.release_conn()
        else:
            self._response.close()

    @property
    def length(self) -> int | None:
        """``Content-Length``, if it is there and a number."""
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


class Http:
    """Requests to one registry and to the hosts that it names. For any number of threads.

    ``plain_http``: hosts (with port) that may be spoken to without TLS, besides this machine.
    ``environment``: where proxies and certificates are looked up. ``sleep``: how to pause.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        plain_http: Iterable[str] = (),
        sleep: Sleep = time.sleep,
        connections: int = 8,
    ) -> None:
        self._environment = environment
        self._plain = frozenset(plain_http)
        self._sleep = sleep
        self._connections = connections
        self._pools: dict[str, PoolManager] = {}
        self._lock = threading.Lock()
        self.sent = 0

    def close(self) -> None:
        """Closes every connection."""
        with self._lock:
            for pool in self._pools.values():
                pool.clear()
            self._pools.clear()

    def base(self, host: str) -> str:
        """``https://HOST``, or ``http://HOST`` where that is permitted."""
        return f"{'http' if self.is_plain(host) else 'https'}://{host}"

    def is_plain(self, host: str) -> bool:
        """Whether ``host`` (with port) may be spoken to without TLS."""
        return host in self._plain or is_local(host)

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str = "",
        origin: Origin | None = None,
        body: Body | None = None,
        attempts: int = ATTEMPTS,
    ) -> Answer:
        """One request; the answer may have any status that a retry would not help.

        ``authorization`` is sent only to ``origin`` (``url``'s by default).
        Raises ``Unreachable`` when the host cannot be reached or keeps failing.
        """
        origin = origin or origin_of(url)
        for attempt in range(1, attempts + 1):
            last = attempt == attempts
            try:
                answer = self._once(method, url, headers or {}, authorization, origin, body)
            except Broken as error:
                if last:
                    raise unreachable(url, str(error)) from error
                self._pause(attempt, "")
                continue
            if answer.status not in _TRANSIENT:
                return answer
            if last:
                raise failing(method, answer)
            retry_after = answer.headers.get("Retry-After", "")
            answer.drain()
            self._pause(attempt, retry_after)
        raise AssertionError("there is at least one attempt")

    def pause(self, attempt: int) -> None:
        """Waits as before the attempt after ``attempt``."""
        self._pause(attempt, "")

    def _pause(self, attempt: int, retry_after: str) -> None:
        seconds = _PAUSE * 2 ** (attempt - 1)
        if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 9:
            seconds = max(seconds, float(retry_after))
        self._sleep(min(seconds, _LONGEST_PAUSE))

    def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        authorization: str,
        origin: Origin,
        body: Body | None,
    ) -> Answer:
        for _ in range(_REDIRECTS + 1):
            given = {"Accept-Encoding": "identity", "User-Agent": "hq", **headers}
            if authorization and origin_of(url) == origin:
                given["Authorization"] = authorization
            answer = self._send(method, url, given, body)
            target = answer.headers.get("Location", "")
            if answer.status not in _REDIRECT or not target:
                return answer
            answer.drain()
            url = self._redirected(url, target)
        raise InfrastructureError(
            f"{origin_of(url)[1]} redirects in a circle",
            details=[f"more than {_REDIRECTS} redirects for one {method}"],
            hint="look at the registry, or at a proxy in between",
        )

    def _redirected(self, url: str, target: str) -> str:
        found = urljoin(url, target)
        scheme, host = origin_of(found)
        leaves_tls = scheme == "http" and (url.startswith("https:") or not self.is_plain(host))
        if scheme not in ("http", "https") or leaves_tls:
            raise InfrastructureError(
                f"{origin_of(url)[1]} redirects to a place without TLS",
                details=[f"place: {scheme}://{host}"],
                hint="look at the registry, or at a proxy in between",
            )
        return found

    def _send(self, method: str, url: str, headers: dict[str, str], body: Body | None) -> Answer:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        from hq.transfer.tls import tls_error

        data: Iterable[Any] | None = None
        if body is not None:
            headers = {**headers, "Content-Length": str(body.size)}
            data = self._counted(body)
        elif method in ("POST", "PUT", "PATCH"):
            headers = {**headers, "Content-Length": "0"}
        try:
            response = self._pool(url).request(
                method,
                url,
                headers=headers,
                body=data,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                timeout=Timeout(connect=_CONNECT, read=_READ),
            )
        except HTTPError as error:
            fatal = tls_error(_root(error), origin_of(url)[1])
            if fatal is not None:
                raise fatal from error
            raise Broken(_reason(error)) from error
        except OSError as error:
            raise Broken(_reason(error)) from error
        return Answer(response, url)

    def _counted(self, body: Body) -> Iterator[bytes | memoryview]:
        for piece in body.pieces():
            with self._lock:
                self.sent += len(piece)
            yield piece

    def _pool(self, url: str) -> PoolManager:
        scheme, host = origin_of(url)
        proxy = proxy_for(self._environment, scheme, host)
        with self._lock:
            key = f"{proxy} {host}" if scheme == "https" else proxy
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = self._make_pool(scheme, host, proxy)
            return pool

    def _make_pool(self, scheme: str, host: str, proxy: str) -> PoolManager:
        import urllib3

        from hq.transfer.tls import tls_context

        context = tls_context(self._environment, host) if scheme == "https" else None
        size = self._connections
        if not proxy:
            return urllib3.PoolManager(maxsize=size, ssl_context=context)
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"a proxy of the kind {parts.scheme or 'without a scheme'!r} is not supported",
                hint="give an http:// or https:// proxy in https_proxy, http_proxy or all_proxy",
            )
        headers = {}
        if parts.username:
            from urllib.parse import unquote

            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers = urllib3.make_headers(proxy_basic_auth=user)
        place = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        return urllib3.ProxyManager(
            place, maxsize=size, ssl_context=context, proxy_headers=headers or None
        )


def origin_of(url: str) -> Origin:
    """Scheme, and host with port, of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


def is_local(host: str) -> bool:
    """Whether ``host`` (with or without port) is this machine by name."""
    if host.startswith("["):
        return host.partition("]")[0] == "[::1"
    name = host.partition(":")[0].lower()
    octets = name.split(".")
    return name == "localhost" or (
        len(octets) == 4 and octets[0] == "127" and all(part.isdigit() for part in octets)
    )


def proxy_for(environment: Mapping[str, str], scheme: str, host: str) -> str:
    """The proxy's URL for a host, or nothing. This machine is never reached through one."""
    import urllib.request

    def value(name: str) -> str:
        return environment.get(name) or environment.get(name.upper(), "")

    proxy = value(f"{scheme}_proxy") or value("all_proxy")
    if not proxy or is_local(host):
        return ""
    excluded = value("no_proxy")
    bypass: Callable[[str, dict[str, str]], bool] = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]
    if excluded and bypass(host, {"no": excluded}):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _root(error: BaseException) -> BaseException:
    seen = {id(error)}
    while True:
        inner = error.args[-1] if error.args else None
        below = error.__cause__ or error.__context__
        if not isinstance(below, BaseException):
            below = inner if isinstance(inner, BaseException) else None
        reason = getattr(error, "reason", None)
        if below is None and isinstance(reason, BaseException):
            below = reason
        if below is None or id(below) in seen:
            return error
        seen.add(id(below))
        error = below


def _reason(error: BaseException) -> str:
    """What went wrong in a few words, without addresses of objects."""
    import socket

    from urllib3.exceptions import IncompleteRead, NewConnectionError
    from urllib3.exceptions import TimeoutError as Late

    # urllib3 counts a refused connection among the timeouts.
    if isinstance(error, Late) and not isinstance(error, NewConnectionError):
        return "no answer in time"
    if isinstance(error, IncompleteRead):
        return "the answer ended early"
    cause = _root(error)
    if isinstance(cause, socket.gaierror):
        return "the host name is not known"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(cause, IncompleteRead) or "IncompleteRead" in str(error):
        return "the answer ended early"
    return "the connection was closed" if "without response" in str(error) else str(cause)


def unreachable(url: str, reason: str) -> Unreachable:
    """The error for a host that does not answer."""
    host = origin_of(url)[1]
    return Unreachable(
        f"cannot reach {host}: {reason}",
        hint="check the name, the network and the proxy (https_proxy, no_proxy); then run hq again",
    )


def failing(method: str, answer: Answer) -> Unreachable:
    """The error for a host that keeps answering with a failure."""
    host = origin_of(answer.url)[1]
    status = answer.status
    message = said(answer)
    what = "has too much to do" if status == 429 else "fails"
    return Unreachable(
        f"{host} {what}: it answers {method} with status {status}",
        details=[f"registry: {line}" for line in message],
        hint="try again later; if it stays, ask who runs the registry",
    )


_MOST_LINES: Final = 4
_LONGEST_LINE: Final = 200


def said(answer: Answer) -> list[str]:
    """What an error answer says, in a few short lines; nothing for a page that is no registry's."""
    import json

    try:
        data = answer.read(64 << 10)
    except (Broken, TooLong):
        return []
    try:
        errors = json.loads(data)["errors"]
        lines = [f"{entry['code']}: {entry.get('message') or ''}" for entry in errors]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kind = answer.headers.get("Content-Type", "")
        if "html" in kind or data.lstrip()[:1] == b"<":
            return ["an HTML page, which is no registry's answer"]
        lines = data.decode("utf-8", "replace").splitlines()
    return [_clean(line)[:_LONGEST_LINE] for line in lines[:_MOST_LINES] if _clean(line)]


def _clean(line: str) -> str:
    # A hostile answer must not steer the terminal.
    return "".join(c for c in line if c.isprintable()).strip(" :")
