"""A patch as a commit and back: the canonical form of a series on a branch.

The message is the patch's header: the ``Subject`` first, the rest below, and last a line that keeps
the patch's name::

    Free align-mode states that lie before a null block

    Origin: own
    Kind: backport

    Why.

    Patch: mamba-align-retire-null-gaps.patch
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TRAILER = re.compile(r"(?m)^Patch: (\S+)\n?\Z")
_SUBJECT = re.compile(rb"Subject:[ \t]*(.*)\n?")


class Topic(NamedTuple):
    """A patch's file name and its header."""

    name: str
    preamble: bytes


def message(topic: Topic) -> str:
    """The commit's message."""
    match = _SUBJECT.match(topic.preamble)
    subject = match[1].decode("utf-8", "replace").strip() if match else ""
    rest = topic.preamble[match.end() :] if match else topic.preamble
    body = rest.decode("utf-8", "replace").strip("\n")
    stem = topic.name.rpartition("/")[2].removesuffix(".patch")
    parts = [subject or stem.replace("-", " "), *([body] if body else []), f"Patch: {topic.name}"]
    return "\n\n".join(parts) + "\n"


def topic(text: str, number: int) -> Topic:
    """The patch of a commit; one without a name in its message gets one from its subject."""
    text = text.strip("\n")
    trailer = _TRAILER.search(text)
    if trailer:
        text = text[: trailer.start()].strip("\n")
    subject, _, body = text.partition("\n")
    name = trailer[1] if trailer and _is_safe(trailer[1]) else _slug(subject, number)
    rest = body.strip("\n")
    head = f"Subject: {subject}\n" + (f"{rest}\n" if rest else "")
    return Topic(name, f"{head}\n".encode())


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return all(part and part[0] not in ".-" for part in parts) and name.endswith(".patch")


def _slug(subject: str, number: int) -> str:
    words = re.findall(r"[a-z0-9]+", subject.lower())
    return f"{number:04d}-{'-'.join(words)[:50].strip('-') or 'patch'}.patch"
