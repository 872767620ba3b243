"""Names of images in registries, as Docker writes them.

Grammar, after the distribution project's ``reference`` package::

    reference  = name [ ":" tag ] [ "@" digest ]
    name       = [ host [ ":" port ] "/" ] component *( "/" component )
    component  = alnum *( separator alnum )        alnum: a-z 0-9; separator: "." "_" "__" "-"+
    tag        = word *127( word | "." | "-" )     word: A-Z a-z 0-9 "_"
    digest     = "sha256:" 64 hexadecimal digits

The first part is a host only if it has a dot or a colon, is ``localhost`` or has an upper-case
letter; without a host the name is Docker Hub's, and there a name of one component lies below
``library/``. A tag is not filled in here: what no tag means is the command's decision.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hq.model.digest import Digest, DigestError
from hq.model.errors import UsageError

HUB: Final = "docker.io"
_HUB_ENDPOINT: Final = "registry-1.docker.io"
_FORM: Final = "[HOST[:PORT]/]REPOSITORY[:TAG][@sha256:DIGEST]"
_LONGEST: Final = 255

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Reference(NamedTuple):
    """An image's name. ``tag`` is empty and ``digest`` ``None`` when they were not given."""

    registry: str
    repository: str
    tag: str = ""
    digest: Digest | None = None

    @property
    def endpoint(self) -> str:
        """The host, with its port, that answers for the registry."""
        return _HUB_ENDPOINT if self.registry == HUB else self.registry

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def target(self) -> str:
        """What a manifest is asked for by: the digest, else the tag (``latest`` if none)."""
        return self.digest or self.tag or "latest"

    def at(self, digest: Digest) -> Reference:
        """The same repository by digest."""
        return self._replace(tag="", digest=digest)

    def tagged(self, tag: str) -> Reference:
        """The same repository by tag. Raises ``UsageError`` for what is no tag."""
        return self._replace(tag=check_tag(tag), digest=None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Reads a reference. Raises ``UsageError`` that says which part is wrong."""
    rest, at, digest_text = text.partition("@")
    digest = _digest(text, digest_text) if at else None
    registry, path = _split_host(rest)
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(text, f"{tag!r} is no tag", _TAG_HINT)
    if not _HOST.fullmatch(registry):
        raise _wrong(text, f"{registry!r} is no host name", "give HOST or HOST:PORT, and no scheme")
    if not _REPOSITORY.fullmatch(path):
        raise _wrong(text, f"{path!r} is no repository name", _repository_hint(path))
    if registry in (HUB, "index.docker.io"):
        registry = HUB
        path = path if "/" in path else f"library/{path}"
    if len(registry) + 1 + len(path) > _LONGEST:
        raise _wrong(text, f"the name has more than {_LONGEST} characters", "choose a shorter one")
    return Reference(registry, path, tag, digest)


_TAG_HINT: Final = "a tag has at most 128 letters, digits and _.-, and begins with no . or -"


def check_tag(tag: str) -> str:
    """``tag``, if it is one. Raises ``UsageError``."""
    if not _TAG.fullmatch(tag):
        raise UsageError(f"{tag!r} is no tag", hint=_TAG_HINT)
    return tag


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and (any(c in first for c in ".:[") or first == "localhost" or first.lower() != first):
        return first, rest
    return HUB, name


def _digest(text: str, digest: str) -> Digest:
    try:
        return Digest.parse(digest)
    except DigestError:
        raise _wrong(
            text, f"{digest!r} is no digest", "a digest is 'sha256:' and 64 lowercase hex digits"
        ) from None


def _repository_hint(path: str) -> str:
    if path.lower() != path:
        return "repository names are in lower case"
    return "use a-z, 0-9 and '/', with single '.', '_' or '-' between them"


def _wrong(text: str, what: str, hint: str) -> UsageError:
    return UsageError(
        f"{text!r} is no image reference: {what}", details=[f"expected: {_FORM}"], hint=hint
    )
