"""The parts of streams that have no run: keep-alive, the table of keys, stored frames."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.ticks import Ticks
from trt_responses.errors import ApiError, InvalidRequest, StoreUnavailable
from trt_responses.features.background.replay import frames_of
from trt_responses.features.idempotency.repeats import Repeats
from trt_responses.store import Found, Job, Record
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Frames
from trt_responses.web.stream.keepalive import KeepAlive
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable


class Quiet:
    """A writer of which a test says what it wrote."""

    def __init__(self) -> None:
        self.written = self.pings = self.events = 0

    def place(self) -> int:
        return self.written

    def ping(self, *, event: bool) -> None:
        self.pings += 1
        self.events += event


@pytest.mark.parametrize("offset", [0.0, 0.3, 1.2, 2.4])
def test_silence_is_broken_between_its_time_and_a_quarter_more(offset: float) -> None:
    async def story() -> None:
        ticks, writer = Ticks(), Quiet()
        alive = KeepAlive(10, 30, ticks.sleep)
        async with alive.life():
            await ticks.pass_(offset)
            with alive.over(writer):
                await ticks.pass_(9.99)
                assert writer.pings == 0
                await ticks.pass_(2.51)
                assert writer.pings == 1
                writer.written += 1
                await ticks.pass_(9.99)
                assert writer.pings == 1
                await ticks.pass_(2.51)
                assert writer.pings == 2
                await ticks.pass_(20)
                assert (writer.pings, writer.events) == (4, 1)
                writer.written += 1
                await ticks.pass_(29.9)
                assert writer.events == 1, "what was written counts"
            await ticks.pass_(100)
            assert writer.events == 1, "a stream that is over is left alone"

    asyncio.run(story())


def test_keys_are_forgotten_after_their_time() -> None:
    async def story() -> None:
        ticks = Ticks()
        repeats = Repeats(max_keys=10, ttl_s=60, clock_s=ticks)
        attempt, first = repeats.attempt("ann", "k", b"a")
        assert first
        ticks.now += 59
        assert repeats.attempt("ann", "k", b"a") == (attempt, False)
        with pytest.raises(InvalidRequest):
            repeats.attempt("ann", "k", b"b")
        ticks.now += 1
        again, first = repeats.attempt("ann", "k", b"b")
        assert first
        assert again is not attempt
        assert len(repeats) == 1

    asyncio.run(story())


def test_no_more_keys_are_kept_than_may_be() -> None:
    async def story() -> None:
        repeats = Repeats(max_keys=3, ttl_s=60, clock_s=Ticks())
        for number in range(10):
            repeats.attempt("", str(number), b"")
        assert len(repeats) == 3
        assert [repeats.attempt("", key, b"")[1] for key in ("9", "8", "7", "6")] == [
            *(False, False, False, True)
        ]

    asyncio.run(story())


# --- stored frames ------------------------------------------------------------------------------


def frame(number: int) -> bytes:
    return b'event: x\ndata: {"n":%d}\n\n' % number


def frames(first: int, count: int, *, ended: bool = False) -> Frames:
    return Frames(first, count, b"".join(map(frame, range(first, first + count))), ended)


JOB = Job("resp_1", "ann", b'{"output": []}', 0)


def record(job: Job) -> Record:
    return Record(job.id, job.owner, b"{}", (), 0, 0, True, "2026-02-03")


async def read(store: MemoryStore, after: int, *happens: Callable[[], object]) -> list[bytes]:
    """What a reader gets, when one thing after the other happens while it waits."""
    left = list(happens)

    async def pause(repeated: Callable[[], bytes]) -> None:
        if not left:
            raise TimeoutError
        happened = left.pop(0)()
        if asyncio.iscoroutine(happened):
            await happened

    return [
        piece
        async for piece in frames_of(
            store, "resp_1", "ann", after=after, pause=pause, dialect=OPENAI
        )
    ]


class Leaving(MemoryStore):
    """A store that is away now and then."""

    away = False

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        self.check_here()
        return await super().frames_after(response_id, owner, after)

    async def get(self, response_id: str, owner: str) -> Found:
        self.check_here()
        return await super().get(response_id, owner)

    def check_here(self) -> None:
        if self.away:
            raise StoreUnavailable("The store is away.")


def test_a_reader_waits_for_a_store_that_is_away_once_it_has_begun() -> None:
    async def story() -> None:
        store = Leaving()
        await store.put_job(JOB)
        await store.append_frames("resp_1", frames(0, 3))
        got = await read(
            store,
            -1,
            lambda: setattr(store, "away", True),
            lambda: None,
            lambda: setattr(store, "away", False),
            lambda: store.finish_job(record(JOB), frames(3, 2, ended=True)),
        )
        assert b"".join(got) == b"".join(map(frame, range(5)))
        store.away = True
        with pytest.raises(StoreUnavailable):
            await read(store, -1)

    asyncio.run(story())


def test_what_comes_while_one_reads_is_read_once_and_in_order() -> None:
    async def story() -> None:
        store = MemoryStore()
        await store.put_job(JOB)
        await store.append_frames("resp_1", frames(0, 3))
        got = await read(
            store,
            1,
            lambda: store.append_frames("resp_1", frames(3, 2)),
            lambda: None,
            lambda: store.finish_job(record(JOB), frames(5, 2, ended=True)),
        )
        assert b"".join(got) == b"".join(map(frame, range(2, 7)))

    asyncio.run(story())


def test_an_end_without_events_is_an_end() -> None:
    """A cancelled run's last piece may hold no frame."""

    async def story() -> None:
        store = MemoryStore()
        await store.put_job(JOB)
        await store.append_frames("resp_1", frames(0, 3))
        got = await read(store, -1, lambda: store.finish_job(record(JOB), frames(3, 0, ended=True)))
        assert b"".join(got) == b"".join(map(frame, range(3)))
        assert await read(store, 2) == []

    asyncio.run(story())


def test_a_record_without_frames_says_that_they_have_left() -> None:
    async def story() -> None:
        store = MemoryStore()
        await store.put(record(JOB))
        with pytest.raises(ApiError) as caught:
            await read(store, -1)
        assert caught.value.status == 404

    asyncio.run(story())
