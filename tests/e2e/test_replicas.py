"""Several servers on one history, and one server whose history is away. About 15 s on one core."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support import postgres_server, redis_server
from tests.support.asgi import JSON, PATIENCE_S, until
from tests.support.dying_server import LEASE_S
from tests.support.served import ANSWER, CALL, STALLED, THOUGHT, WEATHER, ids, served
from tests.support.server_processes import Servers, asked
from trt_responses.backends.stores import store_of
from trt_responses.serve.server import lasting
from trt_responses.settings import Settings
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.redis.store import RedisStore
from trt_responses.stores.sqlite.store import SqliteStore
from trt_responses.stores.whole import says_nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.support.asgi import Call
    from tests.support.redis_server import RedisServer
    from tests.support.served import Served, Written
    from trt_responses.store import Store

    Open = Callable[[], Store]

SECOND = "<|channel|>final<|message|>It is sunny.<|return|>"
in_processes = pytest.mark.xdist_group("processes")
KEYS: dict[str, Any] = {"api_keys": ("ann:key-a", "bob:key-b")}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server.running(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server.running() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one more replica's store."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "history.db")
    if request.param == "postgres":
        url = request.getfixturevalue("postgres")
        return lambda: store_of(Settings(store=url), says_nothing)
    server = request.getfixturevalue("redis")
    return lambda: RedisStore(server.url)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(tmp_path / "history.db")
        case _:
            return RedisStore(request.getfixturevalue("redis").url)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Servers]]:
    """Budget: 6 s, two processes that load everything and wait for a plan."""
    path = tmp_path_factory.mktemp("processes") / "history.db"
    servers = [Servers(path), Servers(path)]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def processes(loaded: list[Servers]) -> Iterator[list[Servers]]:
    """Two of which a test starts servers on one file."""
    yield loaded
    for servers in loaded:
        servers.kill()


@asynccontextmanager
async def two(shared: Open, *written: Written) -> AsyncIterator[list[Served]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(served(*written, store=shared(), date=date))
            for date in ("2026-02-03", "2026-02-04")
        ]


async def result(server: Served, call: Call, **more: object) -> Call:
    """Answer the call that a response ends with."""
    made = call.json()
    answer = {
        "type": "function_call_output",
        "call_id": made["output"][-1]["call_id"],
        "output": "Sunny",
    }
    return await server.client.create(
        previous_response_id=made["id"], input=[answer], tools=[WEATHER], **more
    )


def test_a_conversation_goes_on_turn_by_turn_on_one_replica_after_the_other(shared: Open) -> None:
    async def story() -> None:
        async with two(shared) as replicas:
            previous, said = None, list[str]()
            for turn in range(6):
                server = replicas[turn % 2]
                words = f"turn number {turn}"
                more: dict[str, Any] = {"previous_response_id": previous} if previous else {}
                made = await server.client.create(input=words, **more)
                assert made.status == 200
                previous, said = made.json()["id"], [*said, words]
                text = server.prompt_text()
                assert [text.count(words) for words in said] == [1] * len(said)
                assert text.count("Hello there, friend.") == turn
                assert "Current date: 2026-02-03" in text  # the first turn's, on both
                other = replicas[(turn + 1) % 2]
                kept = await other.client.get(f"/v1/responses/{previous}")
                assert kept.json() == made.json()

    asyncio.run(story())


def test_a_conversation_has_one_writer_whichever_replica_he_is_at(shared: Open) -> None:
    async def story() -> None:
        async with two(shared, STALLED) as (left, right):
            made = await left.client.send("POST", "/v1/conversations", b"{}")
            talk = made.json()["id"]
            writing = left.client.ask(input="x", conversation=talk, stream=True)
            await until(lambda: bool(left.engine.requests))
            refused = await right.client.create(input="y", conversation=talk)
            assert (refused.status, refused.error["code"]) == (400, "conversation_locked")
            assert not right.engine.requests
            writing.hang_up()
            await writing.done()
            free = await right.client.send("POST", f"/v1/conversations/{talk}", b'{"metadata": {}}')
            assert free.status == 200

    asyncio.run(story())


def test_a_tool_loop_extends_the_same_ids_on_another_replica(shared: Open) -> None:
    async def story() -> None:
        async with two(shared, CALL) as (left, right):
            first = await left.client.create(tools=[WEATHER])
            second = await result(right, first)
            assert (await result(left, second)).status == 200
            one, two_, three = left.prompt(0), right.prompt(0), left.prompt(1)
            kept = ids(CALL)
            assert two_[: len(one) + len(kept)] == [*one, *kept]
            assert three[: len(two_) + len(kept)] == [*two_, *kept]

    asyncio.run(story())


def test_a_deleted_response_is_gone_on_the_replica_that_has_just_read_it(shared: Open) -> None:
    async def story() -> None:
        async with two(shared) as (left, right):
            made = (await left.client.create()).json()["id"]
            later = (await right.client.create(previous_response_id=made)).json()["id"]
            path = f"/v1/responses/{made}"
            assert (await left.client.get(path)).status == 200
            assert (await right.client.send("DELETE", path)).status == 200
            assert (await left.client.get(path)).status == 404
            assert (await left.client.send("DELETE", path)).status == 404
            refused = await left.client.create(previous_response_id=made)
            assert (refused.status, refused.error["code"]) == (404, "previous_response_not_found")
            assert (await left.client.create(previous_response_id=later)).status == 200
            assert left.prompt_text().count("Hello there, friend.") == 2

    asyncio.run(story())


BACKGROUND: dict[str, Any] = {"background": True, "stream": True}


async def polled(server: Served, response_id: str, *statuses: str) -> dict[str, Any]:
    """Ask until it stands so; every answer is waited for, and patience ends."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            call = await server.client.get(f"/v1/responses/{response_id}")
            if call.json()["status"] in statuses:
                return call.json()


def test_a_background_response_is_polled_and_streamed_from_another_replica(shared: Open) -> None:
    async def story() -> None:
        async with (
            served(THOUGHT, store=shared(), manual=True) as left,
            served(store=shared()) as right,
        ):
            begun = left.client.ask(**BACKGROUND)
            await begun.until(lambda call: len(call.heard) > 1)
            made = begun.events[0]["response"]["id"]
            assert (await polled(right, made, "queued", "in_progress"))["id"] == made
            path = f"/v1/responses/{made}?stream=true&starting_after=1"
            follows = right.client.open("GET", path)
            while not begun.ended:
                await left.clock.step()
            await follows.done()
            assert follows.events == begun.events[2:]
            assert follows.events[-1]["type"] == "response.completed"
            last = await polled(right, made, "completed")
            assert last == begun.events[-1]["response"]
            again = await right.client.get(f"/v1/responses/{made}?stream=true")
            assert again.body == begun.body

    asyncio.run(story())


def test_a_background_response_is_cancelled_from_another_replica(shared: Open) -> None:
    async def story() -> None:
        async with (
            served(THOUGHT, store=shared(), manual=True) as left,
            served(store=shared()) as right,
        ):
            made = (await left.client.create(background=True)).json()["id"]
            asked = await right.client.send("POST", f"/v1/responses/{made}/cancel")
            assert asked.status == 200
            assert (await polled(right, made, "cancelled"))["id"] == made
            assert (await polled(left, made, "cancelled"))["id"] == made
            refused = await right.client.create(previous_response_id=made)
            assert refused.error["code"] == "previous_response_not_continuable"

    asyncio.run(story())


@in_processes
def test_what_a_killed_server_was_making_reads_failed_on_another_within_the_lease(
    processes: list[Servers],
) -> None:
    for server, plan in zip(processes, ("stalls", ""), strict=True):
        server.start(plan)
    dying, other = processes
    body = {"model": "demo", "input": "Hello", "background": True}
    status, reply = asked(dying.port, "POST", "/v1/responses", body)
    made = orjson.loads(reply)
    assert (status, made["status"]) == (200, "queued")
    dying.kill()
    killed = time.monotonic()
    while made["status"] in ("queued", "in_progress"):
        status, reply = asked(other.port, "GET", f"/v1/responses/{made['id']}")
        made = orjson.loads(reply)
        assert status == 200
        assert time.monotonic() - killed < LEASE_S + PATIENCE_S
    assert made["status"] == "failed"
    assert "server" in made["error"]["message"]
    assert "stopped" in made["error"]["message"]


@in_processes
def test_two_processes_share_one_file(processes: list[Servers]) -> None:
    for server in processes:
        server.start("")
    ports = [server.port for server in processes]
    previous, made = dict[str, str](), list[str]()
    for turn in range(6):
        body = {"model": "demo", "input": f"turn {turn}"} | previous
        status, reply = asked(ports[turn % 2], "POST", "/v1/responses", body)
        assert status == 200, reply
        made.append(orjson.loads(reply)["id"])
        previous = {"previous_response_id": made[-1]}
        there = [asked(port, "GET", f"/v1/responses/{made[-1]}") for port in ports]
        assert there == [(200, reply), (200, reply)]
    gone = f"/v1/responses/{made[-1]}"
    assert asked(ports[0], "DELETE", gone)[0] == 200
    assert asked(ports[1], "GET", gone)[0] == 404
    body = {"model": "demo", "input": "on", "previous_response_id": made[-2]}
    assert asked(ports[0], "POST", "/v1/responses", body)[0] == 200


# --- every kind of store under the API --------------------------------------------------------


def test_a_tool_loop_extends_the_kept_ids_and_its_end_drops_the_reasoning(
    any_store: Store,
) -> None:
    async def story() -> None:
        async with served(CALL, SECOND, ANSWER, store=any_store) as s:
            first = await s.client.create(tools=[WEATHER])
            second = await result(s, first)
            third = await s.client.create(previous_response_id=second.json()["id"], tools=[WEATHER])
            assert third.status == 200
            one, two_, three = s.prompt(0), s.prompt(1), s.prompt(2)
            assert two_[: len(one) + len(ids(CALL))] == [*one, *ids(CALL)]
            assert three[: len(one) + 1] == two_[: len(one) + 1]  # up to `<|channel|>`
            assert three[len(one) + 1] != two_[len(one) + 1]
            assert "I need the weather." not in s.prompt_text()

    asyncio.run(story())


def test_another_owner_finds_nothing_and_shares_no_cached_token(any_store: Store) -> None:
    async def story() -> None:
        async with served(THOUGHT, store=any_store, **KEYS) as s:

            async def call(key: str, method: str, path: str, **body: object) -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                return await s.client.send(
                    method, path, orjson.dumps(body) if body else b"", headers
                )

            create = {"model": "demo", "input": "Hello"}
            made = await call("key-a", "POST", "/v1/responses", **create)
            mine = made.json()["id"]
            for method in ("GET", "DELETE"):
                refused = await call("key-b", method, f"/v1/responses/{mine}")
                unknown = await call("key-b", method, "/v1/responses/resp_no")
                assert (refused.status, unknown.status) == (404, 404)
                assert refused.error["code"] == unknown.error["code"]
            more = {"previous_response_id": mine}
            refused = await call("key-b", "POST", "/v1/responses", **create, **more)
            assert (refused.status, refused.error["code"]) == (404, "previous_response_not_found")
            assert "expired" not in refused.error["message"]
            assert (await call("key-a", "GET", f"/v1/responses/{mine}")).status == 200
            await call("key-b", "POST", "/v1/responses", **create)
            salts = [request.options.cache_salt for request in s.engine.requests]
            assert salts == ["ann", "bob"]

    asyncio.run(story())


def test_an_expired_response_is_told_apart_to_its_owner_alone() -> None:
    async def story() -> None:
        store = MemoryStore(Bounds(max_records=1))
        async with served(store=store, **KEYS) as s:

            async def call(key: str, method: str, path: str, **body: object) -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                return await s.client.send(
                    method, path, orjson.dumps(body) if body else b"", headers
                )

            create = {"model": "demo", "input": "Hello"}
            old = (await call("key-a", "POST", "/v1/responses", **create)).json()["id"]
            await call("key-a", "POST", "/v1/responses", **create)
            gone = await call("key-a", "GET", f"/v1/responses/{old}")
            assert (gone.status, gone.error["code"]) == (404, "response_expired")
            other = await call("key-b", "GET", f"/v1/responses/{old}")
            assert (other.status, other.error["code"]) == (404, "not_found")
            refused = await call(
                "key-a", "POST", "/v1/responses", previous_response_id=old, **create
            )
            assert refused.error["code"] == "previous_response_expired"

    asyncio.run(story())


# --- a history that is away -------------------------------------------------------------------


def test_while_redis_is_away_stateless_requests_go_on_and_others_are_told_when_to_return(
    redis: RedisServer,
) -> None:
    async def story() -> None:
        async with served(store=RedisStore(redis.url)) as s:
            made = (await s.client.create()).json()["id"]
            redis.kill()
            before = len(s.engine.requests)
            away = [
                await s.client.create(),
                await s.client.create(previous_response_id=made),
                await s.client.create(previous_response_id=made, store=False),
                await s.client.get(f"/v1/responses/{made}"),
                await s.client.send("DELETE", f"/v1/responses/{made}"),
            ]
            assert [call.status for call in away] == [503] * 5
            assert all(int(call.headers["retry-after"]) > 0 for call in away)
            assert len(s.engine.requests) == before  # refused before any token
            assert (await s.client.create(store=False)).status == 200
            redis.start()
            again = await s.client.create()
            assert again.status == 200
            assert (await s.client.get(f"/v1/responses/{again.json()['id']}")).status == 200

    asyncio.run(story())


def test_a_run_whose_record_cannot_be_kept_ends_failed_with_the_reason(redis: RedisServer) -> None:
    async def story() -> None:
        async with served(store=RedisStore(redis.url), manual=True) as s:
            call = s.client.ask(stream=True)
            while not s.engine.requests:
                await s.clock.step()
            redis.kill()
            while not call.ended:
                await s.clock.step()
            last = call.events[-1]
            assert last["type"] == "response.failed"
            assert "unreachable" in last["response"]["error"]["message"]

    asyncio.run(story())


def test_a_server_that_hangs_is_away_after_a_while(redis: RedisServer) -> None:
    async def story() -> None:
        async with served(store=RedisStore(redis.url, answer_s=2.0)) as s:
            made = (await s.client.create()).json()["id"]
            with redis.paused():
                assert (await s.client.create()).status == 503
                assert (await s.client.create(store=False)).status == 200
            assert (await s.client.get(f"/v1/responses/{made}")).status == 200

    asyncio.run(story())


def test_a_redis_that_was_never_there_stops_the_start_and_names_no_password() -> None:
    async def story() -> None:
        store = store_of(Settings(store="redis://:secret@127.0.0.1:1/0"), says_nothing)
        with pytest.raises(Exception, match="Cannot connect to Redis") as failed:
            await store.start()
        assert "redis://127.0.0.1:1" in str(failed.value)
        assert "secret" not in str(failed.value)

    asyncio.run(story())


# --- which store there is ---------------------------------------------------------------------


def test_the_settings_choose_the_store_and_a_served_history_lasts(tmp_path: Path) -> None:
    assert isinstance(store_of(Settings(), says_nothing), MemoryStore)
    assert isinstance(store_of(Settings(store="memory://"), says_nothing), MemoryStore)
    assert isinstance(store_of(Settings(store="redis://localhost"), says_nothing), RedisStore)
    assert isinstance(store_of(lasting(Settings(store="memory://")), says_nothing), MemoryStore)
    with pytest.raises(Exception, match="TRT_RESPONSES_STORE"):
        store_of(Settings(store="mysql://localhost"), says_nothing)

    async def story() -> None:
        for _ in range(2):
            store = store_of(lasting(Settings(data_dir=tmp_path / "mine")), says_nothing)
            async with served(store=store) as s:
                assert (await s.client.create()).status == 200
        assert (tmp_path / "mine" / "history.db").exists()

    asyncio.run(story())
