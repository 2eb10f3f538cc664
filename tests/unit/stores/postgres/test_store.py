"""What only the PostgreSQL store promises: another primary, a pooler, many writers, odd ids."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import histories, postgres_server
from tests.support.asgi import until
from tests.support.histories import FREE, LEASE_S, PostgresHistory, block, letters, record
from tests.support.redis_server import free_port
from trt_responses.errors import StartupError, StoreUnavailable
from trt_responses.store import Block, Expired, Job, Record
from trt_responses.stores.limits import Bounds
from trt_responses.stores.whole import Frames, Lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres_server import PostgresServer
    from trt_responses.stores.postgres.store import PostgresStore

WRITERS, TURNS = 8, 6
OWNERS = ("ann", "bob")
CLOCK = (
    "CREATE OR REPLACE FUNCTION trt_responses.now() RETURNS float8 LANGUAGE sql VOLATILE AS "
    "'SELECT extract(epoch FROM clock_timestamp())::float8 + {}'"
)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server.running(wal_level="replica") as running:
        yield running


@pytest.fixture
def history(server: PostgresServer) -> PostgresHistory:
    return PostgresHistory(server.url)


def opened(url: str, **more: Any) -> PostgresStore:
    from trt_responses.stores.postgres.store import PostgresStore

    return PostgresStore(url, FREE, letters, **more)


@contextmanager
def pooled(server: PostgresServer) -> Iterator[str]:
    """A PgBouncer that gives each transaction another connection."""
    if (program := shutil.which("pgbouncer")) is None:
        pytest.skip("no pgbouncer on this machine: install it from the distribution")
    port, folder = free_port(), server.folder.parent  # which its user may read
    settings, users = folder / "pgbouncer.ini", folder / "users"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 3\n"
        "server_round_robin = 1\nunix_socket_dir =\n"
    )
    user = "postgres" if postgres_server.is_root() else None
    process = subprocess.Popen(
        [program, settings], stderr=subprocess.PIPE, text=True, user=user, cwd="/"
    )
    assert process.stderr is not None
    try:
        assert any("process up" in line for line in process.stderr), "pgbouncer ended at its start"
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


async def conversation(store: PostgresStore, name: str, owner: str) -> None:
    """Turns that share blocks with all others, and a record that is deleted on the way."""
    said = [block("shared"), block(name)]
    for turn in range(TURNS):
        said.append(block(f"{name} {turn}"))
        await store.put(record(f"{name}-{turn}", *said, owner=owner))
        found = await store.get(f"{name}-{turn}", owner)
        assert isinstance(found, Record)
        assert [each.item for each in found.blocks] == [each.item for each in said]
        if turn:
            assert await store.delete(f"{name}-{turn - 1}", owner)


def test_writers_that_add_and_delete_at_once_lose_no_block(history: PostgresHistory) -> None:
    async def story() -> None:
        stores = [opened(history.url), opened(history.url)]
        for store in stores:
            await store.start()
        await asyncio.gather(
            *(conversation(stores[n % 2], f"w{n}", OWNERS[n % 2]) for n in range(WRITERS))
        )
        held = history.bytes(stores[0])
        assert held.accounted == held.held > 0
        for n in range(WRITERS):
            assert await stores[0].delete(f"w{n}-{TURNS - 1}", OWNERS[n % 2])
        assert history.bytes(stores[0]).held == 0
        for store in stores:
            await store.stop()

    asyncio.run(story())


def test_it_works_behind_a_pooler_of_transactions(
    server: PostgresServer, history: PostgresHistory
) -> None:
    async def story(url: str) -> None:
        store = opened(url)
        await store.start()
        await asyncio.gather(*(conversation(store, f"p{n}", "ann") for n in range(WRITERS)))
        lock = Lock("conv", "ann", "resp")
        assert await store.lock(lock, 5.0)
        assert not await store.lock(Lock("conv", "ann", "other"), 5.0)
        await store.stop()

    with pooled(server) as url:
        asyncio.run(story(url))


@pytest.mark.slow  # 3 s: two clusters
def test_a_promoted_standby_goes_on_with_all_that_was_acknowledged() -> None:
    async def story(primary: PostgresServer, standby: PostgresServer) -> None:
        store = opened(
            f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            "/postgres?target_session_attrs=read-write"
        )
        await store.start()
        kept = list[str]()
        for n in range(200):
            try:
                await store.put(record(f"r{n}", block("shared"), block(str(n))))
                kept.append(f"r{n}")
            except StoreUnavailable:
                pass
            if n == 100:
                primary.kill()
                standby.promote()
        assert len(kept) > 150
        for name in kept:
            assert isinstance(await store.get(name, "ann"), Record), name
        await store.check()
        await store.stop()

    with (
        postgres_server.running(synchronous_standby_names="*") as primary,
        primary.standby() as standby,
    ):
        asyncio.run(story(primary, standby))


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "resp_'; DROP TABLE x", "é", "x" * 5000])
def test_an_odd_id_is_no_response(history: PostgresHistory, name: str) -> None:
    async def story() -> None:
        store = opened(history.url)
        await store.start()
        assert await store.get(name, "ann") is None
        assert not await store.delete(name, "ann")
        assert not await store.cancel_job(name, "ann")
        assert await store.frames_after(name, "ann", 0) is None
        await store.stop()

    asyncio.run(story())


def test_a_job_that_ends_while_it_is_looked_up_is_found(history: PostgresHistory) -> None:
    import psycopg

    async def story(other: psycopg.Connection[Any]) -> None:
        def waits() -> bool:
            return bool(history.value(WAITING))

        store = opened(history.url)
        await store.start()
        await store.put(record("a", block("hello")))
        history.execute("UPDATE trt_responses.records SET owner = 'nobody'")  # not yet
        await store.put_job(Job("a", "ann", b"{}", int(histories.NOW)))
        with other.transaction():
            other.execute("LOCK TABLE trt_responses.jobs")
            looking = asyncio.create_task(store.get("a", "ann"))
            await until(waits)
            other.execute("DELETE FROM trt_responses.jobs")
            other.execute("UPDATE trt_responses.records SET owner = 'ann'")
        assert await looking == record("a", block("hello"))
        await store.stop()

    with psycopg.connect(history.url, autocommit=True) as other:
        asyncio.run(story(other))


@pytest.mark.parametrize("jump_s", [-600, 600])
def test_a_date_of_the_database_that_jumps_leaves_each_job_one_owner(
    history: PostgresHistory, jump_s: int
) -> None:
    """Servers' own dates mean nothing to it."""
    bounds = Bounds(max_age_s=None, lease_s=LEASE_S, takeover_s=10_000.0)

    async def story() -> None:
        one, other = history.store(bounds), history.store(bounds)
        await one.start()
        await other.start()
        await one.put_job(Job("j", "ann", b"{}", 0, source=b"all there is", model="demo"))
        history.execute(CLOCK.format(jump_s))
        taken = await other.take_job("demo")
        assert (taken is None) is (jump_s < 0), "a jump ahead ends the lease"
        owner, term = (one, 1) if taken is None else (other, taken.term)
        assert await one.take_job("demo") is None, "once"
        assert await one.renew_job("j") == ("held" if owner is one else "gone")
        assert await owner.renew_job("j", term=term) == "held"
        if owner is other:
            assert not await one.append_frames("j", Frames(0, 1, b"data: 1\n\n"))
            assert not await one.finish_job(record("j", block("old")))
        assert await owner.finish_job(record("j", block("new")), term=term)
        assert await one.get("j", "ann") == record("j", block("new"))
        await one.stop()
        await other.stop()

    asyncio.run(story())
    history.execute(CLOCK.format(0))


def test_old_responses_are_dropped_while_nobody_writes(history: PostgresHistory) -> None:
    async def story() -> None:
        store = opened(history.url)
        await store.start()
        await store.put(record("a", block("hello")))
        await store.stop()
        history.advance(histories.AGE_S + 1)
        await store.start()
        while history.bytes(store).held:  # noqa: ASYNC110
            await asyncio.sleep(0)  # slept: the sweep is a task of its own
        assert await store.get("a", "ann") == Expired("a")
        assert store.usage.dropped["age"] == 1
        await store.stop()

    asyncio.run(story())


@pytest.mark.slow  # 2 s: a cluster of its own
def test_a_hung_or_killed_server_is_away_and_then_back() -> None:
    with postgres_server.running() as server:

        async def story() -> None:
            store = opened(server.url, answer_s=0.5)
            await store.start()
            await store.put(record("a", block("hello")))
            with server.paused(), pytest.raises(StoreUnavailable, match="unreachable"):
                await store.get("a", "ann")
            assert isinstance(await store.get("a", "ann"), Record)
            server.kill()
            with pytest.raises(StoreUnavailable, match="unreachable"):
                await store.check()
            server.start()
            assert isinstance(await store.get("a", "ann"), Record)
            await store.stop()

        asyncio.run(story())


def test_a_server_that_was_never_there_stops_the_start_and_names_no_password() -> None:
    postgres_server.needed()

    async def story() -> None:
        store = opened("postgresql://ann:secret@127.0.0.1:1/x")
        with pytest.raises(StartupError, match="Cannot use PostgreSQL") as failed:
            await store.start()
        assert "secret" not in str(failed.value)

    asyncio.run(story())


def test_another_format_is_refused_and_left_alone(history: PostgresHistory) -> None:
    async def story() -> None:
        await (store := opened(history.url)).start()
        await store.stop()
        history.execute("UPDATE trt_responses.format SET version = 99")
        try:
            with pytest.raises(StartupError, match=r"has format 99.*migrate --to 2"):
                await opened(history.url).start()
        finally:
            history.execute("UPDATE trt_responses.format SET version = 2")

    asyncio.run(story())


def test_a_slow_answer_is_waited_for_and_not_looked_for(history: PostgresHistory) -> None:
    from trt_responses.stores.postgres.connections import Connections

    async def story() -> None:
        server = Connections(history.url, 1, 60.0)
        await server.rows("SELECT 1")
        began = time.thread_time()
        await server.rows("SELECT pg_sleep(0.3)")
        assert time.thread_time() - began < 0.1
        await server.close()

    asyncio.run(story())


def test_a_put_reads_as_many_rows_whatever_is_stored(history: PostgresHistory) -> None:
    """Its plans are made while the tables are empty, and stay."""
    puts, blocks = 60, 5
    rows = (
        "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN "
        "('records', 'blocks')) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE "
        "indexrelname IN ('blocks_owner_digest_key', 'records_by_expiry'))"
    )

    async def story() -> None:
        await (store := opened(history.url)).start()
        before, sent = int(history.value(rows)), list[Block]()
        for number in range(puts):
            sent.append(block(f"message {number}"))
            await store.put(record(f"r{number}", *sent[-blocks:]))
        await store.stop()  # a connection that ends reports what it has read
        await until(lambda: history.value(rows) > before + puts)
        assert history.value(rows) - before <= puts * 3 * blocks

    asyncio.run(story())


def test_a_user_who_may_change_rows_alone_can_serve(history: PostgresHistory) -> None:
    async def story() -> None:
        await (owner := opened(history.url)).start()
        await owner.stop()
        history.execute(
            "CREATE ROLE server LOGIN; GRANT USAGE ON SCHEMA trt_responses TO server; "
            "GRANT ALL ON ALL TABLES IN SCHEMA trt_responses TO server; "
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA trt_responses TO server"
        )
        store = opened(history.url.replace("postgres@", "server@"))
        await store.start()
        await store.put(record("r1", block("hello")))
        assert await store.get("r1", "ann") == record("r1", block("hello"))
        await store.stop()

    asyncio.run(story())
