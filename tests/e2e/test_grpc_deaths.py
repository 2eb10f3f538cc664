"""An engine behind gRPC goes away under 64 streams, and under responses, which go on with the next.

How long each takes with the real bounds is printed by `python -m scripts.engine_deaths`. Budget:
12 s on one core, most of it processes that begin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.deaths import PROMPT, STREAMS
from tests.support.double.llm import Double, nothing_ignored
from tests.support.double.results import Hang, Script
from tests.support.double.worker import Worker
from tests.support.gather import Gather, begin, generated
from tests.support.grpc_deaths import ENDLESS
from tests.support.grpc_server import llm_of, served, server_process
from tests.support.grpc_servicers import Servicer
from tests.support.polling import until_seen
from tests.support.served import ANSWER, ids
from tests.support.serving import client_of, listening
from trt_responses.engine import GenerateOptions
from trt_responses.engines.distant import Patience
from trt_responses.engines.grpc.engine import Address, GrpcEngine
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.support.double.llm import LLM
    from tests.support.double.words import SamplingParams

KEEN = Patience(look_s=0.05)
"""Looks often, and waits as long as a real one: a busy machine takes nobody for dead."""
HASTY = Patience(look_s=0.05, answer_s=2.0, misses=2)
HURRIED = Patience(look_s=0.05, silent_s=1.0, token_s=2.0)
CONTEXT = 100_000


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """The ranks' processes of a test. They end behind its event loop, and not in it: a late call of
    one that is dead and has told nothing never returns."""
    begun: list[Worker] = []
    yield begun
    for worker in begun:
        worker.end()


def quick(port: int, patience: Patience = KEEN) -> GrpcEngine:
    address = Address("127.0.0.1", port, "demo")
    return GrpcEngine(address, patience, find_ignored=nothing_ignored)


async def streams(engine: GrpcEngine) -> list[Gather]:
    told = [begin(engine, PROMPT, ENDLESS)[0] for _ in range(STREAMS)]
    await asyncio.gather(*(sink.some(2) for sink in told))
    return told


async def lost(told: list[Gather]) -> str:
    """The one reason by which all these streams were lost."""
    await asyncio.gather(*(sink.done() for sink in told))
    assert {sink.chunks[-1].lost for sink in told} == {"died"}
    (reason,) = {sink.end.error for sink in told}
    return reason or ""


def test_a_server_that_is_frozen_and_then_killed_is_told_and_found_again(
    workers: list[Worker],
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(server_process())
            engine = quick(server.port, HASTY)
            await engine.start()
            stack.push_async_callback(engine.stop, 1)
            told = await streams(engine)
            os.kill(server.pid, signal.SIGSTOP)
            assert "DEADLINE_EXCEEDED" in await lost(told)
            health = engine.health()
            assert (health.alive, health.ready) == (True, False)
            os.kill(server.pid, signal.SIGCONT)
            await until_seen(lambda: engine.health().ready)
            told = await streams(engine)
            os.kill(server.pid, signal.SIGKILL)
            assert "UNAVAILABLE" in await lost(told)
            other = Servicer(rank_llm(workers))
            await stack.enter_async_context(served(other, server.port))
            await until_seen(lambda: engine.health().ready)
            assert (await generated(engine, PROMPT, GenerateOptions(3, ()))).token_ids == [7] * 3

    asyncio.run(scenario())


def rank_llm(workers: list[Worker], error: Exception | None = None) -> LLM:
    """A package whose steps go through a rank's process, which is kept in `workers`."""

    def begun() -> Worker:
        workers.append(Worker(error, step_s=0.01))
        return workers[-1]

    def says(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        return Script(((7,),) * params.max_tokens)

    double = Double(says, version="main", worker=begun)
    return llm_of(double, max_seq_len=CONTEXT, max_num_tokens=CONTEXT, max_batch_size=720)


@asynccontextmanager
async def over(llm: LLM, patience: Patience = KEEN) -> AsyncIterator[GrpcEngine]:
    async with served(Servicer(llm)) as port:
        engine = quick(port, patience)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop(1)


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, IndexError, OSError, AssertionError])
def test_a_rank_that_fails_ends_all_streams_with_a_reason(
    kind: type[Exception], workers: list[Worker]
) -> None:
    async def scenario() -> None:
        async with over(rank_llm(workers, kind("a rank has failed"))) as engine:
            told = await streams(engine)
            workers[0].kill()
            assert "Executor is unhealthy" in await lost(told)
            await until_seen(lambda: "Executor" in (engine.health().reason or ""))

    asyncio.run(scenario())


def test_a_rank_that_is_frozen_is_told_by_a_token_that_does_not_come(workers: list[Worker]) -> None:
    async def scenario() -> None:
        async with over(rank_llm(workers), HURRIED) as engine:
            told = await streams(engine)
            workers[0].freeze()
            assert await lost(told) == (
                "The engine reports healthy and returns no ids (no token within 2 s)."
            )

    asyncio.run(scenario())


def test_a_server_that_is_not_there_is_waited_for_and_no_longer_than_it_may_load(
    caplog: pytest.LogCaptureFixture, workers: list[Worker]
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with served(Servicer(rank_llm(workers))) as port:
            pass
        with pytest.raises(StartupError, match=r"accepted no request within 0\.2 s: .*UNAVAILABLE"):
            await quick(port, Patience(start_s=0.2, look_s=0.05)).start()
        engine = quick(port)
        starting = asyncio.create_task(engine.start())
        caplog.clear()
        await until_seen(lambda: "waiting for the engine" in caplog.text)
        async with served(Servicer(rank_llm(workers)), port):
            await starting
            assert engine.health().ready
            await engine.stop(1)

    asyncio.run(scenario())


def test_a_server_whose_rank_dies_in_the_start_is_no_engine(workers: list[Worker]) -> None:
    async def scenario() -> None:
        llm = rank_llm(workers, RuntimeError("gone"))
        async with served(Servicer(llm)) as port:
            workers[0].kill()
            with pytest.raises(StartupError, match=r"gone|Executor is unhealthy"):
                await quick(port, Patience(start_s=0.2, look_s=0.05)).start()

    asyncio.run(scenario())


async def ready(engine: GrpcEngine) -> None:
    await until_seen(lambda: engine.health().ready)


WORDS = ids(ANSWER)


def answering(said: int | None) -> Double:
    """An engine that goes on with the answer wherever a prompt has left off, and hangs behind so
    many ids of it."""

    def script(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        prompt = tuple(prompt_ids)
        done = next(n for n in range(len(WORDS), -1, -1) if prompt[len(prompt) - n :] == WORDS[:n])
        steps = tuple((token_id,) for token_id in WORDS[done:said])
        return Script(steps if said is None or params.max_tokens == 1 else (*steps, Hang()))

    return Double(script, version="main")


def test_a_response_goes_on_over_http_when_the_engine_is_started_again() -> None:
    """Two front ends over one engine: neither loses its client."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            first = AsyncExitStack()
            port = await first.enter_async_context(
                served(Servicer(llm_of(answering(5), max_seq_len=CONTEXT)))
            )
            engines = [quick(port) for _ in range(2)]
            streams = []
            for engine in engines:
                address = await stack.enter_async_context(listening(engine))
                client = await stack.enter_async_context(client_of(address))
                await ready(engine)
                streams.append(
                    await client.responses.create(model="demo", input="Hello.", stream=True)
                )
            heard: list[list[str]] = [[], []]

            async def read(place: int) -> None:
                async for event in streams[place]:
                    if event.type == "response.output_text.delta":
                        heard[place].append(event.delta)
                    last[place] = event.type

            last = ["", ""]
            reading = [asyncio.create_task(read(place)) for place in range(2)]
            await until_seen(lambda: all(heard))
            await first.aclose()
            await until_seen(lambda: not any(engine.health().ready for engine in engines))
            other = Servicer(llm_of(answering(None), max_seq_len=CONTEXT))
            await stack.enter_async_context(served(other, port))
            await asyncio.gather(*reading)
            assert ["".join(words) for words in heard] == ["Hello there, friend."] * 2
            assert last == ["response.completed"] * 2

    asyncio.run(scenario())
