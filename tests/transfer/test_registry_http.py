"""Requests: retries, redirects, limits, transport."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fakeregistry import (
    FakeRegistry,
    Fault,
    cut,
    endless,
    fake_registry,
    html,
    reset,
    status,
)
from helpers.registry import free_port
from helpers.remote import client
from hq.model.digest import Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.oci.image import MANIFEST_TYPE
from hq.transfer.http import Http, Unreachable, is_local, origin_of, proxy_for
from hq.transfer.tls import tls_context

DATA = b'{"schemaVersion":2}'


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as made:
        made.put_manifest("r", "t", MANIFEST_TYPE, DATA)
        yield made


def read(registry: FakeRegistry, sleeps: list[float] | None = None, target: str = "t") -> bytes:
    found = client(registry.host, sleeps=sleeps)
    try:
        manifest = found.manifest("r", target)
    finally:
        found.close()
    assert manifest is not None
    return manifest.data


def failure(kind: type[HqError], registry: FakeRegistry, target: str = "t") -> HqError:
    with pytest.raises(kind) as caught:
        read(registry, target=target)
    return caught.value


# Retries.


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_passing_failures_are_tried_again(registry: FakeRegistry, code: int) -> None:
    registry.faults = [Fault("GET", status(code), 4)]
    sleeps: list[float] = []
    assert read(registry, sleeps) == DATA
    assert sleeps == [0.25, 0.5, 1.0, 2.0]


def test_a_broken_connection_too(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", reset, 4)]
    assert read(registry) == DATA


def test_an_answer_that_ends_early_too(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", cut(b'{"sch', 400), 4)]
    assert read(registry) == DATA


def test_the_registry_says_how_long_to_wait(registry: FakeRegistry) -> None:
    registry.faults = [
        Fault("GET", status(429, Retry_After="7")),
        Fault("GET", status(429, Retry_After="999999")),
        Fault("GET", status(429, Retry_After="soon")),
    ]
    sleeps: list[float] = []
    assert read(registry, sleeps) == DATA
    assert sleeps == [7.0, 60.0, 1.0]


def test_a_failure_that_stays(registry: FakeRegistry) -> None:
    body = b'{"errors": [{"code": "UNKNOWN", "message": "out of order"}]}'
    registry.faults = [Fault("GET", status(503, body), 9)]
    error = failure(Unreachable, registry)
    assert error.exit_code == 3
    assert error.render() == (
        f"error: {registry.host} fails: it answers GET with status 503\n"
        "  registry: UNKNOWN: out of order\n"
        "  help: try again later; if it stays, ask who runs the registry"
    )


def test_too_many_requests_that_stay(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", status(429), 9)]
    assert failure(Unreachable, registry).message == (
        f"{registry.host} has too much to do: it answers GET with status 429"
    )


def test_nobody_listens() -> None:
    host = f"localhost:{free_port()}"
    sleeps: list[float] = []
    found = client(host, sleeps=sleeps)
    with pytest.raises(InfrastructureError) as caught:
        found.manifest("r", "t")
    assert caught.value.render() == (
        f"error: cannot reach {host}: connection refused\n"
        "  help: check the name, the network and the proxy (https_proxy, no_proxy); "
        "then run hq again"
    )
    assert len(sleeps) == 4


def test_a_host_that_does_not_exist() -> None:
    found = client("no-such-host.invalid")
    with pytest.raises(InfrastructureError) as caught:
        found.manifest("r", "t")
    assert caught.value.message == "cannot reach no-such-host.invalid: the host name is not known"


# Answers that lie.


def test_other_content_under_a_digest(registry: FakeRegistry) -> None:
    digest = Digest.of(DATA)
    registry.manifests["r", digest] = (MANIFEST_TYPE, b"{}")
    error = failure(BuildError, registry, digest)
    assert error.render() == (
        f"error: {registry.host} gives other content than its name says, when asked to read "
        f"r@{digest}\n  expected: {digest}\n  found:    {Digest.of(b'{}')}\n"
        "  help: do not use it; ask who runs the registry, and look at proxies in between"
    )


def test_a_digest_that_is_not_the_contents(registry: FakeRegistry) -> None:
    other = Digest.of(b"other")
    head = {"Docker_Content_Digest": other, "Content_Type": MANIFEST_TYPE}
    registry.faults = [Fault("GET", status(200, DATA, **head))]
    assert failure(BuildError, registry).details[0] == f"expected: {other}"


@pytest.mark.parametrize("act", [endless, cut(b" " * (5 << 20))])
def test_a_manifest_without_an_end(registry: FakeRegistry, act: object) -> None:
    registry.faults = [Fault("GET", act)]  # type: ignore[arg-type]
    error = failure(InfrastructureError, registry)
    assert error.render() == (
        f"error: {registry.host} gives a wrong answer to the request to read r:t\n"
        "  it is more than 4194304 bytes long\n"
        "  help: run hq again; if it stays, look at the registry and at proxies in between"
    )


def test_a_page_instead_of_a_manifest(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", html())]
    assert failure(InfrastructureError, registry).details == (
        "an HTML page, which is no registry's answer",
    )


def test_a_page_with_an_odd_status(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", html(418))]
    assert failure(InfrastructureError, registry).render() == (
        f"error: {registry.host} refuses to read r:t: status 418\n"
        "  registry: an HTML page, which is no registry's answer\n"
        "  help: look at what the registry says; a proxy may answer in its place"
    )


# Redirects.


def test_a_redirect_to_another_host_bears_no_secret(registry: FakeRegistry) -> None:
    with fake_registry() as storage:
        storage.put_manifest("r", "t", MANIFEST_TYPE, DATA)
        target = f"http://{storage.host}/v2/r/manifests/t"
        registry.faults = [Fault("GET", status(307, Location=target))]
        http = Http({}, sleep=lambda _: None)
        url = f"http://{registry.host}/v2/r/manifests/t"
        with http.request("GET", url, authorization="Bearer hush") as answer:
            assert answer.read(1000) == DATA
        http.close()
        assert "Authorization" not in storage.requests[0].headers
        assert registry.requests[0].headers["Authorization"] == "Bearer hush"


def test_a_redirect_on_the_same_host_keeps_it(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", status(307, Location="/v2/r/manifests/t"))]
    http = Http({}, sleep=lambda _: None)
    url = f"http://{registry.host}/v2/r/manifests/other"
    with http.request("GET", url, authorization="Bearer hush") as answer:
        assert answer.read(1000) == DATA
    http.close()
    assert [r.headers["Authorization"] for r in registry.requests] == ["Bearer hush"] * 2


def test_redirects_in_a_circle(registry: FakeRegistry) -> None:
    registry.faults = [Fault("GET", status(307, Location="/v2/r/manifests/t"), 99)]
    assert failure(InfrastructureError, registry).render() == (
        f"error: {registry.host} redirects in a circle\n  more than 5 redirects for one GET\n"
        "  help: look at the registry, or at a proxy in between"
    )


@pytest.mark.parametrize("target", ["http://storage.example/x", "file:///etc/passwd"])
def test_a_redirect_without_tls(registry: FakeRegistry, target: str) -> None:
    registry.faults = [Fault("GET", status(307, Location=target))]
    error = failure(InfrastructureError, registry)
    assert error.message == f"{registry.host} redirects to a place without TLS"


# Transport.


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("[::1]:5000", True),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.example", False),
        ("registry.example", False),
        ("[::2]", False),
    ],
)
def test_only_this_machine_may_be_spoken_to_without_tls(host: str, local: bool) -> None:
    assert is_local(host) is local
    assert Http({}).base(host) == f"{'http' if local else 'https'}://{host}"
    assert Http({}, plain_http=[host]).base(host) == f"http://{host}"


def test_an_origin_is_scheme_and_host() -> None:
    assert origin_of("https://user:pw@host:1/x?y") == ("https", "host:1")


PROXIES = {
    "https_proxy": "http://proxy.example:3128",
    "HTTP_PROXY": "other.example:8080",
    "no_proxy": "inside.example,.corp.example",
}


@pytest.mark.parametrize(
    ("scheme", "host", "proxy"),
    [
        ("https", "registry.example", "http://proxy.example:3128"),
        ("http", "registry.example:5000", "http://other.example:8080"),
        ("https", "inside.example:5000", ""),
        ("https", "a.corp.example", ""),
        ("https", "localhost:5000", ""),
        ("http", "127.0.0.1:5000", ""),
    ],
)
def test_proxies_come_from_the_environment(scheme: str, host: str, proxy: str) -> None:
    assert proxy_for(PROXIES, scheme, host) == proxy
    assert proxy_for({}, scheme, host) == ""


def test_a_proxy_is_used() -> None:
    # The fake stands in for the proxy: it is asked for the whole address.
    with fake_registry() as proxy:
        proxy.faults = [Fault("GET http://registry.example/v2/", status(200, b"{}"))]
        environment = {"http_proxy": f"http://me:hush@{proxy.host}"}
        found = client("registry.example", environment=environment, plain_http=["registry.example"])
        found.ping(())
        found.close()
        headers = {name.lower(): value for name, value in proxy.requests[0].headers.items()}
        assert headers["proxy-authorization"] == "Basic bWU6aHVzaA=="


def test_a_kind_of_proxy_that_is_not_supported() -> None:
    found = client("registry.example", environment={"all_proxy": "socks5://user:hush@x:1"})
    with pytest.raises(UsageError) as caught:
        found.ping(())
    assert "hush" not in caught.value.render()
    assert caught.value.message == "a proxy of the kind 'socks5' is not supported"


def test_tls_with_a_host_that_speaks_none(registry: FakeRegistry) -> None:
    http = Http({}, sleep=lambda _: None)
    with pytest.raises(InfrastructureError) as caught:
        http.request("GET", f"https://{registry.host}/v2/")
    http.close()
    assert caught.value.render() == (
        f"error: {registry.host} does not speak TLS\n"
        "  help: if it is meant to speak plain http, say so with --plain-http"
    )


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_cannot_be_read(tmp_path: Path, variable: str) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(UsageError) as caught:
        tls_context({variable: str(path)}, "registry.example")
    assert caught.value.render() == (
        f"error: the certificates that {variable} names cannot be read\n  at: {path}\n"
        "  help: give a file of PEM certificates, or a folder of them with hashed names"
    )


def test_certificates_are_checked() -> None:
    context = tls_context({}, "registry.example")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for ``localhost`` that nobody trusts, and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    path = tmp_path / "localhost.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.mark.system
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_of_the_users_own_authority(certificate: Path, variable: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    with fake_registry(server) as registry:
        url = f"https://{registry.host}/v2/"
        http = Http({}, sleep=lambda _: None)
        with pytest.raises(InfrastructureError) as caught:
            http.request("GET", url)
        http.close()
        assert caught.value.render() == (
            f"error: the certificate of {registry.host} is not trusted\n"
            "  TLS: self-signed certificate\n"
            "  help: name the authority's certificate with SSL_CERT_FILE, or ask who runs the host"
        )
        assert registry.requests == []
        http = Http({variable: str(certificate)}, sleep=lambda _: None)
        with http.request("GET", url) as answer:
            assert answer.read(100) == b"{}"
        http.close()
