"""Large blocks of a PostgreSQL store in an object store: kept, shared, collected, lost, taken back.

Budget: 4 s, a PostgreSQL server of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.support import histories, object_store, postgres_server
from tests.support.asgi import until
from tests.support.histories import PostgresHistory, block, letters, record
from trt_responses.errors import ApiError, StartupError, StoreUnavailable
from trt_responses.features.encryption.keys import StoreKeys
from trt_responses.features.encryption.store import EncryptedStore
from trt_responses.store import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.object_store import ObjectStore
    from trt_responses.store import Block
    from trt_responses.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.slow  # a PostgreSQL server of its own
KEY = b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WRITERS, TURNS = 4, 4


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_server.running() as running:
        yield running.url


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store.running() as running:
        yield running


@pytest.fixture
def history(database: str, server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> PostgresHistory:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    made = PostgresHistory(database)
    made.execute("DROP SCHEMA IF EXISTS trt_responses CASCADE")
    server.objects.clear()
    server.faults.clear()
    return made


def large(seed: int = 0) -> Block:
    """A block that does not compress below the bound."""
    return block(Random(seed).randbytes(20_000).hex())


def store_of(history: PostgresHistory, server: ObjectStore | None) -> PostgresStore:
    from trt_responses.stores.postgres.store import PostgresStore

    more = f"?objects={server.url}" if server else ""
    return PostgresStore(history.url + more, histories.FREE, letters)


@asynccontextmanager
async def opened(
    history: PostgresHistory, server: ObjectStore | None
) -> AsyncIterator[PostgresStore]:
    store = store_of(history, server)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def collected(store: PostgresStore, grace_s: float = 0.0) -> int:
    assert store.objects is not None
    return await store.objects.collect(grace_s)


def test_a_large_block_is_one_object_until_its_last_record_goes(
    history: PostgresHistory, server: ObjectStore
) -> None:
    async def story() -> None:
        one, two = record("a", block("hi"), large()), record("b", large(), block("ho"))
        async with opened(history, server) as here:
            await here.put(one)
            await here.put(two)
            assert len(server.objects) == 1, "equal blocks are one object"
            async with opened(history, server) as there:
                assert await there.get("a", "ann") == one
                assert await there.get("b", "ann") == two
            assert await here.delete("a", "ann")
            assert await collected(here) == 0
            assert await here.get("b", "ann") == two
            assert await here.delete("b", "ann")
            assert await collected(here, grace_s=1000.0) == 0, "a backup may name it"
            assert await collected(here) == 1
            assert server.objects == {}

    asyncio.run(story())


def test_an_upload_whose_record_was_never_stored_is_collected_and_cannot_be_used_later(
    history: PostgresHistory, server: ObjectStore
) -> None:
    async def story() -> None:
        async with opened(history, server) as store:
            server.faults[:] = ["late"]
            putting = asyncio.create_task(store.put(record("a", large())))
            await until(lambda: bool(server.objects))
            await collected(store)
            server.go.set()
            with pytest.raises(ApiError, match="was deleted before its block was stored"):
                await putting
            assert server.objects == {}
            assert await store.get("a", "ann") is None
            await store.put(record("a", large()))
            assert await store.get("a", "ann") == record("a", large())

    asyncio.run(story())


def test_collectors_under_load_take_nothing_that_was_acknowledged(
    history: PostgresHistory, server: ObjectStore
) -> None:
    refused = list[str]()

    async def write(store: PostgresStore, number: int, kept: dict[str, Record]) -> None:
        for turn in range(TURNS):
            made = record(f"{number}-{turn}", large(turn % 3), block(f"{number} {turn}"))
            try:
                await store.put(made)
            except ApiError:  # its upload was collected, since there is no grace here
                refused.append(made.id)
                continue
            kept[made.id] = made
            if turn % 2:
                await store.delete(made.id, "ann")
                del kept[made.id]

    async def collect(store: PostgresStore, over: asyncio.Event) -> None:
        while not over.is_set():
            await collected(store)

    async def story() -> None:
        kept, over = dict[str, Record](), asyncio.Event()
        async with opened(history, server) as one, opened(history, server) as two:
            collectors = [asyncio.create_task(collect(store, over)) for store in (one, two)]
            await asyncio.gather(
                *(write((one, two)[n % 2], n, kept) for n in range(WRITERS)),
            )
            over.set()
            await asyncio.gather(*collectors)
            await collected(one)
        async with opened(history, server) as fresh:
            for name, made in kept.items():
                assert await fresh.get(name, "ann") == made
            for name in kept:
                await fresh.delete(name, "ann")
            await collected(fresh)
        assert len(server.objects) <= len(refused), "but those that were deleted before they came"

    asyncio.run(story())


def test_an_object_that_is_missing_or_out_of_reach_is_an_error_that_says_so(
    history: PostgresHistory, server: ObjectStore
) -> None:
    async def story() -> None:
        async with opened(history, server) as store:
            await store.put(record("a", large()))
        async with opened(history, None) as store:
            with pytest.raises(ApiError, match="URL names no object store"):
                await store.get("a", "ann")
        async with opened(history, server) as store:
            server.faults[:] = ["500"] * 3
            with pytest.raises(StoreUnavailable, match="500 InternalError at GET"):
                await store.get("a", "ann")
            server.faults[:] = ["500"] * 3
            with pytest.raises(StoreUnavailable, match="500 InternalError at PUT"):
                await store.put(record("b", large(1)))
            assert await store.get("b", "ann") is None
            server.objects.clear()
            with pytest.raises(ApiError, match="'a' is an object, and it is missing"):
                await store.get("a", "ann")
            await store.delete("a", "ann")
            assert await store.get("a", "ann") is None

    asyncio.run(story())


def test_objects_of_an_encrypted_store_hold_nothing_of_what_was_said(
    history: PostgresHistory, server: ObjectStore
) -> None:
    async def story() -> None:
        async with opened(history, server) as inner:
            store = EncryptedStore(inner, StoreKeys(lambda: KEY), letters)
            said = block("a secret " * 900 + Random(0).randbytes(20_000).hex())
            await store.put(record("a", said))
            assert await store.get("a", "ann") == record("a", said)
        (content,) = server.objects.values()
        assert b"secret" not in content
        assert letters(said.ids)[-30:] not in content

    asyncio.run(story())


def test_the_way_back_to_the_format_before_brings_the_objects_home(
    history: PostgresHistory, server: ObjectStore
) -> None:
    async def story() -> None:
        kept = [record("a", block("hi"), large()), record("b", large(1), block("ho"))]
        async with opened(history, server) as store:
            for made in kept:
                await store.put(made)
            with pytest.raises(StartupError, match="Servers are connected"):
                await store_of(history, server).migrate(1)
        with pytest.raises(StartupError, match="formats 1 to 2 of PostgreSQL, not 3"):
            await store_of(history, server).migrate(3)
        with pytest.raises(StartupError, match="in an object store: name it"):
            await store_of(history, None).migrate(1)
        await store_of(history, server).migrate(1)
        assert server.objects == {}
        assert history.value("SELECT version FROM trt_responses.format") == 1
        assert history.value("SELECT count(*) FROM pg_proc WHERE proname = 'claim'") == 0
        async with opened(history, None) as store:  # which brings them up again
            for made in kept:
                assert await store.get(made.id, "ann") == made

    asyncio.run(story())
