"""A backup that is made under load, as the page types it, restores all that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import ROOT
from tests.support import postgres_server, redis_server
from tests.support.asgi import until
from tests.support.histories import block, letters, record
from trt_responses.store import Record
from trt_responses.stores.limits import Bounds
from trt_responses.stores.redis.store import RedisStore
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.stores.whole import WholeStore

AGELESS = Bounds(max_age_s=None, max_records=100_000)
BEFORE, WRITERS = 100, 4


def typed(begin: str, has: str = "") -> str:
    """The line of the page that begins so, and has this in it."""
    lines = (ROOT / "docs" / "backup.md").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(begin) and has in line]
    return found


async def do(command: str, folder: Path, **names: str) -> None:
    path = os.environ["PATH"]
    if postgres_server.PROGRAMS:
        path = f"{postgres_server.PROGRAMS[-1].parent}:{path}"
    process = await asyncio.create_subprocess_shell(
        command, cwd=folder, env=os.environ | names | {"PATH": path}
    )
    assert await process.wait() == 0, command


async def backed_up(store: WholeStore, folder: Path, command: str, **names: str) -> list[Record]:
    """Back up while writers write on. Returns what was acknowledged before it began."""
    acknowledged, ended = list[Record](), asyncio.Event()

    async def write(owner: str) -> None:
        prior: tuple[Record, ...] = ()
        for number in range(10_000):
            if ended.is_set():
                return
            own = block(f"{owner} says {number}")
            before = prior[0].blocks[-20:] if prior else ()
            made = record(f"{owner}{number}", *before, own, owner=owner, body=str(number))
            await store.put(made)
            acknowledged.append(made)
            found = await store.get(made.id, owner)
            assert isinstance(found, Record)
            prior = (found,)

    await store.start()
    async with asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(write(f"owner{number}-"))
        await until(lambda: len(acknowledged) >= BEFORE)
        before = [*acknowledged]
        await do(command, folder, **names)
        assert len(acknowledged) > len(before), "it was under load"
        ended.set()
    await store.stop()
    return before


async def check(store: WholeStore, before: list[Record]) -> None:
    """All that was acknowledged is there, byte for byte, and what came later is whole."""
    await store.start()
    for made in before:
        assert await store.get(made.id, made.owner) == made
    for owner in await store.owners():
        for name in await store.ids_of(owner):
            assert isinstance(await store.get(name, owner), Record)
    await store.put(record("later", block("more")))
    await store.stop()


@pytest.mark.slow  # writes until the copy is made
def test_sqlite(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "backup").mkdir()
        store = SqliteStore(tmp_path / "data" / "history.db", AGELESS, spell=letters)
        before = await backed_up(store, tmp_path, typed("python3 -c", "backup("))
        shutil.rmtree(tmp_path / "data")
        restored = SqliteStore(tmp_path / "backup" / "history.db", AGELESS, spell=letters)
        await check(restored, before)

    asyncio.run(story())


@pytest.mark.slow  # two Redis servers
def test_redis(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with redis_server.running(tmp_path / "one") as one:
        store = RedisStore(one.url, AGELESS, spell=letters)
        command = typed("redis-cli")
        before = asyncio.run(backed_up(store, tmp_path / "two", command, REDIS=one.url))
    shutil.rmtree(tmp_path / "one")
    with redis_server.running(tmp_path / "two") as two:
        asyncio.run(check(RedisStore(two.url, AGELESS, spell=letters), before))


@pytest.mark.slow  # two PostgreSQL servers
def test_postgres(tmp_path: Path) -> None:
    def store(url: str) -> WholeStore:
        from trt_responses.stores.postgres.store import PostgresStore

        return PostgresStore(url, AGELESS, letters)

    with postgres_server.running() as one:
        command = typed("pg_dump")
        before = asyncio.run(backed_up(store(one.url), tmp_path, command, DATABASE=one.url))
    with postgres_server.running() as two:
        asyncio.run(do(typed("pg_restore"), tmp_path, NEW_DATABASE=two.url))
        asyncio.run(check(store(two.url), before))
