"""Sends begun at once, and a writer that is made to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from trt_responses.response.log import Cursor, Log
from trt_responses.web.eager import IDLE, calls, rest
from trt_responses.web.sse import Writer
from trt_responses.wire import events as e
from trt_responses.wire import items as i
from trt_responses.wire.request import parse
from trt_responses.wire.response import opened

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
            await asyncio.sleep(0)
            taken.append(word)

        begun = calls(call)
        asked = begun.send("one")
        assert asked is not IDLE
        going_on = asyncio.ensure_future(awaited(begun, asked))
        await asyncio.sleep(0)
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
                await asyncio.sleep(0)
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
        await asyncio.sleep(0)
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on
        return heard

    assert asyncio.run(story()) == ["cancelled"]


async def awaited(begun: object, asked: object) -> None:
    await rest(begun, asked)  # type: ignore[arg-type]


# --- the writer -----------------------------------------------------------------------------------


class FakeRun:
    """As much of a run as a writer sees."""

    def __init__(self) -> None:
        asked = parse(b'{"model": "m", "input": "Hello"}')
        self.log = Log(opened(asked, id="resp_1", created_at=1, model="m"))
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.log.close()

    def say(self, *words: bytes) -> None:
        """One engine step with these words, of a text that begins with the first of them."""
        if not self.log.entries:
            self.log.append(e.OutputItemAdded(0, i.OutputMessage("msg_1", "final_answer")))
            self.log.append(e.ContentPartAdded("msg_1", 0, 0, i.OutputText()))
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
                await asyncio.sleep(0)
            raise OSError("broken pipe")

        writer = Writer(run, send)  # type: ignore[arg-type]
        run.say(b"a")
        with pytest.raises(OSError, match="broken pipe"):
            await writer.written()
        assert run.cancelled

    asyncio.run(story())
