"""Credentials from Docker's configuration, challenges, tokens."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeregistry import FakeRegistry, Fault, fake_registry, html, status
from hq.model.errors import HqError, InfrastructureError, UsageError
from hq.oci.reference import Reference
from hq.transfer.auth import Authenticator, parse_challenges, push_scope
from hq.transfer.credentials import Credentials, find_credentials
from hq.transfer.http import Http
from hq.transfer.registry import Registry

HOST = "registry.example:5000"


def config(folder: Path, document: object) -> dict[str, str]:
    (folder / "config.json").write_text(json.dumps(document))
    return {"DOCKER_CONFIG": str(folder), "PATH": f"{folder}:/usr/bin:/bin"}


def auth(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def found(environment: dict[str, str], host: str = HOST) -> tuple[str, str, str] | None:
    credentials = find_credentials(environment, host)
    return credentials and (credentials.username, credentials.password, credentials.token)


def helper(folder: Path, name: str, script: str) -> None:
    path = folder / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


# Docker's configuration.


def test_no_file_is_no_credentials(tmp_path: Path) -> None:
    assert found({"DOCKER_CONFIG": str(tmp_path)}) is None
    assert found({"HOME": str(tmp_path)}) is None


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/", f"http://{HOST}"])
def test_auths_by_host_or_old_url(tmp_path: Path, key: str) -> None:
    environment = config(tmp_path, {"auths": {key: {"auth": auth("me:a:b")}}})
    assert found(environment) == ("me", "a:b", "")
    assert found(environment, "other.example") is None


def test_the_home_folder_is_the_default(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    config(tmp_path / ".docker", {"auths": {HOST: {"auth": auth("me:x")}}})
    assert found({"HOME": str(tmp_path)}) == ("me", "x", "")


def test_docker_hub_has_a_name_of_its_own(tmp_path: Path) -> None:
    key = "https://index.docker.io/v1/"
    environment = config(tmp_path, {"auths": {key: {"auth": auth("me:x")}}})
    assert found(environment, "docker.io") == ("me", "x", "")


def test_an_identity_token(tmp_path: Path) -> None:
    entry = {"auth": auth("me:"), "identitytoken": "tok"}
    assert found(config(tmp_path, {"auths": {HOST: entry}})) == ("me", "", "tok")


def test_a_helper_is_asked(tmp_path: Path) -> None:
    answer = json.dumps({"ServerURL": HOST, "Username": "me", "Secret": "x"})
    helper(tmp_path, "one", f'[ "$1" = get ] && [ "$(cat)" = {HOST} ] && echo \'{answer}\'')
    assert found(config(tmp_path, {"credHelpers": {HOST: "one"}})) == ("me", "x", "")
    assert found(config(tmp_path, {"credsStore": "one"})) == ("me", "x", "")
    assert found(config(tmp_path, {"credHelpers": {HOST: "one"}}), "other.example") is None


def test_a_helpers_token(tmp_path: Path) -> None:
    helper(tmp_path, "one", 'echo \'{"Username": "<token>", "Secret": "tok"}\'')
    assert found(config(tmp_path, {"credsStore": "one"})) == ("", "", "tok")


def test_a_helper_that_knows_nothing(tmp_path: Path) -> None:
    helper(tmp_path, "one", "echo 'credentials not found in native keychain'; exit 1")
    assert found(config(tmp_path, {"credsStore": "one"})) is None


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    credentials = find_credentials(
        config(tmp_path, {"auths": {HOST: {"auth": auth("me:hush")}}}), HOST
    )
    assert "hush" not in repr(credentials)
    assert "hush" not in f"{credentials}"


def refusal(kind: type[HqError], environment: dict[str, str]) -> str:
    with pytest.raises(kind) as caught:
        found(environment)
    return caught.value.render().replace(environment["DOCKER_CONFIG"], "DIR")


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert refusal(UsageError, {"DOCKER_CONFIG": str(tmp_path)}) == (
        "error: Docker's configuration is not a JSON object\n  at: DIR/config.json\n"
        "  help: mend the file, or name another folder with DOCKER_CONFIG"
    )


def test_an_entry_that_is_no_base64(tmp_path: Path) -> None:
    assert refusal(UsageError, config(tmp_path, {"auths": {HOST: {"auth": "???"}}})) == (
        f"error: the entry for {HOST} is not base64 of 'user:password'\n  at: DIR/config.json\n"
        f"  help: run 'docker login {HOST}' again"
    )


def test_a_helper_that_is_not_there(tmp_path: Path) -> None:
    assert refusal(UsageError, config(tmp_path, {"credsStore": "gone"})) == (
        "error: the credential helper docker-credential-gone is not on the path\n"
        "  at: DIR/config.json\n  help: install it, or take its name out of the file"
    )


def test_a_helper_with_a_path_for_a_name(tmp_path: Path) -> None:
    assert refusal(UsageError, config(tmp_path, {"credsStore": "../x"})) == (
        "error: '../x' is no name of a credential helper\n  at: DIR/config.json"
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo secret; exit 3", "it ended with status 3"),
        ("echo secret", "its answer is not what is expected"),
    ],
)
def test_a_helper_that_fails(tmp_path: Path, script: str, why: str) -> None:
    helper(tmp_path, "one", script)
    assert refusal(InfrastructureError, config(tmp_path, {"credsStore": "one"})) == (
        f"error: the credential helper docker-credential-one failed: {why}\n"
        "  at: DIR/config.json\n  help: run 'docker-credential-one get' by hand, with the "
        "registry's name on standard input"
    )


# Challenges.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Basic realm=\"x\"", [("basic", {"realm": "x"})]),
        ("basic", [("basic", {})]),
        (
            'Bearer realm="https://a/t?x=1",service="s",scope="repository:a/b:pull,push"',
            [("bearer", {"realm": "https://a/t?x=1", "service": "s",
                         "scope": "repository:a/b:pull,push"})],
        ),
        (
            'Bearer realm="a\\"b" , service=s, Basic realm=z',
            [("bearer", {"realm": 'a"b', "service": "s"}), ("basic", {"realm": "z"})],
        ),
        ("", []),
        ("=?=", []),
    ],
)  # fmt: skip
def test_challenges(value: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(c.scheme, c.params) for c in parse_challenges([value])] == expected


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_challenge_is_read_without_harm(values: list[str]) -> None:
    assert isinstance(parse_challenges(values), list)


# Talking to a registry.


def client(
    registry: FakeRegistry,
    credentials: Credentials | None = None,
    sleeps: list[float] | None = None,
) -> Registry:
    http = Http({}, sleep=(sleeps if sleeps is not None else []).append)
    reference = Reference(registry.host, "r")
    return Registry(http, reference, Authenticator(http, registry.host, credentials))


ME = Credentials("me", "hush", "", "/there/config.json")
SCOPES = (push_scope("r"),)


def denial(found: Registry) -> str:
    with pytest.raises(UsageError) as caught:
        found.ping(SCOPES)
        found.manifest("r", "x", SCOPES)
    found.close()
    assert caught.value.exit_code == 2
    return caught.value.render()


def test_basic() -> None:
    with fake_registry() as registry:
        registry.basic = "me:hush"
        found = client(registry, ME)
        found.ping(SCOPES)
        assert found.manifest("r", "x", SCOPES) is None
        found.close()


def test_a_token_for_the_scope() -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        found = client(registry, ME)
        found.ping(SCOPES)
        assert found.manifest("r", "x", SCOPES) is None
        assert found.manifest("r", "y", SCOPES) is None
        found.close()
        asked = [r for r in registry.requests if r.path.startswith("/token")]
        assert [r.path for r in asked] == ["/token?service=fake&scope=repository%3Ar%3Apull%2Cpush"]
        assert asked[0].headers["Authorization"] == ME.basic


def test_a_token_without_credentials() -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        found = client(registry)
        found.ping(SCOPES)
        found.close()
        asked = [r for r in registry.requests if r.path.startswith("/token")]
        assert "Authorization" not in asked[0].headers


def test_a_token_for_an_identity_token() -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        found = client(registry, Credentials("", "", "identity", "x"))
        found.ping(SCOPES)
        assert found.manifest("r", "x", SCOPES) is None
        found.close()
        assert registry.count("POST /token") == 1


def test_a_token_that_ran_out_is_asked_for_again() -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        found = client(registry, ME)
        found.ping(SCOPES)
        registry.token = "t2"
        assert found.manifest("r", "x", SCOPES) is None
        found.close()
        assert registry.count("GET /token") == 2


def test_no_credentials() -> None:
    with fake_registry() as registry:
        registry.basic = "me:hush"
        assert denial(client(registry)) == (
            f"error: {registry.host} wants credentials to use it, and there are none\n"
            "  registry: UNAUTHORIZED: authentication required\n"
            f"  help: run 'docker login {registry.host}', or name a folder with Docker's "
            "config.json in DOCKER_CONFIG"
        )


def test_wrong_credentials() -> None:
    with fake_registry() as registry:
        registry.basic = "me:other"
        assert denial(client(registry, ME)) == (
            f"error: {registry.host} does not take the credentials to use it\n"
            "  credentials: /there/config.json\n"
            "  registry: UNAUTHORIZED: authentication required\n"
            f"  help: run 'docker login {registry.host}' again"
        )


def test_a_right_that_is_missing() -> None:
    body = json.dumps({"errors": [{"code": "DENIED", "message": "not\x1b[31m you"}]}).encode()
    with fake_registry() as registry:
        registry.faults = [Fault("GET /v2/r", status(403, body))]
        assert denial(client(registry, ME)) == (
            f"error: {registry.host} does not allow this user to read r:x\n"
            "  credentials: /there/config.json\n  registry: DENIED: not[31m you\n"
            "  help: check the repository's name, or ask its owner for the right"
        )


def test_a_token_server_that_refuses() -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        registry.faults = [Fault("GET /token", status(401))]
        assert denial(client(registry, ME)).startswith(
            f"error: {registry.host} does not take the credentials to get a token for "
            "repository:r:pull,push\n"
        )


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b'{"token": 3}', b'{"token": "a\\nb"}'])
def test_a_token_server_that_talks_nonsense(answer: bytes) -> None:
    with fake_registry() as registry:
        registry.token = "t1"
        registry.faults = [Fault("GET /token", status(200, answer))]
        found = client(registry, ME)
        with pytest.raises(InfrastructureError) as caught:
            found.ping(SCOPES)
        found.close()
        assert caught.value.message == f"{registry.host} gives no token for {registry.host}"


def test_credentials_are_not_sent_in_the_clear_to_a_stranger() -> None:
    challenge = 'Bearer realm="http://collector.example/token",service="s"'
    with fake_registry() as registry:
        registry.faults = [Fault("GET /v2/", status(401, b"", WWW_Authenticate=challenge))]
        http = Http({}, sleep=lambda _: None)
        found = Registry(
            http,
            Reference(registry.host, "r"),
            # As if the registry were one with TLS.
            Authenticator(http, "registry.example", ME),
        )
        with pytest.raises(InfrastructureError) as caught:
            found.ping(SCOPES)
        found.close()
        assert caught.value.message == "registry.example sends for a token to a place without TLS"
        assert caught.value.details == ("place: http://collector.example",)


def test_what_is_no_registry() -> None:
    with fake_registry() as registry:
        registry.faults = [Fault("GET /v2/", html())]
        found = client(registry)
        with pytest.raises(InfrastructureError) as caught:
            found.ping(SCOPES)
        found.close()
        assert caught.value.render() == (
            f"error: {registry.host} is no registry: it answers /v2/ with status 200\n"
            "  registry: an HTML page, which is no registry's answer\n"
            "  help: check the name and the port; a proxy may answer in the registry's place"
        )
