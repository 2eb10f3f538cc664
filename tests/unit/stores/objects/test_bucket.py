"""An object store that fails in each way that one can, and signatures as AWS publishes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

import pytest

from tests.support import object_store
from tests.support.object_store import Fault
from trt_responses.errors import StartupError, StoreUnavailable
from trt_responses.stores.objects.bucket import TRIES, Bucket, keys_of
from trt_responses.stores.objects.signature import Keys, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.object_store import ObjectStore

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
WELCOME = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
RETRIED: tuple[Fault, ...] = ("500", "silent", "cut", "other")
"""All that one more try may mend."""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store.running() as running:
        yield running


def opened(server: ObjectStore, *faults: Fault, answer_s: float = 60.0) -> Bucket:
    server.faults[:] = faults
    server.asked.clear()
    return Bucket(server.url, KEYS, answer_s=answer_s)


@pytest.mark.parametrize(
    ("method", "path", "headers", "digest", "signature"),
    [
        (
            *("GET", "/test.txt", {"Range": "bytes=0-9"}, NOTHING),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            *("PUT", "/test$file.text"),
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            WELCOME,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
    ],
)
def test_a_signature_is_that_of_the_published_example(
    method: str, path: str, headers: dict[str, str], digest: str, signature: str
) -> None:
    host = {"Host": "examplebucket.s3.amazonaws.com"}
    sent = signed(method, path, host | headers, digest, KEYS, "20130524T000000Z")
    assert sent["authorization"].endswith(f"Signature={signature}")


def test_what_was_written_is_read_until_it_is_deleted(server: ObjectStore) -> None:
    async def story() -> None:
        bucket = opened(server)
        server.objects.clear()
        await bucket.start()
        assert server.objects == {}, "its trial is gone"
        await bucket.put(key := bucket.key_for(b"hello"), b"hello")
        assert await bucket.get(key) == b"hello"
        assert [*server.objects] == [f"/bucket/responses/{key}"]
        for _ in range(2):
            await bucket.delete(key)
            assert await bucket.get(key) is None
        await bucket.stop()

    asyncio.run(story())


@pytest.mark.parametrize("fault", RETRIED)
def test_one_fault_is_tried_again_and_many_are_an_error(server: ObjectStore, fault: Fault) -> None:
    async def story() -> None:
        bucket = opened(server)
        await bucket.put(key := bucket.key_for(b"hello"), b"hello")
        await bucket.stop()
        bucket = opened(server, fault, answer_s=0.3 if fault == "silent" else 60.0)
        assert await bucket.get(key) == b"hello"
        server.faults[:] = [fault] * TRIES
        with pytest.raises(StoreUnavailable, match="object store failed") as failed:
            await bucket.get(key)
        assert failed.value.retry_after_s
        assert not server.faults
        await bucket.stop()

    asyncio.run(story())


def test_a_refusal_is_named_and_not_tried_again(server: ObjectStore) -> None:
    async def story() -> None:
        bucket = opened(server, "403")
        with pytest.raises(StartupError, match="403 AccessDenied at PUT"):
            await bucket.start()
        assert server.asked == ["PUT"]
        await bucket.stop()

    asyncio.run(story())


def test_a_body_that_changed_on_its_way_is_refused_by_the_store(server: ObjectStore) -> None:
    async def story() -> None:
        bucket = opened(server)
        with pytest.raises(StoreUnavailable, match="XAmzContentSHA256Mismatch"):
            await bucket.put(bucket.key_for(b"hello"), b"hallo")
        await bucket.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    "url", ["s3://bucket", "https://host", "https://ann:secret@host/bucket", "https://host/b?x=1"]
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StartupError, match="https://host/bucket") as refused:
        Bucket(url, KEYS)
    assert "secret" not in str(refused.value)


def test_credentials_are_those_of_the_environment() -> None:
    with pytest.raises(StartupError, match="set AWS_SECRET_ACCESS_KEY"):
        keys_of({"AWS_ACCESS_KEY_ID": "a"})
    both = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "eu"}
    assert keys_of(both | {"AWS_SESSION_TOKEN": "t"}) == Keys("a", "b", "eu", "t")


def test_each_fault_of_the_double_is_met_by_a_test() -> None:
    assert {*RETRIED, "403", "late"} == {*get_args(Fault)}, "late: in the store's tests"
