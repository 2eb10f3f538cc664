"""What crosses the socket arrives as it was, in its order and however the bytes are cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.support.turns import turn
from trt_responses.engine import EXTRAS, Chunk, GenerateOptions, Guide, Health, Limits, Logprob
from trt_responses.engines.remote import frames
from trt_responses.engines.remote.frames import Kind, Splitter
from trt_responses.engines.remote.server import EngineServer, FrontEnd, RemoteSink
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.run.origin import NOWHERE

if TYPE_CHECKING:
    from trt_responses.engine import Engine


def chunk(*parts: Any, **named: Any) -> Chunk:
    """Without types, from which hypothesis would fill in the fields that are not given."""
    return Chunk(*parts, **named)


WORD = st.integers(0, 2**32 - 1)
IDS = st.lists(WORD, max_size=5).map(tuple)
SCORED = st.builds(
    Logprob,
    WORD,
    st.floats(-100, 0),
    st.lists(st.tuples(WORD, st.floats(-100, 0)), max_size=2).map(tuple),
)
CACHED = st.none() | WORD
GOING_ON = st.builds(chunk, IDS, st.lists(SCORED, max_size=2), CACHED)
LAST = st.builds(
    chunk,
    IDS,
    st.just([]),
    CACHED,
    st.sampled_from(["stop", "length", "error"]),
    st.none() | WORD,
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    metrics=st.none() | st.just({"ttft": 0.25}),
)
CHUNKS = st.builds(chunk, IDS) | GOING_ON | LAST


def read(data: bytes, cut: int) -> list[tuple[int, Chunk]]:
    splitter, told = Splitter(), []
    for start in range(0, len(data), cut):
        for kind, body in splitter.feed(data[start : start + cut]):
            if kind in (Kind.IDS, frames.SINGLES):
                told += [(number, Chunk([token_id])) for number, token_id in frames.read_ids(body)]
            elif kind == Kind.RUNS:
                told += [(number, Chunk(ids)) for number, ids in frames.read_runs(body)]
            else:
                told += frames.read_chunks(body)
    return told


def told_of(chunks: list[tuple[int, Chunk]]) -> list[tuple[int, Chunk]]:
    """The same, its sequences as lists."""
    return [
        (number, chunk._replace(token_ids=[*chunk.token_ids], logprobs=[*chunk.logprobs]))
        for number, chunk in chunks
    ]


@given(st.lists(st.tuples(WORD, CHUNKS), max_size=12), st.integers(1, 40))
def test_what_an_engine_pushes_arrives_in_its_order(
    pending: list[tuple[int, Chunk]], cut: int
) -> None:
    assert told_of(read(frames.steps(pending), cut)) == told_of(pending)


@given(st.lists(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=3)), st.integers(1, 60))
def test_steps_of_one_id_each_that_come_together_lose_none(
    steps: list[list[tuple[int, int]]], cut: int
) -> None:
    data = b"".join(frames.single_ids([word for pair in step for word in pair]) for step in steps)
    assert read(data, cut) == [(number, Chunk([one])) for step in steps for number, one in step]


@given(st.lists(st.tuples(WORD, st.builds(chunk, st.lists(WORD, min_size=1, max_size=1)) | CHUNKS)))
def test_what_is_pushed_within_a_turn_is_sent_in_its_order(pushed: list[tuple[int, Chunk]]) -> None:
    assert told_of(read(sent(pushed) or b"", 40)) == told_of(pushed)


def test_a_step_of_one_id_each_takes_eight_bytes_for_each_stream() -> None:
    step = [(number, Chunk((number + 7,))) for number in range(64)]
    assert len(sent(step)) == frames.HEAD.size + 64 * 8


class Healthy:
    """An engine of which only its health is asked."""

    def health(self) -> Health:
        return Health(True, True, 0)


class Written(FrontEnd):
    """A front end whose bytes are kept, each write by itself."""

    def __init__(self) -> None:
        super().__init__(EngineServer(cast("Engine", Healthy()), "1"))
        self.writes: list[bytes] = []

    def write(self, said: bytes) -> None:
        self.writes.append(said)


def sent(pushed: list[tuple[int, Chunk]]) -> bytes:
    """What leaves for a front end when an engine pushes all of it within one turn."""

    async def push_all() -> bytes:
        front_end = Written()
        for number, chunk in pushed:
            RemoteSink(front_end, number).push(chunk)
        assert not front_end.writes
        await turn()
        assert len(front_end.writes) == bool(pushed)
        return b"".join(front_end.writes)

    return asyncio.run(push_all())


def test_a_request_arrives_with_all_its_options() -> None:
    options = GenerateOptions(
        9,
        (200002, 200012),
        temperature=0.25,
        top_p=0.5,
        logit_bias=((3, 2.0), (4, -5.0)),
        seed=2**63,
        logprobs=3,
        guide=Guide("json_schema", '{"const": "déjà"}'),
        banned_ids=(1, 2),
        cache_salt="ann",
        adapter="style",
        trace_headers={"traceparent": "00-1"},
        arrival_ns=5,
        request_id="resp_1",
        metrics=True,
    )
    (((kind, body),)) = Splitter().feed(frames.generate(7, range(1000), options))
    assert kind == Kind.GENERATE
    assert frames.read_generate(body) == (7, list(range(1000)), options)


def test_a_request_that_no_http_request_is_behind_arrives_too() -> None:
    """As one of a response that was taken over."""
    options = GenerateOptions(9, (200002,), trace_headers=NOWHERE.trace_headers)
    (((_, body),)) = Splitter().feed(frames.generate(7, (1, 2), options))
    assert frames.read_generate(body) == (7, [1, 2], options)


def test_a_refusal_keeps_its_status_code_and_place() -> None:
    refusal = InvalidRequest("too long", param="input", code=None, retry_after_s=3)
    pending = [(1, Chunk(finish="error", error="too long", refusal=refusal))]
    [(_, chunk)] = read(frames.steps(pending), 9)
    assert isinstance(chunk.refusal, ApiError)
    for name in ("message", "status", "type", "code", "param", "retry_after_s"):
        assert getattr(chunk.refusal, name) == getattr(refusal, name)


def test_the_state_arrives_whole() -> None:
    health = Health(
        alive=True,
        ready=False,
        last_progress_ns=12,
        reason="it is loading",
        cache_use=0.5,
        queued=2,
    )
    limits = Limits(
        512, 2, {"regex": frozenset({3, 4})}, 20, 100, adapters=("legal", "style"), extras=EXTRAS
    )
    [(kind, body)] = Splitter().feed(frames.state("1.0", health, limits))
    assert kind == Kind.STATE
    assert frames.read_state(body) == ("1.0", health, limits)
