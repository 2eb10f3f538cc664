"""The engine around the batch: its thread, its deadlines, its guides, and how it fails.

What every engine promises is in `tests/support/engine_claims.py`. Budget: 8 s on one core.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.executor import HashExecutor, fails
from tests.support.gather import Gather, begin, generated
from tests.support.idle import beside
from trt_responses.engine import GenerateOptions, Guide
from trt_responses.engines.tensorrt.engine import TensorRtEngine
from trt_responses.engines.tensorrt.guides import tokeniser
from trt_responses.errors import EngineUnavailable, InvalidRequest, StartupError
from trt_responses.tokens.control import FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from trt_responses.tokens.vocabulary import Vocabulary

PROMPT = list(range(10, 20))
GREEDY = GenerateOptions(5, (), temperature=0.0)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Tokyo", "São Paulo"]}, "days": {"type": "boolean"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def run(claim: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(300):
            await claim

    asyncio.run(within())


def engine_over(
    executor: HashExecutor,
    vocabulary: Vocabulary,
    *,
    stall_s: float = 60,
    now_ns: Callable[[], int] | None = None,
) -> TensorRtEngine:
    return TensorRtEngine(
        lambda: executor,
        vocabulary,
        slots=executor.slots,
        context_tokens=executor.length,
        top=executor.top,
        stall_s=stall_s,
        now_ns=now_ns or time.monotonic_ns,
    )


@asynccontextmanager
async def started(engine: TensorRtEngine) -> AsyncIterator[TensorRtEngine]:
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop(5)


class Gate:
    """Holds the executor's thread in a step until it is opened. Open at first, for the start."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.held = threading.Event()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def __call__(self) -> None:
        if not self._open.is_set():
            self.held.set()
            self._open.wait(300)


def test_an_executor_that_fails_ends_what_runs_and_the_engine(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        executor = HashExecutor(before=fails("the card fell off the bus", after=6))
        async with started(engine_over(executor, vocabulary)) as engine:
            told = [begin(engine, [n, *PROMPT], GREEDY)[0] for n in range(5)]
            for sink in told:
                await sink.done()
            assert {sink.end.finish for sink in told} == {"error"}
            assert "fell off the bus" in (told[0].end.error or "")
            health = engine.health()
            assert (health.alive, health.ready) == (False, False)
            assert "fell off the bus" in (health.reason or "")
            with pytest.raises(EngineUnavailable, match="fell off the bus"):
                begin(engine, PROMPT, GREEDY)
        assert executor.closed

    run(claim())


def test_a_step_that_never_ends_is_a_lost_engine_and_a_bounded_stop(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        gate, now = Gate(), iter(range(0, 10**15, 10**9))
        engine = engine_over(
            HashExecutor(before=gate), vocabulary, stall_s=0.02, now_ns=lambda: next(now)
        )
        await engine.start()
        gate.close()
        told, _ = begin(engine, PROMPT, GREEDY)
        await told.done()
        assert told.end.finish == "error"
        assert "longer than 0.02 s" in (told.end.error or "")
        assert told.chunks[-1].lost == "died"
        assert not engine.health().alive
        await engine.stop(0.01)  # comes back although the thread does not
        gate.open()

    run(claim())


def test_a_stop_lets_the_step_end_and_closes_the_executor(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        gate, executor = Gate(), HashExecutor()
        executor.before = gate
        engine = engine_over(executor, vocabulary)
        await engine.start()
        gate.close()
        told, _ = begin(engine, PROMPT, GREEDY)
        await asyncio.to_thread(gate.held.wait)
        stopping = asyncio.create_task(engine.stop(30))
        await told.done()  # at once, while the step is still being computed
        assert told.end.finish == "error"
        assert not executor.closed
        gate.open()
        await stopping
        assert executor.closed
        assert engine.health().alive  # it was stopped, not lost

    run(claim())


def test_a_request_aborted_within_a_step_hears_nothing_of_it(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        gate = Gate()
        async with started(engine_over(HashExecutor(before=gate), vocabulary)) as engine:
            gate.close()
            told, handle = begin(
                engine, PROMPT[:5], GREEDY
            )  # one chunk: this very step gives an id
            await asyncio.to_thread(gate.held.wait)
            handle.abort()
            gate.open()
            await generated(engine, PROMPT, GREEDY)
            assert not told.chunks

    run(claim())


def test_all_that_speak_hear_of_a_step_in_one_turn_of_the_loop(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        turns: list[list[int]] = [[], [], []]

        class Timed(Gather):
            def __init__(self, place: int) -> None:
                super().__init__()
                self._place = place

            def push(self, chunk: Chunk, /) -> None:
                turns[self._place].append(others.count)
                super().push(chunk)

        gate = Gate()
        engine = engine_over(HashExecutor(before=gate), vocabulary)
        async with beside() as others, started(engine):
            sinks = [Timed(n) for n in range(3)]
            options = GenerateOptions(30, (), temperature=0.0)
            gate.close()
            for n, sink in enumerate(sinks):
                engine.generate([n, *PROMPT], options, sink)
            gate.open()
            for sink in sinks:
                await sink.done()
        assert all(len(set(heard)) == 30 for heard in turns)  # no step is computed far ahead
        together = set(turns[0]) & set(turns[1]) & set(turns[2])
        assert len(together) >= 20  # of 30: they do not begin together

    from trt_responses.engine import Chunk

    run(claim())


@pytest.mark.parametrize(
    ("executor", "sentence"),
    [
        (HashExecutor(slots=2), "2 slots, but its card says 3"),
        (HashExecutor(length=32), "32 tokens in a slot, but its card says 64"),
        (HashExecutor(before=fails("no such kernel")), "loaded and then failed: no such kernel"),
    ],
    ids=["slots", "length", "first step"],
)
def test_an_engine_that_is_not_what_its_card_says_does_not_start(
    vocabulary: Vocabulary, executor: HashExecutor, sentence: str
) -> None:
    async def claim() -> None:
        engine = TensorRtEngine(
            lambda: executor, vocabulary, slots=3, context_tokens=64, top=executor.top
        )
        with pytest.raises(StartupError, match=sentence):
            await engine.start()
        assert executor.closed
        assert not engine.health().ready
        await engine.stop(5)

    run(claim())


def test_a_start_that_fails_says_why(vocabulary: Vocabulary) -> None:
    def refused() -> HashExecutor:
        raise StartupError("no driver here")

    async def claim() -> None:
        engine = TensorRtEngine(refused, vocabulary, slots=3, context_tokens=64, top=8)
        with pytest.raises(StartupError, match="no driver here"):
            await engine.start()
        await engine.stop(5)

    run(claim())


def test_without_the_guides_library_the_start_says_the_remedy(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def claim() -> None:
        engine = engine_over(HashExecutor(), vocabulary)
        with pytest.raises(StartupError, match=r"pip install 'trt-responses\[tensorrt\]'"):
            await engine.start()
        await engine.stop(5)

    monkeypatch.setitem(sys.modules, "llguidance", None)
    tokeniser.cache_clear()
    run(claim())


def whole(vocabulary: Vocabulary, told: Gather) -> str:
    """The text of a guided answer, without what ended it; no control id is in it."""
    assert told.end.finish == "stop", told.end
    *ids, last = told.token_ids
    assert last == told.end.stop_id
    assert all(token_id < FIRST_CONTROL_ID for token_id in ids)
    return b"".join(vocabulary.token_bytes[token_id] for token_id in ids).decode()


def guided(guide: Guide, temperature: float = 0.0, max_tokens: int = 60) -> GenerateOptions:
    return GenerateOptions(max_tokens, (), temperature=temperature, guide=guide, seed=3, logprobs=2)


@pytest.mark.slow  # 2 s: a row of 200,000 for each token
def test_a_model_that_knows_nothing_still_says_what_its_guide_says(vocabulary: Vocabulary) -> None:
    """Its candidates are never among what is allowed: the whole row decides."""

    async def claim() -> None:
        executor = HashExecutor(vocabulary=VOCABULARY_SIZE, length=128)
        async with started(engine_over(executor, vocabulary)) as engine:
            schema = Guide("json_schema", orjson.dumps(SCHEMA).decode())
            pattern = Guide("regex", r"final|commentary to=functions\.(get_weather|get_time) ")
            asked = [
                generated(engine, PROMPT, guided(guide, temperature))
                for guide in (schema, pattern)
                for temperature in (0.0, 1.0)
            ]
            told = await asyncio.gather(*asked)
            for sink in told[:2]:
                found = orjson.loads(whole(vocabulary, sink))
                assert found["city"] in ("Tokyo", "São Paulo")
                assert isinstance(found["days"], bool)
            for sink in told[2:]:
                assert re.fullmatch(pattern.source, whole(vocabulary, sink))
            assert executor.fetched
            assert all(entry.logprob <= 0 for sink in told for entry in sink.logprobs)

    run(claim())


@pytest.mark.parametrize(
    "guide", [Guide("regex", "(unclosed"), Guide("json_schema", '{"type": "nothing"}')]
)
def test_a_guide_that_cannot_be_made_ends_its_request_alone(
    vocabulary: Vocabulary, guide: Guide
) -> None:
    async def claim() -> None:
        async with started(engine_over(HashExecutor(), vocabulary)) as engine:
            told = await generated(engine, PROMPT, guided(guide))
            assert told.end.finish == "error"
            assert "guide is not supported" in (told.end.error or "")
            assert (await generated(engine, PROMPT, GREEDY)).end.finish == "length"

    run(claim())


def test_a_guide_that_is_no_json_is_refused_before_a_token(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        async with started(engine_over(HashExecutor(), vocabulary)) as engine:
            with pytest.raises(InvalidRequest, match="not JSON"):
                begin(engine, PROMPT, guided(Guide("json_schema", "{")))

    run(claim())


def test_bans_that_leave_nothing_of_a_guide_end_the_request(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        executor = HashExecutor(vocabulary=VOCABULARY_SIZE)
        async with started(engine_over(executor, vocabulary)) as engine:
            a = vocabulary.token_bytes.index(b"a")
            options = GenerateOptions(9, (), guide=Guide("regex", "a"), banned_ids=(a,), seed=1)
            told = await generated(engine, PROMPT, options)
            assert (told.end.finish, told.token_ids) == ("error", [])
            assert "allowed" in (told.end.error or "")

    run(claim())


def test_an_aborted_guide_that_is_still_being_made_never_runs(vocabulary: Vocabulary) -> None:
    async def claim() -> None:
        async with started(engine_over(HashExecutor(), vocabulary)) as engine:
            told, handle = begin(engine, PROMPT, guided(Guide("regex", "[a-z]{40}")))
            handle.abort()
            await generated(engine, PROMPT, guided(Guide("regex", "(unclosed")))
            await generated(engine, PROMPT, GREEDY)
            assert not told.chunks

    run(claim())
