"""Image references: docker's grammar and defaults."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import Digest
from hq.model.errors import UsageError
from hq.oci.reference import Reference, parse_reference

DIGEST = Digest.from_hex("ab" * 32)

components = st.from_regex(r"[a-z0-9]{1,8}((\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}", fullmatch=True)
hosts = st.from_regex(
    r"([a-zA-Z0-9]{1,5}(-[a-z0-9]{1,3})?\.[a-z0-9]{1,5}|localhost|\[::1\])(:[0-9]{1,5})?",
    fullmatch=True,
)
tags = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True)
references = st.builds(
    Reference,
    registry=hosts,
    repository=st.lists(components, min_size=1, max_size=4).map("/".join),
    tag=st.just("") | tags,
    digest=st.none() | st.just(DIGEST),
)


@given(references)
def test_what_is_written_is_read_again(reference: Reference) -> None:
    assert parse_reference(str(reference)) == reference


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_a_clear_refusal(text: str) -> None:
    try:
        found = parse_reference(text)
    except UsageError as error:
        assert error.message.startswith(f"{text!r} is no image reference: ")
        assert error.hint
    else:
        assert parse_reference(str(found)) == found


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("debian", "docker.io", "library/debian", ""),
        ("debian:13", "docker.io", "library/debian", "13"),
        ("team/image", "docker.io", "team/image", ""),
        ("index.docker.io/debian", "docker.io", "library/debian", ""),
        ("localhost/image", "localhost", "image", ""),
        ("localhost:5000/image:1", "localhost:5000", "image", "1"),
        ("registry.example/a/b/c", "registry.example", "a/b/c", ""),
        ("REGISTRY/image", "REGISTRY", "image", ""),
        ("[::1]:5000/image", "[::1]:5000", "image", ""),
    ],
)
def test_the_parts_are_dockers(text: str, registry: str, repository: str, tag: str) -> None:
    assert parse_reference(text) == Reference(registry, repository, tag)


def test_a_digest_wins_over_a_tag() -> None:
    both = parse_reference(f"localhost:5000/image:1@{DIGEST}")
    assert both.target == DIGEST
    assert both._replace(digest=None).target == "1"
    assert both._replace(digest=None, tag="").target == "latest"
    assert str(both.at(DIGEST)) == f"localhost:5000/image@{DIGEST}"
    assert str(both.tagged("2")) == "localhost:5000/image:2"


def test_docker_hub_answers_elsewhere() -> None:
    assert parse_reference("debian").endpoint == "registry-1.docker.io"
    assert parse_reference("localhost:5000/image").endpoint == "localhost:5000"


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    return caught.value.render()


FORM = "\n  expected: [HOST[:PORT]/]REPOSITORY[:TAG][@sha256:DIGEST]\n  help: "


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("Image", "'Image' is no repository name", "repository names are in lower case"),
        (
            "a//b",
            "'a//b' is no repository name",
            "use a-z, 0-9 and '/', with single '.', '_' or '-' between them",
        ),
        (
            "https://registry.example/a",
            "'https:' is no host name",
            "give HOST or HOST:PORT, and no scheme",
        ),
        (
            "a:-x",
            "'-x' is no tag",
            "a tag has at most 128 letters, digits and _.-, and begins with no . or -",
        ),
        (
            "a@sha256:12",
            "'sha256:12' is no digest",
            "a digest is 'sha256:' and 64 lowercase hex digits",
        ),
        ("a" * 260, "the name has more than 255 characters", "choose a shorter one"),
    ],
)
def test_refusals_say_which_part(text: str, what: str, hint: str) -> None:
    assert refusal(text) == f"error: {text!r} is no image reference: {what}{FORM}{hint}"
