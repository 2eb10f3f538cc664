"""One suite over every kind of store: what is promised by the seam holds for all of them.

About 15 s on one core, most of it the stateful runs at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import pytest
import redis

from tests.support import histories, postgres_server, redis_server
from tests.support.histories import AGE_S, FREE, LEASE_S, NOW, History, block, record
from tests.support.turns import turn
from trt_responses.errors import StartupError, StoreUnavailable
from trt_responses.store import Block, Expired, Job, Record
from trt_responses.stores.at_rest.blocks import split_body
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.redis.store import FORMAT, FORMAT_KEY
from trt_responses.stores.sqlite.store import SqliteStore
from trt_responses.stores.whole import Frames, Lock
from trt_responses.wire.response import Response, ResponseFault

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from trt_responses.store import Store

T = TypeVar("T")

KINDS = ("memory", "sqlite", "redis", "postgres", "encrypted")
BOUNDED = pytest.mark.parametrize("history", ["memory", "sqlite"], indirect=True)
"""A server bounds its own memory."""
SHARED = pytest.mark.parametrize("history", ["sqlite", "redis", "postgres"], indirect=True)
"""What is in memory is one server's, and ends with it."""


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server.running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres_server.running() as server:
        yield server.url


@pytest.fixture(params=KINDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    match request.param:
        case "memory":
            return histories.MemoryHistory()
        case "sqlite":
            return histories.SqliteHistory(tmp_path)
        case "encrypted":
            return histories.EncryptedHistory(tmp_path)
        case "redis":
            return histories.RedisHistory(request.getfixturevalue("redis_url"))
        case _:
            return histories.PostgresHistory(request.getfixturevalue("postgres_url"))


@contextlib.asynccontextmanager
async def opened(history: History, bounds: Bounds = FREE) -> Any:
    store = history.store(bounds)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def there(store: Store, names: Sequence[str], owner: str = "ann") -> str:
    return "".join([n for n in names if isinstance(await store.get(n, owner), Record)])


def frames(first: int, count: int, *, ended: bool = False) -> Frames:
    data = b"".join(b'data: {"n":%d}\n\n' % n for n in range(first, first + count))
    return Frames(first, count, data, ended)


def job(name: str = "j", owner: str = "ann") -> Job:
    return Job(name, owner, b'{"status": "queued"}', int(NOW))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("jump_s", [-86_400, 600, AGE_S + 86_400])
def test_a_date_that_jumps_takes_no_job_from_its_server(
    tmp_path: Path, kind: str, jump_s: float
) -> None:
    now_s, steady_s = [NOW], [NOW]

    def date() -> float:
        return now_s[0]

    def seconds() -> float:
        return steady_s[0]

    async def story() -> None:
        store = (
            MemoryStore(FREE, clock_s=date, lease_clock_s=seconds)
            if kind == "memory"
            else SqliteStore(tmp_path / "h.db", FREE, clock_s=date, lease_clock_s=seconds)
        )
        await store.start()
        await store.put_job(job())
        now_s[0] += jump_s
        await store.put(record("b", at=now_s[0]))
        assert await store.get("j", "ann") == job()
        assert await store.take_job("") is None
        assert await store.renew_job("j") == "held"
        assert await store.finish_job(record("j", at=now_s[0])) is True
        await store.put_job(replace(job("late"), created_at=int(now_s[0])))
        steady_s[0] += LEASE_S + 1
        found = await store.get("late", "ann")
        assert isinstance(found, Job)
        assert found.lost, "a lease ends by the other clock"
        await store.stop()

    run(story())


@pytest.mark.parametrize("jump_s", [60.0, 3600.0, -3600.0])
def test_servers_that_began_at_different_dates_see_a_lease_end_at_one_moment(
    tmp_path: Path, jump_s: float
) -> None:
    """The machine's date was wrong when the first one began, and has been put right since."""
    seconds = [100.0]

    def store(date_s: float, boot: str) -> SqliteStore:
        return SqliteStore(
            tmp_path / "h.db",
            TAKEN,
            clock_s=lambda: date_s,
            lease_clock_s=lambda: seconds[0],
            boot=boot,
        )

    async def story() -> None:
        one, other = store(NOW, "boot 1"), store(NOW + jump_s, "boot 1")
        await one.start()
        await other.start()
        await one.put_job(replace(job(), source=b"all there is", model="demo"))
        assert await one.lock(ONE, LEASE_S)
        seconds[0] += LEASE_S - 1
        assert await other.take_job("demo") is None
        assert not await other.lock(OTHER, LEASE_S)
        seconds[0] += 2
        assert await other.lock(OTHER, LEASE_S)
        taken = await other.take_job("demo")
        assert taken is not None
        await one.stop()
        await other.stop()
        seconds[0] = 5.0  # the machine has started again, a long time later
        third = store(NOW + 3 * 3600, "boot 2")
        await third.start()
        assert await third.renew_job("j", term=2) == "gone"
        await third.stop()

    run(story())


# --- records ----------------------------------------------------------------------------------

ODD_BLOCKS = (
    Block("call", b"{}", b"", call_id="", callee="functions.f"),
    Block("call", b"", b"\1\0\0\0", call_id="call_1", callee=None),
    Block("result", b'"\xf0\x9f\x8c\x8a"', b"\xff" * 8, call_id="\ud800 lone", callee="ü"),
    Block("final", bytes(range(256)) * 2000, b"\7\0\0\0" * 50_000),  # a thread packs it
)


def test_what_was_put_is_found_as_it_was_until_it_is_deleted(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            whole = replace(
                record("a", *ODD_BLOCKS, block("hello"), *ODD_BLOCKS, body="x" * 100_000),
                prior_count=4,
                input_count=1,
                continuable=False,
            )
            await store.put(whole)
            assert await store.get("a", "ann") == whole
            assert await store.get("b", "ann") is None
            assert await store.delete("a", "ann") is True
            assert await store.get("a", "ann") is None
            assert await store.delete("a", "ann") is False
            assert history.bytes(store) == (0, 0)

    run(story())


def test_what_is_looked_up_read_and_dropped_is_counted(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put(record("a", block("hello"), block("hello"), block("world")))
            await store.get("a", "ann")
            await store.get("a", "bob")
            await store.get("b", "ann")
            assert store.usage.reads == {"found": 1, "expired": 0, "absent": 2}
            assert (read := sum(store.usage.blocks.values())) >= 2
        async with opened(history) as other:
            found = isinstance(await other.get("a", "ann"), Record)
            assert found == history.lasts
            if found:
                assert other.usage.blocks == {"memory": 0, "store": read}
                await other.check()
                assert (other.usage.size_bytes or 0) > 0

    run(story())


@BOUNDED
def test_what_leaves_by_itself_is_counted_by_its_reason(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_records=2)) as store:
            for name in "abcd":
                await store.put(record(name, at=history.now_s))
            assert store.usage.dropped == {"age": 0, "room": 2}
            assert store.usage.records == 2
            assert store.usage.size_bytes == history.bytes(store).held
            history.advance(AGE_S + 1)
            await store.put(record("e", at=history.now_s))
            assert await store.get("c", "ann") == Expired("c")
            assert store.usage.dropped == {"age": 2, "room": 2}
            assert store.usage.reads["expired"] == 1
            assert store.usage.records == 1
            await store.delete("e", "ann")
            assert store.usage.dropped == {"age": 2, "room": 2}, "a client's own delete is none"
            assert store.usage.size_bytes == store.usage.records == 0

    run(story())


def test_another_owner_sees_nothing_and_changes_nothing(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put(record("a"))
            await store.put(record("old", at=NOW - AGE_S + 1))
            await store.put_job(job())
            await store.append_frames("j", frames(0, 3))
            history.advance(2)
            for name in ("a", "old", "j"):
                assert await store.get(name, "bob") is None
                assert await store.delete(name, "bob") is False
            assert await store.cancel_job("j", "bob") is False
            assert await store.frames_after("j", "bob", -1) is None
            assert isinstance(await store.get("a", "ann"), Record)
            assert await store.get("j", "ann") == job()
            assert await store.renew_job("j") == "held"

    run(story())


def test_all_that_is_kept_of_an_owner_is_listed(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            for name in "ab":
                await store.put(record(name, block("hello")))
            await store.put(record("c", block("hello"), owner="bob"))
            await store.put_job(job("j"))
            await store.put_job(job("k", "bob"))
            assert sorted(await store.ids_of("ann")) == ["a", "b", "j"]
            for name in await store.ids_of("ann"):
                assert await store.delete(name, "ann")
            assert await store.ids_of("ann") == []
            assert sorted(await store.ids_of("bob")) == ["c", "k"]

    run(story())


def test_a_record_is_replaced_only_where_it_is_and_keeps_its_age(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            prior = record("a", block("hello"), body="one")
            talk = replace(record("t", block("talk"), owner="bob"), version=1)
            await store.put(prior)
            assert await store.change(talk)
            assert sorted(await store.owners()) == ["ann", "bob"]
            newer = replace(prior, body=b'{"body": "two"}', blocks=(block("moon"), block("hello")))
            history.advance(AGE_S / 2)
            assert await store.replace(newer)
            assert await store.get("a", "ann") == newer
            spoken = replace(talk, blocks=(block("more"),))
            assert await store.replace(spoken)
            assert await store.get("t", "bob") == spoken
            for other in (replace(newer, owner="bob"), replace(newer, id="b"), talk):
                assert not await store.replace(replace(other, version=other.version * 2))
            assert await store.change(replace(talk, version=2))
            assert not await store.replace(spoken), "it has changed since it was read"
            await store.delete("a", "ann")
            assert not await store.replace(newer)
            assert await store.get("a", "ann") is None
            assert await store.owners() == ["bob"]
            last = record("c", at=history.now_s)
            await store.put(last)
            assert await store.replace(replace(last, blocks=(block("again"),)))
            history.advance(AGE_S / 2)
            assert isinstance(await store.get("c", "ann"), Record)
            assert await store.replace(last)
            history.advance(AGE_S / 2 + 1)
            assert await store.get("c", "ann") == Expired("c")

    run(story())


def test_what_is_too_old_has_expired_and_only_its_owner_hears_so(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put(record("a", block("hello")))
            await store.put_job(job())
            await store.append_frames("j", frames(0, 3))
            history.advance(AGE_S + 1)
            for name in "aj":
                if not isinstance(found := await store.get(name, "ann"), Job):
                    assert found == Expired(name)
                assert await store.get(name, "bob") is None
            await store.put(record("b", at=history.now_s))
            for name in "aj":
                assert await store.get(name, "ann") == Expired(name)
                assert await store.get(name, "bob") is None
                assert await store.delete(name, "ann") is False
            assert await store.frames_after("j", "ann", -1) is None
            assert await there(store, "ab") == "b"
            held = history.bytes(store)
            assert held.accounted == held.held < 200 + history.more_bytes

    run(story())


def test_putting_again_replaces(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put(record("a", block("shared"), block("gone")))
            await store.put(record("b", block("shared")))
            again = record("a", block("shared"), body="new")
            await store.put(again)
            assert await store.get("a", "ann") == again
            before = history.bytes(store)
            await store.put(again)
            assert history.bytes(store) == before
            assert before.accounted == before.held

    run(story())


def test_a_shared_block_is_kept_once_and_leaves_with_its_last_record(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            big = block("".join(map(chr, range(33, 33 + 50))) * 20)
            await store.put(record("a", big))
            one = history.bytes(store).held
            await store.put(record("b", big, block("own"), big))
            two = history.bytes(store)
            assert two.accounted == two.held < one + 150 + history.more_bytes
            await store.delete("a", "ann")
            found = await store.get("b", "ann")
            assert isinstance(found, Record)
            assert found.blocks == (big, block("own"), big)
            await store.delete("b", "ann")
            assert history.bytes(store) == (0, 0)

    run(story())


def test_what_was_asked_is_kept_once_however_often_it_was_asked(history: History) -> None:
    def asked(name: str, tools: str) -> Record:
        return replace(record(name), body=b'{"id":"%b","background":false%b}' % (
            name.encode(), tools.encode()
        ))  # fmt: skip

    async def story() -> None:
        async with opened(history) as store:
            tools = "".join(blake2b(bytes([n])).hexdigest() for n in range(16))
            await store.put(asked("a", tools))
            one = history.bytes(store).held
            for name in "bc":
                await store.put(asked(name, tools))
            three = history.bytes(store)
            assert three.accounted == three.held < one + 2 * 150
            await store.delete("a", "ann")
            for name in "bc":
                assert await store.get(name, "ann") == asked(name, tools)
            for name in "bc":
                await store.delete(name, "ann")
            assert history.bytes(store) == (0, 0)

    run(story())


def test_the_end_of_a_chain_is_whole_when_its_start_has_left(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put(record("a", block("one")))
            first = await store.get("a", "ann")
            assert isinstance(first, Record)
            await store.put(record("b", *first.blocks, block("two")))
            await store.delete("a", "ann")
            second = await store.get("b", "ann")
            assert isinstance(second, Record)
            await store.delete("b", "ann")
            # what a store gave is put without being packed again, also when it has left since
            await store.put(record("c", *second.blocks, block("three")))
            third = await store.get("c", "ann")
            assert isinstance(third, Record)
            assert third.blocks == (block("one"), block("two"), block("three"))

    run(story())


# --- bounds -----------------------------------------------------------------------------------


@BOUNDED
def test_over_the_count_the_least_recently_used_leaves(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_records=2)) as store:
            for name in "ab":
                await store.put(record(name))
            assert await there(store, "a") == "a"
            assert await store.get("b", "bob") is None  # another's asking keeps nothing alive
            await store.put(record("c"))
            assert await there(store, "abc") == "ac"
            assert await store.get("b", "ann") == Expired("b")

    run(story())


@BOUNDED
def test_over_the_bytes_as_many_leave_as_must_but_never_the_newest(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_bytes=120)) as store:
            for name in "abcde":
                await store.put(record(name))
            kept = await there(store, "abcde")
            assert kept.endswith("e")
            assert len(kept) in range(2, 5)
            noise = "".join(chr(33 + (n * n * 7919) % 1000) for n in range(3000))
            await store.put(record("f", block(noise)))
            assert await there(store, "abcdef") == "f"
            assert history.bytes(store).accounted > 120
            await store.put(record("g"))
            assert await there(store, "fg") == "g"

    run(story())


@BOUNDED
def test_of_what_has_left_only_so_many_are_remembered(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_records=1, max_expired=2)) as store:
            for name in "abcd":
                await store.put(record(name))
            found = [await store.get(name, "ann") for name in "abc"]
            assert found == [None, Expired("b"), Expired("c")]
            await store.put(record("b"))
            assert isinstance(await store.get("b", "ann"), Record)

    run(story())


@BOUNDED
def test_frames_have_a_bound_of_their_own(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_frame_bytes=150)) as store:
            for name in "xyz":
                await store.put_job(job(name))
                for first in range(0, 40, 10):
                    await store.append_frames(name, frames(first, 10))
            assert await store.frames_after("x", "ann", -1) is None
            whole = await store.frames_after("z", "ann", -1)
            assert whole == frames(0, 40)
            await store.append_frames("x", frames(40, 10))  # its beginning has left
            assert await store.frames_after("x", "ann", -1) is None
            assert isinstance(await store.get("x", "ann"), Job)

    run(story())


# --- conversations ----------------------------------------------------------------------------


def version(number: int, *texts: str, owner: str = "ann") -> Record:
    held = record("conv_1", *map(block, texts), owner=owner, body=f"version {number}")
    return replace(held, prior_count=len(texts), input_count=0, version=number)


def test_a_conversation_changes_one_version_after_another(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            assert await store.change(version(2, "a")) is False, "there is no first"
            assert await store.change(version(1)) is True
            assert await store.get("conv_1", "ann") == version(1)
            assert await store.change(replace(version(1), body=b"{}")) is False
            assert await store.change(version(2, "a", "b")) is True
            assert await store.change(version(2, "c")) is False, "somebody else was quicker"
            assert await store.change(version(4, "c")) is False
            assert await store.change(version(3, "b")) is True
            assert await store.get("conv_1", "ann") == version(3, "b")
            assert await store.get("conv_1", "bob") is None
            assert await store.delete("conv_1", "ann") is True
            assert await store.change(version(4, "c")) is False, "it is gone"
            assert history.bytes(store) == (0, 0)

    run(story())


def test_a_conversation_and_its_response_change_at_once_or_not_at_all(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.change(version(1, "a"))
            one, two = (record(name, *map(block, "ab")) for name in ("resp_1", "resp_2"))
            assert await store.change(version(2, "a", "b"), one) is True
            assert await store.change(version(2, "a", "x"), two) is False
            assert await there(store, ["resp_1", "resp_2"]) == "resp_1"
            assert await store.get("conv_1", "ann") == version(2, "a", "b")
            await store.delete("conv_1", "ann")
            assert await store.get("resp_1", "ann") == one, "the items of a response stay"

    run(story())


def test_a_background_response_changes_its_conversation_with_its_end(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.change(version(1))
            for name in ("j", "k"):
                await store.put_job(job(name))
            done = record("j", block("a"))
            assert await store.finish_job(done, frames(0, 5, ended=True), version(2, "a")) is True
            assert await store.get("conv_1", "ann") == version(2, "a")
            late = record("k", block("x"))
            assert await store.finish_job(late, frames(0, 5), version(2, "x")) is False
            assert isinstance(await store.get("k", "ann"), Job)
            await store.delete("k", "ann")
            assert await store.finish_job(late, None, version(3, "a", "x")) is False
            assert await store.get("conv_1", "ann") == version(2, "a")

    run(story())


@SHARED
def test_of_many_who_change_a_conversation_one_is_first(history: History) -> None:
    async def story() -> None:
        async with opened(history) as one, opened(history) as other:
            await one.change(version(1))
            texts = [f"{number}" for number in range(20)]
            changed = await asyncio.gather(
                *((one, other)[n % 2].change(version(2, text)) for n, text in enumerate(texts))
            )
            assert changed.count(True) == 1
            kept = await other.get("conv_1", "ann")
            assert kept == version(2, texts[changed.index(True)])

    run(story())


ONE, OTHER = Lock("conv_1", "ann", "resp_1"), Lock("conv_1", "ann", "resp_2")


def test_a_locked_conversation_is_changed_by_its_writer_alone(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.change(version(1))
            assert await store.lock(ONE, LEASE_S) is True
            assert await store.lock(ONE, LEASE_S) is True, "nobody heard the first time"
            assert await store.lock(OTHER, LEASE_S) is False
            assert await store.renew_lock(OTHER, LEASE_S) is False
            await store.unlock(OTHER)
            late = record("resp_2", block("x"))
            for lock in (None, OTHER):
                assert await store.change(version(2, "x"), late, lock=lock) is False
            assert await store.get("resp_2", "ann") is None
            mine = record("resp_1", block("a"))
            assert await store.change(version(2, "a"), mine, lock=ONE) is True
            assert await store.lock(OTHER, LEASE_S) is True, "a change by its writer frees it"
            await store.unlock(ONE)
            assert await store.change(version(3, "a", "b")) is False
            await store.unlock(OTHER)
            assert await store.change(version(3, "a", "b")) is True

    run(story())


def test_a_lock_lasts_while_it_is_renewed_and_no_longer(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.change(version(1))
            assert await store.lock(ONE, LEASE_S) is True
            for _ in range(3):
                history.advance(LEASE_S - 10)
                assert await store.renew_lock(ONE, LEASE_S) is True
            history.advance(LEASE_S + 1)
            assert await store.renew_lock(ONE, LEASE_S) is False, "its server died"
            assert await store.lock(OTHER, LEASE_S) is True
            assert await store.change(version(2, "a"), lock=ONE) is False

    run(story())


def test_another_owners_lock_locks_nothing(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.change(version(1))
            assert await store.lock(replace(OTHER, owner="bob"), LEASE_S) is True
            assert await store.lock(ONE, LEASE_S) is True
            assert await store.change(version(2, "a"), lock=ONE) is True

    run(story())


def test_the_lock_of_a_job_is_taken_with_the_job(history: History) -> None:
    async def story() -> None:
        async with opened(history, Bounds(lease_s=LEASE_S, takeover_s=5 * LEASE_S)) as store:
            await store.change(version(1))
            await store.put_job(replace(job(), source=b"all there is", model="demo"))
            first, second = (Lock("conv_1", "ann", "j", term) for term in (1, 2))
            assert await store.lock(first, 6 * LEASE_S) is True
            history.advance(LEASE_S)
            assert (await store.take_job("demo")) is not None
            assert await store.lock(OTHER, LEASE_S) is False
            assert await store.lock(second, LEASE_S) is True
            assert await store.lock(first, LEASE_S) is False, "whoever had it before"
            await store.unlock(first)
            done = record("j", block("a"))
            assert await store.finish_job(done, None, version(2, "a"), term=1) is False
            assert await store.lock(OTHER, LEASE_S) is False
            assert await store.finish_job(done, None, version(2, "a"), term=2) is True
            assert await store.lock(OTHER, LEASE_S) is True

    run(story())


@SHARED
def test_of_many_servers_one_locks_a_conversation(history: History) -> None:
    async def story() -> None:
        async with opened(history) as one, opened(history) as other:
            locks = [Lock("conv_1", "ann", f"resp_{number}") for number in range(20)]
            taken = await asyncio.gather(
                *((one, other)[n % 2].lock(lock, LEASE_S) for n, lock in enumerate(locks))
            )
            assert taken.count(True) == 1
            assert await one.renew_lock(locks[taken.index(True)], LEASE_S) is True

    run(story())


@BOUNDED
def test_a_conversation_leaves_as_a_response_does(history: History) -> None:
    async def story() -> None:
        async with opened(history, replace(FREE, max_records=2)) as store:
            await store.change(version(1, "a"))
            for name in ("x", "y"):
                await store.put(record(name, block(name)))
            assert await store.get("conv_1", "ann") == Expired("conv_1")
            assert await store.change(version(2, "b")) is False

    run(story())


# --- jobs -------------------------------------------------------------------------------------


def test_a_job_is_read_as_it_was_last_told_and_becomes_a_record_at_once(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put_job(job())
            assert await store.get("j", "ann") == job()
            assert await store.renew_job("j", b"newer") == "held"
            assert await store.renew_job("j") == "held"
            assert await store.get("j", "ann") == replace(job(), body=b"newer")
            done = record("j", block("hello"))
            assert await store.finish_job(done, frames(0, 5, ended=True)) is True
            assert await store.get("j", "ann") == done
            assert await store.frames_after("j", "ann", 2) == frames(3, 2, ended=True)
            assert await store.renew_job("j") == "gone"
            assert await store.cancel_job("j", "ann") is False
            assert await store.delete("j", "ann") is True
            assert await store.frames_after("j", "ann", 2) is None
            assert history.bytes(store) == (0, 0)

    run(story())


def test_a_cancel_is_heard_at_the_next_heartbeat(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put_job(job())
            assert await store.cancel_job("j", "ann") is True
            found = await store.get("j", "ann")
            assert isinstance(found, Job)
            assert found.cancel_requested
            assert await store.renew_job("j") == "cancel"
            assert await store.finish_job(record("j")) is True

    run(story())


def test_a_job_without_a_heartbeat_is_lost_and_stays_so(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put_job(job())
            history.advance(LEASE_S - 10)
            assert await store.renew_job("j") == "held"
            history.advance(LEASE_S - 10)
            found = await store.get("j", "ann")
            assert isinstance(found, Job)
            assert not found.lost
            history.advance(11)
            assert await store.get("j", "ann") == replace(job(), lost=True)
            assert await store.renew_job("j") == "gone"
            assert await store.cancel_job("j", "ann") is False
            assert await store.append_frames("j", frames(0, 1)) is False, "its end was read"
            assert await store.finish_job(record("j", block("late"))) is False
            assert await store.get("j", "ann") == replace(job(), lost=True)
            assert history.bytes(store) == (0, 0)
            assert await store.delete("j", "ann") is True
            assert await store.get("j", "ann") is None

    run(story())


async def nothing_of(store: Any, term: int) -> None:
    """Whoever had it writes nothing any more."""
    assert await store.renew_job("j", b"late", term=term) == "gone"
    assert await store.append_frames("j", frames(9, 1), term=term) is False
    assert await store.finish_job(record("j", block("late")), term=term) is False
    await store.leave_job("j", term=term, to_others=False)


TAKEN = Bounds(lease_s=LEASE_S, takeover_s=5 * LEASE_S)


def test_a_job_whose_lease_ran_out_is_taken_once_and_only_its_taker_can_write(
    history: History,
) -> None:
    async def story() -> None:
        async with opened(history, TAKEN) as store:
            left = replace(job(), source=b"all there is", model="demo")
            await store.put_job(left)
            told = (frames(0, 4), frames(4, 5))
            for each, ids in zip(told, (b"\1\0\0\0", b"\0\0\0\1" * 5), strict=True):
                assert await store.append_frames("j", replace(each, ids=ids)) is True
            assert await store.append_frames("j", replace(told[1], ids=b"twice")) is True
            assert await store.take_job("demo") is None, "its server has it"
            history.advance(LEASE_S)
            assert await store.renew_job("j") == "gone"
            found = await store.get("j", "ann")
            assert isinstance(found, Job)
            assert not found.lost, "somebody may take it"
            assert await store.take_job("another model") is None
            taken = await store.take_job("demo")
            assert taken == replace(left, term=2, ids=b"\1\0\0\0" + b"\0\0\0\1" * 5, frames=9)
            assert await store.take_job("demo") is None, "it has been taken"
            await nothing_of(store, 1)
            assert await store.renew_job("j", b"newer", term=2) == "held"
            assert await store.append_frames("j", frames(9, 2), term=2) is True
            assert await store.cancel_job("j", "ann") is True
            done = record("j", block("whole"))
            assert await store.finish_job(done, frames(11, 1, ended=True), term=2) is True
            assert await store.get("j", "ann") == done
            assert await store.frames_after("j", "ann", -1) == frames(0, 12, ended=True)
            assert await store.take_job("demo") is None

    run(story())


@pytest.mark.parametrize("how", ["nobody came", "too many died", "nobody can", "it is not wanted"])
def test_a_job_that_nobody_may_take_is_lost(history: History, how: str) -> None:
    async def story() -> None:
        async with opened(history, TAKEN) as store:
            source = b"" if how == "nobody can" else b"all there is"
            await store.put_job(replace(job(), source=source, model="demo"))
            history.advance(LEASE_S)
            if how == "nobody came":
                history.advance(5 * LEASE_S)
            if how == "too many died":
                for term in range(2, 2 + TAKEN.max_deaths):
                    taken = await store.take_job("demo")
                    assert isinstance(taken, Job)
                    assert taken.term == term
                    history.advance(LEASE_S)
            if how == "it is not wanted":
                assert (await store.take_job("demo")) is not None
                await store.leave_job("j", term=2, to_others=False)
            assert await store.take_job("demo") is None
            found = await store.get("j", "ann")
            assert isinstance(found, Job)
            assert found.lost
            assert await store.cancel_job("j", "ann") is False

    run(story())


def test_a_job_that_its_server_leaves_is_taken_at_once_and_that_is_no_death(
    history: History,
) -> None:
    async def story() -> None:
        async with opened(history, TAKEN) as store:
            await store.put_job(replace(job(), source=b"all there is", model="demo"))
            for term in range(1, 2 + 2 * TAKEN.max_deaths):
                await store.leave_job("j", term=term, to_others=True)
                taken = await store.take_job("demo")
                assert isinstance(taken, Job)
                assert taken.term == term + 1

    run(story())


def test_a_deleted_job_is_gone_for_its_server_and_never_comes_back(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put_job(job())
            await store.append_frames("j", frames(0, 5))
            assert await store.delete("j", "ann") is True
            assert await store.renew_job("j") == "gone"
            await store.append_frames("j", frames(5, 5))
            await store.append_frames("j", frames(0, 5))
            assert await store.finish_job(record("j")) is False
            assert await store.get("j", "ann") is None
            assert await store.frames_after("j", "ann", -1) is None

    run(story())


def test_frames_are_given_from_any_number_on_without_a_gap(history: History) -> None:
    async def story() -> None:
        async with opened(history) as store:
            await store.put_job(job())
            assert await store.frames_after("j", "ann", -1) is None
            for first, count in ((0, 1), (1, 9), (10, 2), (12, 200)):
                await store.append_frames("j", frames(first, count))
            await store.append_frames("j", frames(12, 200))  # told twice, kept once
            await store.append_frames("j", frames(300, 1))  # a gap is no frame's place
            for after in (-1, 0, 1, 8, 9, 10, 11, 100, 210):
                assert await store.frames_after("j", "ann", after) == frames(after + 1, 211 - after)
            nothing = await store.frames_after("j", "ann", 211)
            assert nothing == Frames(212, 0, b"")
            await store.append_frames("j", frames(212, 1, ended=True))
            assert await store.frames_after("j", "ann", 211) == frames(212, 1, ended=True)
            assert await store.frames_after("j", "ann", 212) == Frames(213, 0, b"", ended=True)
            assert await store.frames_after("j", "ann", 999) == Frames(213, 0, b"", ended=True)

    run(story())


# --- several servers, and one after another ---------------------------------------------------


@SHARED
def test_what_one_server_does_the_others_see_at_once(history: History) -> None:
    async def story() -> None:
        async with opened(history) as left, opened(history) as right:
            await left.put(record("a", block("one")))
            assert await right.get("a", "ann") == record("a", block("one"))
            assert await right.delete("a", "ann") is True
            assert await left.get("a", "ann") is None  # although its blocks are in its cache
            await right.put(record("a", block("two")))
            assert await left.get("a", "ann") == record("a", block("two"))
            await left.put_job(job())
            assert await right.get("j", "ann") == job()
            assert await right.cancel_job("j", "ann") is True
            assert await left.renew_job("j") == "cancel"
            await left.append_frames("j", frames(0, 7))
            assert await right.frames_after("j", "ann", 3) == frames(4, 3)
            assert await left.finish_job(record("j"), frames(7, 1, ended=True))
            assert await right.get("j", "ann") == record("j")
            assert await right.frames_after("j", "ann", 6) == frames(7, 1, ended=True)

    run(story())


@SHARED
def test_two_servers_that_write_at_once_lose_nothing(history: History) -> None:
    async def story() -> None:
        async with opened(history) as left, opened(history) as right:
            shared = block("shared")
            await asyncio.gather(
                *(
                    store.put(record(f"{side}{n}", shared, block(f"{side}{n}")))
                    for n in range(40)
                    for side, store in (("l", left), ("r", right))
                )
            )
            for n in range(40):
                for side, other in (("l", right), ("r", left)):
                    found = await other.get(f"{side}{n}", "ann")
                    assert isinstance(found, Record)
                    assert found.blocks == (shared, block(f"{side}{n}"))
            held = history.bytes(left)
            assert held.accounted == held.held

    run(story())


@SHARED
def test_a_dead_servers_records_stay_and_its_jobs_are_lost_within_the_lease(
    history: History,
) -> None:
    async def story() -> None:
        async with opened(history) as dead:
            await dead.put(record("a", block("one")))
            await dead.put_job(job())
            history.killed()
            async with opened(history) as store:
                assert await store.get("a", "ann") == record("a", block("one"))
                assert await store.get("j", "ann") == job()
                history.advance(LEASE_S)
                assert await store.get("j", "ann") == replace(job(), lost=True)

    run(story())


@pytest.mark.parametrize("turns", range(12))
def test_a_call_that_is_cancelled_at_any_turn_ends_cancelled(history: History, turns: int) -> None:
    """A life would never end whose cancellation is lost in a call."""

    async def story() -> None:
        async with opened(history) as store:
            call = asyncio.ensure_future(store.take_job("gpt-oss"))
            await turn(turns)
            was_over = not call.cancel()
            await asyncio.wait((call,))
            assert call.cancelled() or was_over

    run(story())


def test_two_responses_of_a_chain_end_alike() -> None:
    """What differs stands before what was asked, or nothing would be shared."""
    first = Response("resp_a", 1, "gpt-oss", metadata={"a": "b"}, instructions="Be brief.")
    fault = ResponseFault("server_error", "it broke")
    next_one = replace(
        first,
        id="resp_b",
        created_at=2,
        status="failed",
        completed_at=3,
        error=fault,
        usage=None,
        previous_response_id="resp_a",
    )
    (own, asked), (other, alike) = (split_body(orjson.dumps(each)) for each in (first, next_one))
    assert asked == alike
    assert b"Be brief." in asked.item
    assert own != other


@pytest.mark.parametrize("later", [-1, 1])
def test_a_redis_history_of_another_version_is_left_alone(redis_url: str, later: int) -> None:
    history = histories.RedisHistory(redis_url)
    with redis.Redis.from_url(redis_url) as server:
        server.set(FORMAT_KEY, FORMAT + later)

    async def story() -> None:
        with pytest.raises(StartupError, match=f"has format {FORMAT + later}, and this server"):
            await history.store().start()

    run(story())
    with redis.Redis.from_url(redis_url) as server:
        assert server.keys("*") == [FORMAT_KEY.encode()]


@pytest.mark.parametrize(
    ("setting", "back", "fault"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "takes no changes"),
        ("CONFIG SET requirepass x", "CONFIG SET requirepass", "refuses the password"),
    ],
)
def test_a_redis_server_that_refuses_is_named_until_it_takes_changes_again(
    redis_url: str, setting: str, back: str, fault: str
) -> None:
    async def story(server: Any) -> None:
        store = histories.RedisHistory(redis_url).store()
        await store.start()
        server.execute_command(*setting.split())
        try:
            for other in server.client_list():
                if other["id"] != str(server.client_id()):
                    server.client_kill_filter(_id=other["id"])
            with pytest.raises(StoreUnavailable, match=fault):
                await store.put(record("a"))
        finally:
            server.execute_command(*back.split(), *[""] * back.endswith("pass"))
        await store.put(record("a"))
        await store.stop()

    with redis.Redis.from_url(redis_url, single_connection_client=True) as server:
        run(story(server))
