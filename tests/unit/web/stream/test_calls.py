"""Sends begun at once, and a writer that is made to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.turns import turn
from trt_responses.log.log import Cursor, Log
from trt_responses.web.stream.calls import IDLE, StartedCall, calls, finish
from trt_responses.web.stream.sse import Writer
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from starlette.types import Message


def test_a_call_that_need_not_wait_is_over_at_once() -> None:
    taken: list[int] = []

    async def call(number: int) -> None:
        taken.append(number)

    begin = calls(call).send
    assert [begin(n) for n in (1, 2, 3)] == [IDLE] * 3
    assert taken == [1, 2, 3]


def test_a_call_that_waits_goes_on_in_a_task_and_the_next_one_follows() -> None:
    async def story() -> list[str]:
        gate = asyncio.Event()
        taken: list[str] = []

        async def call(word: str) -> None:
            await gate.wait()
            await turn()
            taken.append(word)

        begun = calls(call)
        waits_for = begun.send("one")
        assert waits_for is not IDLE
        going_on = asyncio.ensure_future(awaited(begun, waits_for))
        await turn()
        assert not taken
        gate.set()
        await going_on
        await awaited(begun, begun.send("two"))
        return taken

    assert asyncio.run(story()) == ["one", "two"]


@pytest.mark.parametrize("late", [False, True])
def test_what_a_call_raises_reaches_whoever_made_it(late: bool) -> None:
    async def story() -> None:
        async def call(_: None) -> None:
            if late:
                await turn()
            raise OSError("gone")

        begun = calls(call)
        await awaited(begun, begun.send(None))

    with pytest.raises(OSError, match="gone"):
        asyncio.run(story())


def test_a_cancelled_task_cancels_the_call_that_it_carries() -> None:
    async def story() -> list[str]:
        heard: list[str] = []

        async def call(_: None) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        begun = calls(call)
        going_on = asyncio.ensure_future(awaited(begun, begun.send(None)))
        await turn()
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on
        return heard

    assert asyncio.run(story()) == ["cancelled"]


def test_a_call_without_end_is_begun_at_once_and_ended_with_its_block_without_a_task() -> None:
    async def story() -> list[str]:
        heard: list[str] = []
        awaited = asyncio.get_running_loop().create_future()

        async def call() -> None:
            heard.append("begun")
            try:
                await awaited
            finally:
                heard.append("ended")

        with StartedCall(call, lambda: heard.append("failed")):
            assert heard == ["begun"]
            assert len(asyncio.all_tasks()) == 1
        awaited.set_result(None)  # too late
        await turn()
        assert len(asyncio.all_tasks()) == 1
        return list(heard)

    assert asyncio.run(story()) == ["begun", "ended"]


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_what_such_a_call_waits_for_lets_it_go_on_as_often_as_it_likes(waits: int) -> None:
    async def story() -> list[int]:
        gates = [asyncio.Event() for _ in range(waits)]
        heard, over = list[int](), asyncio.Event()

        async def call() -> None:
            for number, gate in enumerate(gates):
                await gate.wait()
                heard.append(number)
            over.set()

        with StartedCall(call, over.set):
            for gate in gates:
                gate.set()
                await turn()
            await over.wait()
        return heard

    assert asyncio.run(story()) == list(range(waits))


def test_such_a_call_is_cancelled_with_its_block_when_it_has_come_to_a_task() -> None:
    async def story() -> list[str]:
        first, second, heard = asyncio.Event(), asyncio.Event(), list[str]()

        async def call() -> None:
            await first.wait()
            second.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        with StartedCall(call, lambda: heard.append("failed")):
            first.set()
            await second.wait()
        await turn()
        return list(heard)  # what the loop's own end cancels comes too late

    assert asyncio.run(story()) == ["cancelled"]


def test_such_a_call_that_breaks_later_is_told_of_and_one_that_breaks_at_once_raises() -> None:
    async def story() -> None:
        failed = asyncio.Event()

        async def call(*, late: bool) -> None:
            if late:
                await turn()
            raise OSError("gone")

        with StartedCall(lambda: call(late=True), failed.set):
            async with asyncio.timeout(60):
                await failed.wait()
        with (
            pytest.raises(OSError, match="gone"),
            StartedCall(lambda: call(late=False), failed.set),
        ):
            raise AssertionError("the block was entered")

    asyncio.run(story())


def test_such_a_call_that_is_over_at_once_leaves_nothing_behind() -> None:
    async def story() -> None:
        async def call() -> None: ...

        with StartedCall(call, lambda: None):
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())


async def awaited(begun: object, waits_for: object) -> None:
    await finish(begun, waits_for)  # type: ignore[arg-type]


# --- the writer -----------------------------------------------------------------------------------


class FakeRun:
    """As much of a run as a writer sees."""

    def __init__(self) -> None:
        self.log = Log(Response(id="resp_1", created_at=1, model="m"))
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.log.close()

    def say(self, *words: bytes) -> None:
        """One engine step with these words, of a text that begins with the first of them."""
        if not self.log.entries:
            self.log.append(e.OutputItemAdded(0, o.OutputMessage("msg_1", "final_answer")))
            self.log.append(e.ContentPartAdded("msg_1", 0, 0, o.OutputText()))
            self.growing = self.log.grow(e.OutputTextDelta("msg_1", 0, 0, ""))
        self.growing.pieces += words
        self.log.wake()


def test_each_step_is_one_send_and_leaves_within_it() -> None:
    async def story() -> None:
        run, sent = FakeRun(), []

        async def send(message: Message) -> None:
            sent.append(message["body"])

        writer = Writer(run, send)  # type: ignore[arg-type]
        for count, word in enumerate((b"a", b"b", b"c"), 1):
            run.say(word)
            assert len(sent) == count
        run.log.close()
        await writer.written()
        assert b"".join(sent) == Cursor(run.log).take()

    asyncio.run(story())


@pytest.mark.parametrize("waits", [False, True])
def test_the_last_step_is_left_to_the_end_of_the_stream(waits: bool) -> None:
    async def story() -> None:
        run, sent, gate = FakeRun(), list[bytes](), asyncio.Event()

        async def send(message: Message) -> None:
            sent.append(message["body"])
            if waits:
                await gate.wait()

        writer = Writer(run, send)  # type: ignore[arg-type]
        run.say(b"a")
        run.log.append(e.OutputTextDone("msg_1", 0, 0, "a"))
        run.log.close()
        assert len(sent) == 1
        gate.set()
        assert await writer.written()
        assert len(sent) == (2 if waits else 1)
        assert b"".join(sent) + writer.rest() == Cursor(run.log).take()
        assert not run.log.closing

    asyncio.run(story())


def test_what_comes_while_the_server_waits_leaves_together() -> None:
    async def story() -> None:
        run, sent, gate = FakeRun(), [], asyncio.Event()

        async def send(message: Message) -> None:
            sent.append(message["body"])
            if len(sent) == 1:
                await gate.wait()

        writer = Writer(run, send)  # type: ignore[arg-type]
        for word in (b"a", b"b", b"c", b"d"):
            run.say(word)
        run.log.close()
        assert len(sent) == 1
        gate.set()
        await writer.written()
        assert len(sent) == 2
        assert b"".join(sent) == Cursor(run.log).take()
        assert not run.cancelled

    asyncio.run(story())


@pytest.mark.parametrize("late", [False, True])
def test_a_connection_that_cannot_be_written_to_ends_the_run(late: bool) -> None:
    async def story() -> None:
        run = FakeRun()

        async def send(message: Message) -> None:
            if late:
                await turn()
            raise OSError("broken pipe")

        writer = Writer(run, send)  # type: ignore[arg-type]
        run.say(b"a")
        with pytest.raises(OSError, match="broken pipe"):
            await writer.written()
        assert run.cancelled

    asyncio.run(story())


def test_a_client_that_takes_nothing_is_dropped_when_too_much_is_held_for_it() -> None:
    async def story() -> None:
        run, sent, left = FakeRun(), list[bytes](), list[bool]()

        async def send(message: Message) -> None:
            sent.append(message["body"])
            await asyncio.Event().wait()

        writer = Writer(run, send, lambda: left.append(True), 1_000)  # type: ignore[arg-type]
        run.say(b"a")
        for _ in range(20):
            run.say(b"b")
        assert left == [True]
        assert not await writer.written()
        assert len(sent) == 1

    asyncio.run(story())


def test_a_ping_goes_only_where_nothing_else_is_on_its_way() -> None:
    async def story() -> None:
        run, sent, gate = FakeRun(), list[bytes](), asyncio.Event()

        async def send(message: Message) -> None:
            sent.append(message["body"])
            await gate.wait()

        writer = Writer(run, send)  # type: ignore[arg-type]
        writer.ping(event=False)
        writer.ping(event=False)  # the server has not taken the first
        assert sent == [b": keep-alive\n\n"]
        gate.set()
        run.log.close()
        assert await writer.written()
        writer.ping(event=False)
        assert sent == [b": keep-alive\n\n"]

    asyncio.run(story())
