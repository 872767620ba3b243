"""Who we are to a registry: nobody, a name with a password, or the bearer of a token.

The registry decides. Its first 401 names the scheme (RFC 9110, 11.6.1): ``Basic``, or ``Bearer``
as in the distribution project's token specification, where a token for a *scope* (a repository and
what is to be done there) comes from the address that the challenge names. Tokens are kept for their
scopes, and asked for again when the registry no longer takes them.

A challenge is a stranger's word: its address must be https, unless the registry itself is spoken to
without TLS, or the credentials would travel in the clear.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode

from hq.model.errors import HqError, InfrastructureError, UsageError
from hq.transfer.credentials import Credentials
from hq.transfer.http import Answer, Body, Broken, Http, TooLong, origin_of, said

_TOKEN_LIMIT: Final = 1 << 20
_CLIENT: Final = "hq"
_SCHEME = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]*)(?:\s+|$)")
_PARAM = re.compile(r'\s*,?\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_QUOTED = re.compile(r"\\(.)")


class Challenge(NamedTuple):
    """One challenge: the scheme in lower case, and its parameters."""

    scheme: str
    params: Mapping[str, str]


def parse_challenges(values: Iterable[str]) -> list[Challenge]:
    """Reads ``WWW-Authenticate``; what cannot be read is left out."""
    found: list[Challenge] = []
    for value in values:
        at = 0
        while scheme := _SCHEME.match(value, at):
            at = scheme.end()
            params: dict[str, str] = {}
            while param := _PARAM.match(value, at):
                at = param.end()
                quoted, plain = param[2], param[3]
                params[param[1].lower()] = plain if quoted is None else _QUOTED.sub(r"\1", quoted)
            found.append(Challenge(scheme[1].lower(), params))
    return found


def pull_scope(repository: str) -> str:
    """The scope for reading a repository."""
    return f"repository:{repository}:pull"


def push_scope(repository: str) -> str:
    """The scope for reading and writing a repository."""
    return f"repository:{repository}:pull,push"


class Authenticator:
    """The ``Authorization`` for requests to one registry. For any number of threads."""

    def __init__(self, http: Http, registry: str, credentials: Credentials | None) -> None:
        self._http = http
        self._registry = registry
        self._credentials = credentials
        self._challenge: Challenge | None = None
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def header(self, scopes: tuple[str, ...]) -> str:
        """What to send for these scopes by what is known so far; empty when nothing is asked."""
        with self._lock:
            if self._challenge is None:
                return ""
            if self._challenge.scheme == "basic":
                return self._credentials.basic if self._credentials else ""
            wanted = " ".join(scopes)
            if wanted not in self._tokens:
                self._tokens[wanted] = self._fetch(self._challenge, scopes)
            return f"Bearer {self._tokens[wanted]}"

    def accept(self, answer: Answer, scopes: tuple[str, ...], sent: str) -> bool:
        """Takes in a 401 for a request that bore ``sent``; whether it is worth asking again."""
        challenges = parse_challenges(answer.challenges())
        chosen = next((c for c in challenges if c.scheme == "bearer" and "realm" in c.params), None)
        if chosen is None:
            chosen = next((c for c in challenges if c.scheme == "basic"), None)
        with self._lock:
            if chosen is None or (chosen.scheme == "basic" and not self._credentials):
                return False
            known = self._challenge
            self._challenge = chosen
            if chosen.scheme == "basic":
                return not sent
            # Another thread may have a new token by now: ours was the old one then.
            wanted = " ".join(scopes)
            if known is not None and sent == f"Bearer {self._tokens.get(wanted, '')}":
                del self._tokens[wanted]
            return True

    def denied(self, answer: Answer, doing: str) -> HqError:
        """The error for a 401 or 403. ``doing``: what was tried, after "to"."""
        lines = [f"registry: {line}" for line in said(answer)]
        if self._credentials is None:
            return UsageError(
                f"{self._registry} wants credentials to {doing}, and there are none",
                details=lines,
                hint=f"run 'docker login {self._registry}', or name a folder with Docker's "
                "config.json in DOCKER_CONFIG",
            )
        origin = f"credentials: {self._credentials.origin}"
        if answer.status == 401:
            return UsageError(
                f"{self._registry} does not take the credentials to {doing}",
                details=[origin, *lines],
                hint=f"run 'docker login {self._registry}' again",
            )
        return UsageError(
            f"{self._registry} does not allow this user to {doing}",
            details=[origin, *lines],
            hint="check the repository's name, or ask its owner for the right",
        )

    def _fetch(self, challenge: Challenge, scopes: tuple[str, ...]) -> str:
        """A token. Raises ``HqError``."""
        realm = challenge.params["realm"]
        scheme, host = origin_of(realm)
        plain = self._http.is_plain(self._registry) or self._http.is_plain(host)
        if scheme != "https" and not (scheme == "http" and plain):
            raise InfrastructureError(
                f"{self._registry} sends for a token to a place without TLS",
                details=[f"place: {scheme}://{host}"],
                hint="ask who runs the registry",
            )
        answer = self._ask(realm, challenge.params.get("service", ""), scopes)
        if answer.status in (400, 401, 403):
            raise self.denied(answer, f"get a token for {' '.join(scopes)}")
        try:
            data = answer.read(_TOKEN_LIMIT)
            document = json.loads(data) if answer.status == 200 else {}
            token = document.get("token") or document.get("access_token")
        except (Broken, TooLong, ValueError, AttributeError, RecursionError):
            token = None
        # The token goes into a header: no control characters, whatever the server says.
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise InfrastructureError(
                f"{host} gives no token for {self._registry}",
                details=[f"status: {answer.status}"],
                hint="try again later; if it stays, ask who runs the registry",
            )
        return token

    def _ask(self, realm: str, service: str, scopes: tuple[str, ...]) -> Answer:
        credentials = self._credentials
        if credentials is not None and credentials.token:
            form = {
                "grant_type": "refresh_token",
                "service": service,
                "client_id": _CLIENT,
                "scope": " ".join(scopes),
                "refresh_token": credentials.token,
            }
            return self._http.request(
                "POST",
                realm,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=Body.of(urlencode(form).encode()),
            )
        query = [("service", service)] if service else []
        query += [("scope", scope) for scope in scopes]
        separator = "&" if "?" in realm else "?"
        return self._http.request(
            "GET",
            f"{realm}{separator}{urlencode(query)}",
            authorization=credentials.basic if credentials else "",
        )
