"""Pushing to a registry that misbehaves on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakeregistry import (
    FakeRegistry,
    Fault,
    fake_registry,
    html,
    reset,
    reset_after,
    status,
)
from helpers.memory import MemoryBlobs
from helpers.remote import client, make_image
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.oci.remote import EMPTY, referrers_tag
from hq.transfer.push import Attachment, Pushed, push_image

SMALL = b"small layer" * 9
LARGE = bytes(range(256)) * 4 * (5 << 10)  # 5 MiB: sent so that it can be taken up again
STATEMENT = Attachment("application/vnd.in-toto+json", "application/vnd.in-toto+json", b'{"a": 1}')


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as made:
        yield made


@pytest.fixture
def store() -> MemoryBlobs:
    return MemoryBlobs()


def push(
    registry: FakeRegistry,
    store: MemoryBlobs,
    manifest: BlobRef,
    *tags: str,
    attachments: Sequence[Attachment] = (),
    mounts: Sequence[str] = (),
    repository: str = "r",
) -> Pushed:
    found = client(registry.host)
    try:
        return push_image(
            found,
            repository,
            store,
            manifest,
            tags or ("t",),
            attachments=attachments,
            mounts=lambda _: mounts,
            threads=2,
        )
    finally:
        found.close()


def whole(registry: FakeRegistry, store: MemoryBlobs, manifest: BlobRef, tag: str = "t") -> None:
    """Asserts that the registry has the image."""
    assert registry.manifests["r", tag][1] == store.read(manifest)
    for (repository, digest), data in registry.blobs.items():
        assert (repository, Digest.of(data)) == ("r", digest)


def test_everything_arrives_and_tags_come_last(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = make_image(store, [SMALL, LARGE])
    pushed = push(registry, store, manifest, "1", "2", "1")
    assert pushed.tags == ("1", "2")
    assert sorted(pushed.blobs.values()) == ["sent"] * 3
    whole(registry, store, manifest, "2")
    puts = [r.path for r in registry.requests if r.method == "PUT" and "/manifests/" in r.path]
    assert puts == [f"/v2/r/manifests/{tag}" for tag in ("1", "2")]
    assert pushed.bytes_sent == sum(r.body for r in registry.requests)


def test_a_second_push_sends_nothing(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = make_image(store, [SMALL, LARGE])
    push(registry, store, manifest, attachments=[STATEMENT])
    again = push(registry, store, manifest, attachments=[STATEMENT])
    assert (again.bytes_sent, again.blobs) == (0, {})
    assert [item.new for item in again.attached] == [False]


def test_only_what_is_missing_is_sent(registry: FakeRegistry, store: MemoryBlobs) -> None:
    push(registry, store, make_image(store, [LARGE, SMALL]))
    pushed = push(registry, store, make_image(store, [LARGE, b"changed"]))
    assert pushed.blobs[Digest.of(LARGE)] == "there"
    assert pushed.blobs[Digest.of(b"changed")] == "sent"
    assert pushed.bytes_sent < 2000


def test_a_registry_that_lost_a_blob_of_the_tagged_image(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    push(registry, store, make_image(store, [LARGE, SMALL]))
    del registry.blobs["r", Digest.of(SMALL)]
    # This one takes any manifest, so nobody but the push would notice.
    manifest = make_image(store, [LARGE, SMALL, b"new"])
    pushed = push(registry, store, manifest)
    assert pushed.blobs[Digest.of(SMALL)] == "sent"
    assert pushed.blobs[Digest.of(LARGE)] == "there"
    whole(registry, store, manifest)


@pytest.mark.parametrize(
    "there",
    [
        b"no JSON",
        b"{}",
        b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", '
        b'"manifests": []}',
    ],
)
def test_whatever_a_tag_stands_at_is_replaced(
    registry: FakeRegistry, store: MemoryBlobs, there: bytes
) -> None:
    registry.put_manifest("r", "t", "application/vnd.oci.image.manifest.v1+json", there)
    manifest = make_image(store, [SMALL])
    assert sorted(push(registry, store, manifest).blobs.values()) == ["sent", "sent"]
    whole(registry, store, manifest)


def test_layers_of_a_sister_repository_are_mounted(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    registry.put("sister", LARGE)
    pushed = push(registry, store, make_image(store, [LARGE, SMALL]), mounts=["sister"])
    assert pushed.blobs[Digest.of(LARGE)] == "mounted"
    assert pushed.blobs[Digest.of(SMALL)] == "sent"
    # The upload that the refused mount began is used.
    assert registry.count("POST") == 3


def test_not_to_be_let_into_the_sister_is_no_reason(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    registry.faults = [Fault("from=sister", status(403), 9)]
    manifest = make_image(store, [SMALL])
    assert push(registry, store, manifest, mounts=["sister"]).blobs[Digest.of(SMALL)] == "sent"
    whole(registry, store, manifest)


# Interrupted uploads.


@pytest.mark.parametrize("taken", [1000, 3 << 20])
def test_an_upload_is_taken_up_where_it_ended(
    registry: FakeRegistry, store: MemoryBlobs, taken: int
) -> None:
    registry.faults = [Fault("PATCH", reset_after(taken))]
    manifest = make_image(store, [LARGE])
    push(registry, store, manifest)
    whole(registry, store, manifest)
    ranges = [r.headers["Content-Range"] for r in registry.requests if r.method == "PATCH"]
    assert ranges == [f"0-{len(LARGE) - 1}", f"{taken}-{len(LARGE) - 1}"]


def test_a_registry_that_forgot_is_sent_all_again(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    registry.faults = [
        Fault("PATCH", reset_after(1000)),
        Fault("GET /v2/r/blobs/uploads/", status(404)),
    ]
    manifest = make_image(store, [LARGE])
    push(registry, store, manifest)
    whole(registry, store, manifest)
    assert registry.count("POST") == 3  # the configuration, and the layer twice


def test_an_offset_that_is_not_the_registrys(registry: FakeRegistry, store: MemoryBlobs) -> None:
    # It took bytes of which it does not know.
    registry.faults = [Fault("PATCH", reset_after(1000)), Fault("PATCH", status(416))]
    manifest = make_image(store, [LARGE])
    push(registry, store, manifest)
    whole(registry, store, manifest)


@pytest.mark.parametrize("when", ["POST", "PUT /v2/r/blobs", "PUT /v2/r/manifests", "HEAD"])
@pytest.mark.parametrize("act", [reset, status(500), status(429, Retry_After="1")])
def test_any_request_may_fail_for_a_while(
    registry: FakeRegistry, store: MemoryBlobs, when: str, act: object
) -> None:
    registry.faults = [Fault(when, act, 3)]  # type: ignore[arg-type]
    manifest = make_image(store, [SMALL, LARGE])
    push(registry, store, manifest)
    whole(registry, store, manifest)


def test_an_answer_that_was_lost_after_the_deed(registry: FakeRegistry, store: MemoryBlobs) -> None:
    def deed(handler: object) -> None:
        registry.put("r", LARGE)
        reset(handler)  # type: ignore[arg-type]

    registry.faults = [Fault("PATCH", deed)]
    manifest = make_image(store, [LARGE])
    assert push(registry, store, manifest).blobs[Digest.of(LARGE)] == "sent"
    assert registry.count("PATCH") == 1
    whole(registry, store, manifest)


def test_where_requests_may_not_be_long_there_are_more(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    registry.most = 33 << 20
    data = b"\0" * (70 << 20)
    manifest = make_image(store, [data])
    push(registry, store, manifest)
    whole(registry, store, manifest)
    ends = [r.headers["Content-Range"] for r in registry.requests if r.method == "PATCH"]
    assert ends[-3:] == ["0-33554431", "33554432-67108863", f"67108864-{len(data) - 1}"]


# What goes wrong for good.


def failure(
    kind: type[HqError], registry: FakeRegistry, store: MemoryBlobs, manifest: BlobRef
) -> HqError:
    with pytest.raises(kind) as caught:
        push(registry, store, manifest)
    assert ("r", "t") not in registry.manifests
    return caught.value


def test_a_damaged_blob_is_not_pushed(registry: FakeRegistry, store: MemoryBlobs) -> None:
    for data in (SMALL, LARGE):
        manifest = make_image(store, [data])
        ref = BlobRef.of(data)
        store.data[ref.digest] = b"#" + data[1:]
        error = failure(BuildError, registry, store, manifest)
        assert error.render() == (
            f"error: a blob of the image is damaged: {ref.digest}\n  size: {ref.size} bytes\n"
            "  help: build the image again; 'hq store verify' finds damage in the store"
        )
        assert ("r", ref.digest) not in registry.blobs


def test_a_missing_blob(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = make_image(store, [SMALL])
    ref = BlobRef.of(SMALL)
    del store.data[ref.digest]
    assert failure(BuildError, registry, store, manifest).render() == (
        f"error: the image is not whole: it lacks {ref.digest}\n  size: {ref.size} bytes\n"
        "  help: build the image again"
    )


def test_a_registry_that_refuses_the_manifest(registry: FakeRegistry, store: MemoryBlobs) -> None:
    body = b'{"errors": [{"code": "MANIFEST_INVALID", "message": "too modern"}]}'
    registry.faults = [Fault("PUT /v2/r/manifests", status(400, body))]
    manifest = make_image(store, [SMALL])
    assert failure(InfrastructureError, registry, store, manifest).render() == (
        f"error: {registry.host} refuses to write r:t: status 400\n"
        "  registry: MANIFEST_INVALID: too modern\n"
        "  help: look at what the registry says; a proxy may answer in its place"
    )


def test_a_registry_that_only_reads(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.faults = [Fault("POST", status(405), 9)]
    error = failure(InfrastructureError, registry, store, make_image(store, [SMALL]))
    assert error.message == f"{registry.host} refuses to push a blob to r: status 405"


def test_no_right_to_push(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.faults = [Fault("POST", status(403), 9)]
    error = failure(UsageError, registry, store, make_image(store, [SMALL]))
    assert error.message == (
        f"{registry.host} wants credentials to push a blob to r, and there are none"
    )


def test_a_proxy_that_answers_in_the_registrys_place(
    registry: FakeRegistry, store: MemoryBlobs
) -> None:
    registry.faults = [Fault("POST", html(), 9)]
    error = failure(InfrastructureError, registry, store, make_image(store, [SMALL]))
    assert error.details == ("registry: an HTML page, which is no registry's answer",)


def test_an_upload_without_a_place(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.faults = [Fault("POST", status(202), 9)]
    error = failure(InfrastructureError, registry, store, make_image(store, [SMALL]))
    assert error.details == ("no Location for the upload",)


def test_an_upload_that_never_gets_through(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.faults = [Fault("PATCH", reset, 99)]
    error = failure(InfrastructureError, registry, store, make_image(store, [LARGE]))
    assert error.message.startswith(f"cannot reach {registry.host}: ")
    assert registry.count("PATCH") == 5


def test_a_registry_that_keeps_something_else(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = make_image(store, [SMALL])

    def keep(handler: object) -> None:
        handler.swallow()  # type: ignore[attr-defined]
        registry.manifests["r", "t"] = ("application/x", b"{}")
        handler.answer(201)  # type: ignore[attr-defined]

    registry.faults = [Fault("PUT /v2/r/manifests/t", keep)]
    with pytest.raises(InfrastructureError) as caught:
        push(registry, store, manifest)
    assert caught.value.render() == (
        f"error: {registry.host} does not hold what was pushed to r:t\n"
        f"  expected: {manifest.digest}\n  found:    {Digest.of(b'{}')}\n"
        "  help: another push may have moved the tag meanwhile; push again"
    )


def test_a_blob_of_another_length(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = make_image(store, [SMALL])
    registry.blobs["r", Digest.of(SMALL)] = b"short"
    error = failure(InfrastructureError, registry, store, manifest)
    assert error.details == (f"{Digest.of(SMALL)}: expected {len(SMALL)} bytes, found 5",)


# Attachments.


@pytest.mark.parametrize("native", [True, False])
def test_attachments_are_listed(registry: FakeRegistry, store: MemoryBlobs, native: bool) -> None:
    registry.referrers = native
    manifest = make_image(store, [SMALL])
    other = STATEMENT._replace(artifact_type="application/vnd.cyclonedx+json", data=b"{}\n")
    pushed = push(registry, store, manifest, attachments=[STATEMENT, other])
    assert pushed.native is native
    assert [item.new for item in pushed.attached] == [True, True]
    found = client(registry.host)
    listed, kept = found.referrers("r", manifest.digest)
    found.close()
    assert kept is native
    assert {(e.artifact_type, e.ref.digest) for e in listed} == {
        (item.artifact_type, item.manifest) for item in pushed.attached
    }
    assert (("r", referrers_tag(manifest.digest)) in registry.manifests) is not native
    assert registry.blobs["r", Digest.of(EMPTY)] == EMPTY
    assert registry.blobs["r", Digest.of(STATEMENT.data)] == STATEMENT.data


def test_attachments_come_before_tags(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.faults = [Fault("PUT /v2/r/blobs/uploads/u2", status(400), 9)]
    with pytest.raises(InfrastructureError):
        push(registry, store, make_image(store, [SMALL]), attachments=[STATEMENT])
    assert ("r", "t") not in registry.manifests


def test_what_others_attached_stays_in_the_list(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.referrers = False
    manifest = make_image(store, [SMALL])
    push(registry, store, manifest, attachments=[STATEMENT])
    push(registry, store, manifest, attachments=[STATEMENT._replace(data=b"{}\n")])
    found = client(registry.host)
    assert len(found.referrers("r", manifest.digest)[0]) == 2
    found.close()


def test_a_list_that_another_push_overwrites(registry: FakeRegistry, store: MemoryBlobs) -> None:
    registry.referrers = False
    manifest = make_image(store, [SMALL])
    tag = referrers_tag(manifest.digest)

    def lose(handler: object) -> None:
        handler.swallow()  # type: ignore[attr-defined]
        handler.answer(201)  # type: ignore[attr-defined]

    registry.faults = [Fault(f"PUT /v2/r/manifests/{tag}", lose, 2)]
    assert push(registry, store, manifest, attachments=[STATEMENT]).attached[0].new
    registry.faults = [Fault(f"PUT /v2/r/manifests/{tag}", lose, 99)]
    registry.manifests.pop(("r", tag))
    with pytest.raises(InfrastructureError) as caught:
        push(registry, store, manifest, attachments=[STATEMENT])
    assert caught.value.message == f"{registry.host} does not hold what was pushed to r:{tag}"


# Whatever happens.

ACTS = {
    "reset": reset,
    "500": status(500),
    "404": status(404),
    "page": html(200),
    "taken": reset_after(100_000),
    "lost": reset_after(100_000, keep=False),
}
PLACES = ["HEAD", "POST", "PATCH", "PUT /v2/r/blobs", "PUT /v2/r/manifests", "GET"]
# Only an upload's body can be taken in part.
trouble = st.tuples(
    st.sampled_from(PLACES), st.sampled_from(["reset", "500", "404", "page"])
) | st.tuples(st.just("PATCH"), st.sampled_from(["taken", "lost"]))


@settings(max_examples=40)
@given(st.lists(st.tuples(trouble, st.integers(1, 6)), max_size=5))
def test_a_tag_is_never_set_on_less_than_the_whole(
    troubles: list[tuple[tuple[str, str], int]],
) -> None:
    store = MemoryBlobs()
    manifest = make_image(store, [SMALL, LARGE])
    with fake_registry() as registry:
        registry.faults = [Fault(when, ACTS[act], times) for (when, act), times in troubles]
        try:
            push(registry, store, manifest, attachments=[STATEMENT])
        except HqError as error:
            assert error.exit_code in {1, 3}
        else:
            assert ("r", "t") in registry.manifests
        for (repository, digest), data in registry.blobs.items():
            assert (repository, Digest.of(data)) == ("r", digest)
        if ("r", "t") in registry.manifests:
            registry.faults = []
            assert push(registry, store, manifest, attachments=[STATEMENT]).bytes_sent == 0
            assert {BlobRef.of(data) for data in registry.blobs.values()} >= {
                BlobRef.of(data) for data in (SMALL, LARGE, STATEMENT.data)
            }
