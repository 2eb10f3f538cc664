"""A run's life: commit before tell, cancel, failure of every part, and what the engine is asked."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from tests.support import lawful
from tests.support.replay import PROMPT, Part, Stage, followed, ids_of, plain
from tests.support.turns import turn
from trt_responses.engine import CONTINUATION_PRIORITY, Chunk, Health, Limits
from trt_responses.errors import ApiError, EngineUnavailable
from trt_responses.harmony.dialect import STOPS
from trt_responses.harmony.read.reader import Reader
from trt_responses.language.gate import Gate
from trt_responses.language.steering import Segment
from trt_responses.log.log import Cursor
from trt_responses.run.sink import Beginnings
from trt_responses.run.sink import Sink as RunSink
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.replay import Json
    from trt_responses.engine import GenerateOptions, Handle, Sink
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.fragments import Fragment
    from trt_responses.run.facts import RunFacts
    from trt_responses.run.run import Run
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.wire.response import Response

    Stages = Callable[..., Stage]

ANSWER = ("<|channel|>final<|message|>", "Hello", ",", " world", "<|return|>")
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


@pytest.fixture
def stage_of(vocabulary: Vocabulary, tables: Tables) -> Stages:
    """Builds a stage for an answer, a step for each text."""

    def build(*steps: str, finish: str = "stop", **parts: object) -> Stage:
        ids = tuple(ids_of(step, vocabulary) for step in steps or ANSWER)
        return Stage(tables, [Part(ids, finish)], **parts)  # type: ignore[arg-type]

    return build


def types(stage: Stage) -> list[str]:
    return [event["type"] for event in stage.events()]


def last_of(stage: Stage) -> Json:
    last: Json = plain(stage.log.response)
    return last


def check_over(stage: Stage, status: str) -> None:
    """The log is closed and lawful, and the engine works for it no more."""
    assert stage.log.closed
    assert stage.log.response.status == status
    lawful.check(stage.events(), last_of(stage))
    assert all(request.state in ("finished", "aborted") for request in stage.scripted.requests)


def play(stage: Stage) -> Response:
    return asyncio.run(stage.play())


# --- commit before tell -----------------------------------------------------------------------


class Commits:
    """Keeps what it was given, and what the log told at that time."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.given: list[Response] = []
        self.told: list[set[str]] = []
        self._fault = fault

    async def __call__(self, last: Response, run: Run) -> None:
        self.given.append(last)
        self.told.append({event.type for _, event in run.log.events()})
        if self._fault is not None:
            raise self._fault


@pytest.mark.parametrize("finish", ["stop", "length", "error"])
def test_the_record_is_committed_before_the_end_is_told(stage_of: Stages, finish: str) -> None:
    commits = Commits()
    stage = stage_of(*ANSWER[:-1], finish=finish, commit=commits)
    last = play(stage)
    assert commits.given == [last]
    assert not commits.told[0] & (TERMINAL | {"error"})
    assert "response.output_item.done" in commits.told[0]
    assert types(stage)[-1] == f"response.{last.status}"


def test_while_the_commit_takes_its_time_nobody_sees_an_end(stage_of: Stages) -> None:
    async def go() -> None:
        committing, committed = asyncio.Event(), asyncio.Event()

        async def slow(last: Response, run: Run) -> None:
            committing.set()
            await committed.wait()

        stage = stage_of(commit=slow)
        making = await stage.begin()
        while not committing.is_set():
            await stage.clock.step()
        await stage.clock.step(5)
        assert types(stage)[-1] == "response.output_item.done"
        assert not stage.log.closed
        assert not making.done()
        committed.set()
        assert (await making).status == "completed"
        assert types(stage)[-1] == "response.completed"

    asyncio.run(go())


@pytest.mark.parametrize("finish", ["stop", "length", "error"])
def test_a_failed_commit_ends_the_run_failed(stage_of: Stages, finish: str) -> None:
    fault = ApiError("The store is full.")
    stage = stage_of(*ANSWER[:-1], finish=finish, commit=Commits(fault))
    assert play(stage).status == "failed"
    check_over(stage, "failed")
    assert stage.events()[-2]["message"] == "The store is full."
    assert stage.run.error is fault
    assert last_of(stage)["error"]["message"] == "The store is full."


def test_a_commit_that_breaks_ends_the_run_failed_and_tells_no_detail(
    stage_of: Stages, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stage_of(commit=Commits(RuntimeError("disk /dev/sda1")))
    with caplog.at_level(logging.ERROR):
        assert play(stage).status == "failed"
    check_over(stage, "failed")
    assert "sda1" not in stage.frames().decode()
    assert "sda1" in caplog.text


# --- cancel and fail --------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(5))
def test_cancel_ends_the_log_without_a_terminal_event(stage_of: Stages, steps: int) -> None:
    async def go() -> None:
        commits = Commits()
        stage = stage_of(commit=commits)
        making = await stage.begin()
        await stage.clock.step(steps)
        stage.run.cancel()
        (request,) = stage.scripted.requests
        assert request.state == "aborted", "at once, and not when the run gets to it"
        stage.run.cancel()
        last = await making
        stage.run.cancel()
        check_over(stage, "cancelled")
        assert last == stage.log.response == commits.given[0]
        assert not TERMINAL & set(types(stage))
        before = stage.frames()
        await stage.clock.step(5)
        assert stage.frames() == before
        assert request.steps_made == steps

    asyncio.run(go())


def test_a_run_that_is_cancelled_before_it_is_made_asks_the_engine_nothing(
    stage_of: Stages,
) -> None:
    async def go() -> None:
        stage = stage_of()
        stage.run.cancel()
        await stage.play()
        check_over(stage, "cancelled")
        assert not stage.scripted.requests

    asyncio.run(go())


def test_readers_of_a_run_that_nobody_makes_wait_for_nothing_that_it_holds(
    stage_of: Stages,
) -> None:
    async def story() -> None:
        stage = stage_of()
        may_close = asyncio.Event()

        async def close() -> None:
            await may_close.wait()

        assert stage.run.draft is not None
        stage.run.draft.after_generating(close)
        abandoning = asyncio.create_task(stage.run.abandon())
        await turn()
        assert stage.log.closed
        assert stage.log.response.status == "cancelled"
        assert not abandoning.done()
        may_close.set()
        await abandoning

    asyncio.run(story())


def test_a_cancel_that_comes_while_the_end_is_committed_comes_too_late(stage_of: Stages) -> None:
    async def cancelling(last: Response, run: Run) -> None:
        run.cancel()

    stage = stage_of(commit=cancelling)
    assert play(stage).status == "completed"
    check_over(stage, "completed")


def test_readers_of_a_cancelled_run_come_to_an_end(stage_of: Stages) -> None:
    async def go() -> None:
        stage = stage_of()
        reading = asyncio.create_task(followed(stage.log))
        making = await stage.begin()
        await stage.clock.step(2)
        stage.run.cancel()
        await making
        assert b"".join(await reading) == stage.frames()

    asyncio.run(go())


def test_fail_says_why_and_the_first_word_counts(stage_of: Stages) -> None:
    async def go() -> None:
        stage = stage_of()
        making = await stage.begin()
        await stage.clock.step(2)
        stage.run.fail(EngineUnavailable("The server is shutting down."))
        stage.run.cancel()
        stage.run.fail(ApiError("Something else."))
        await making
        check_over(stage, "failed")
        assert last_of(stage)["error"]["message"] == "The server is shutting down."
        assert last_of(stage)["output"][0]["status"] == "incomplete"

    asyncio.run(go())


def test_a_run_whose_owner_is_stopped_closes_its_log_and_its_request(stage_of: Stages) -> None:
    async def go() -> None:
        stage = stage_of()
        making = await stage.begin()
        await stage.clock.step(2)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        check_over(stage, "cancelled")

    asyncio.run(go())


@pytest.mark.parametrize("given", range(1, len(ANSWER) + 1))
def test_a_run_pauses_only_while_the_engine_owes_it_a_token(stage_of: Stages, given: int) -> None:
    async def go() -> None:
        stage = stage_of()
        making = await stage.begin()
        for _ in range(given):
            stage.clock.step_alone()
        whole = given == len(ANSWER)
        assert stage.run.pause() is not whole
        assert (await making).status == ("completed" if whole else "failed")  # nobody waits here

    asyncio.run(go())


# --- parts that break -------------------------------------------------------------------------


def test_a_chunk_with_an_error_ends_the_run_failed(stage_of: Stages) -> None:
    stage = stage_of(*ANSWER[:3], finish="error")
    assert play(stage).status == "failed"
    check_over(stage, "failed")


def test_an_engine_that_dies_ends_the_run_failed(stage_of: Stages) -> None:
    async def go() -> None:
        stage = stage_of()
        making = await stage.begin()
        await stage.clock.step(2)
        stage.scripted.kill("Segmentation fault")
        await making
        check_over(stage, "failed")
        assert "Segmentation fault" in last_of(stage)["error"]["message"]

    asyncio.run(go())


class Odd:
    """An engine whose `generate` is whatever a test says."""

    def __init__(self, generate: Callable[[Sink], Handle]) -> None:
        self._generate = generate

    async def start(self) -> None: ...

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        return self._generate(sink)

    def health(self) -> Health:
        return Health(True, True, 0)

    def limits(self) -> Limits:
        return Limits(1_000, 1)

    async def stop(self, deadline_s: float) -> None: ...


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (EngineUnavailable("The engine is starting."), "The engine is starting."),
        (ValueError("secret"), "The server failed while it made the answer (ValueError)."),
    ],
)
def test_an_engine_that_refuses_ends_the_run_failed(
    stage_of: Stages, fault: Exception, message: str
) -> None:
    def refuse(sink: Sink) -> Handle:
        raise fault

    stage = stage_of(engine=Odd(refuse))
    assert play(stage).status == "failed"
    check_over(stage, "failed")
    assert last_of(stage)["error"]["message"] == message
    assert last_of(stage)["usage"]["output_tokens"] == 0


class Rude:
    """A handle that does not keep the engine's promise: it can push after the abort."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def rudely(stage_of: Stages) -> tuple[Stage, list[Rude]]:
    """A run over an engine of such handles, and those that it has given."""
    handles: list[Rude] = []

    def generate(sink: Sink) -> Handle:
        handles.append(Rude(sink))
        return handles[-1]

    return stage_of(engine=Odd(generate)), handles


@pytest.mark.parametrize("said", [" there<|return|>", " there"])
def test_what_comes_after_the_abort_changes_nothing(
    stage_of: Stages, vocabulary: Vocabulary, said: str
) -> None:
    async def go() -> None:
        stage, handles = rudely(stage_of)
        making = await stage.begin()
        (handle,) = handles
        for step in ("<|channel|>final<|message|>Hi", ",", " you"):
            handle.sink.push(Chunk(ids_of(step, vocabulary)))
        stage.run.cancel()
        before, late = stage.frames(), ids_of(said, vocabulary)
        handle.sink.push(Chunk(late))
        assert stage.frames() == before
        await making
        check_over(stage, "cancelled")
        whole = stage.frames()
        handle.sink.push(Chunk(late, finish="stop"))
        assert stage.frames() == whole
        assert stage.log.response.status == "cancelled"
        assert handle.aborted == 1

    asyncio.run(go())


def test_text_of_a_gated_segment_goes_by_its_gate_from_the_first_id(
    stage_of: Stages, vocabulary: Vocabulary
) -> None:
    """Also when a free segment before it has left its message open."""

    async def go() -> None:
        stage, handles = rudely(stage_of)
        gate = Gate(frozenset(ids_of("!", vocabulary)), (CONTROL.return_,))
        stage.generation.plan = Row(Segment(100, STOPS), Segment(100, STOPS, gate=gate))
        making = await stage.begin()
        for step in ("<|channel|>final<|message|>", "Hi", " you"):
            handles[0].sink.push(Chunk(ids_of(step, vocabulary)))
        handles[0].sink.push(Chunk((), finish="stop"))
        await turn()
        handles[1].sink.push(Chunk(ids_of("!", vocabulary)))
        assert handles[1].aborted == 1
        last = await making
        assert last.status == "completed"
        assert last_of(stage)["output"][0]["content"][0]["text"] == "Hi you"

    asyncio.run(go())


class Row:
    """A plan of these segments."""

    def __init__(self, *segments: Segment) -> None:
        self._left = list(segments)

    def next(self, reader: object) -> Segment | None:
        return self._left.pop(0) if self._left else None


def test_an_engine_may_end_inside_generate(stage_of: Stages, vocabulary: Vocabulary) -> None:
    def at_once(sink: Sink) -> Handle:
        sink.push(Chunk(ids_of("".join(ANSWER), vocabulary), finish="stop"))
        return Rude(sink)

    stage = stage_of(engine=Odd(at_once))
    assert play(stage).status == "completed"
    check_over(stage, "completed")


class Broken(Reader):
    """A reader with a fault: it raises at the second feeding, and at the end if told to."""

    def __init__(self, tables: Tables, *, at_the_end: bool) -> None:
        super().__init__(tables)
        self._fed = 0
        self._at_the_end = at_the_end

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        self._fed += bool(token_ids)
        if self._fed > 1:
            raise IndexError("a fault of ours")
        return super().feed(token_ids)

    def finish(self, *, stopped: bool) -> list[Fragment]:
        if self._at_the_end:
            raise IndexError("a fault of ours")
        return super().finish(stopped=stopped)


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_fault_of_ours_ends_the_run_failed_and_stops_the_engine(
    stage_of: Stages, tables: Tables, at_the_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    steps = (ANSWER[0] + "Hi", "<|end|><|start|>assistant" + ANSWER[0], "Ho", "<|return|>")
    stage = stage_of(*steps, reader=Broken(tables, at_the_end=at_the_end))
    with caplog.at_level(logging.ERROR):
        assert play(stage).status == "failed"
    check_over(stage, "failed")
    (request,) = stage.scripted.requests
    assert (request.state, request.steps_made) == ("aborted", 2)
    assert "IndexError" in last_of(stage)["error"]["message"]
    assert "a fault of ours" not in stage.frames().decode()
    assert "a fault of ours" in caplog.text


# --- what the engine is asked, and when it is stopped -----------------------------------------


def test_each_segment_extends_the_kept_ids_and_goes_ahead_of_new_requests(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    thought = ids_of("<|channel|>analysis<|message|>", vocabulary)
    said = ids_of("Hm.<|end|>", vocabulary)
    header = ids_of("<|start|>assistant<|channel|>final<|message|>", vocabulary)
    parts = [
        Part((said,), forced=thought),
        Part((ids_of("Hi", vocabulary), (CONTROL.return_,)), forced=header),
    ]
    stage = Stage(tables, parts)
    play(stage)
    check_over(stage, "completed")
    first, second = stage.scripted.requests
    assert list(first.prompt_ids) == [*PROMPT, *thought]
    assert list(second.prompt_ids) == [*PROMPT, *thought, *said, *header]
    assert first.options.priority < second.options.priority == CONTINUATION_PRIORITY
    assert CONTROL.end in first.options.stop_ids
    assert CONTROL.end not in second.options.stop_ids


def test_a_generation_that_ends_early_stops_the_engine_within_the_step(stage_of: Stages) -> None:
    """A foreign author ends it; the engine would go on."""
    steps = (*ANSWER[:2], "<|end|>", "<|start|>user<|message|>", " More", " and", " more")
    stage = stage_of(*steps)
    assert play(stage).status == "completed"
    (request,) = stage.scripted.requests
    assert (request.state, request.steps_made) == ("aborted", 4)


def test_the_engine_is_stopped_inside_the_push_that_ends_a_generation(
    stage_of: Stages, vocabulary: Vocabulary
) -> None:
    async def go() -> None:
        stage, handles = rudely(stage_of)
        making = await stage.begin()
        (handle,) = handles
        handle.sink.push(Chunk(ids_of("".join(ANSWER), vocabulary)))
        assert handle.aborted == 1
        assert (await making).status == "completed"

    asyncio.run(go())


def test_cached_tokens_are_those_of_the_first_chunk(stage_of: Stages) -> None:
    stage = stage_of()
    play(stage)
    assert last_of(stage)["usage"]["input_tokens_details"]["cached_tokens"] == 4


def test_readers_wake_once_for_a_chunk_of_many_events(
    stage_of: Stages, vocabulary: Vocabulary
) -> None:
    async def go() -> None:
        stage = stage_of("".join(ANSWER[:4]), " and", ANSWER[4])
        making = await stage.begin()
        cursor, wakes, frames = Cursor(stage.log), 0, 0
        frames += cursor.take().count(b"\n\n")
        woken = stage.log.changed()
        for _ in range(2):
            await stage.clock.step()
            assert woken.done()
            wakes, woken = wakes + 1, stage.log.changed()
            assert not woken.done()
        frames += cursor.take().count(b"\n\n")
        assert (wakes, frames) == (2, 2 + 2 + 3 + 1)
        await stage.clock.step(3)
        await making

    asyncio.run(go())


class Hears:
    def __init__(self) -> None:
        self.facts: list[RunFacts] = []

    def run_ended(self, facts: RunFacts) -> None:
        self.facts.append(facts)


@pytest.mark.parametrize(
    ("steps", "finish", "status", "repairs"),
    [
        (ANSWER, "stop", "completed", {}),
        (ANSWER[:3], "length", "incomplete", {}),
        (ANSWER[:3], "stop", "completed", {"missing_terminator": 1}),
        (ANSWER[:3], "error", "failed", {}),
        (ANSWER[:3], "abort", "cancelled", {}),
    ],
)
def test_the_listener_hears_of_every_end_once(
    stage_of: Stages, steps: Sequence[str], finish: str, status: str, repairs: dict[str, int]
) -> None:
    listener = Hears()
    stage = stage_of(*steps, finish=finish, listener=listener)
    play(stage)
    (facts,) = listener.facts
    assert facts.response is stage.log.response
    assert (facts.response.status, facts.repairs) == (status, repairs)
    assert facts.first_token_ns == 5


def test_the_first_snapshots_are_empty_and_in_progress(stage_of: Stages) -> None:
    async def go() -> None:
        stage = stage_of()
        making = await stage.begin()
        events = stage.events()
        assert [event["type"] for event in events] == ["response.created", "response.in_progress"]
        for event in events:
            assert event["response"]["status"] == "in_progress"
            assert event["response"]["output"] == []
            assert event["response"]["usage"] is None
        stage.run.cancel()
        await making

    asyncio.run(go())


def test_a_listener_that_breaks_hurts_no_run(
    stage_of: Stages, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaks:
        def run_ended(self, facts: RunFacts) -> None:
            raise ValueError("the listener's own affair")

    stage = stage_of("<|channel|>final<|message|>Hi<|return|>", listener=Breaks())
    assert play(stage).status == "completed"
    assert "the listener's own affair" in caplog.text


def test_an_id_behind_part_of_a_character_is_no_plain_text(
    stage_of: Stages, vocabulary: Vocabulary
) -> None:
    async def go() -> None:
        stage, handles = rudely(stage_of)
        making = await stage.begin()
        part = vocabulary.token_bytes.index(b"\xf0\x9f")
        for step in ("<|channel|>final<|message|>", "Hi", " you"):
            handles[0].sink.push(Chunk(ids_of(step, vocabulary)))
        handles[0].sink.push(Chunk((part,)))
        handles[0].sink.push(Chunk(ids_of(" there", vocabulary)))
        handles[0].sink.push(Chunk((), finish="stop"))
        await making
        assert last_of(stage)["output"][0]["content"][0]["text"] == "Hi you\ufffd there"

    asyncio.run(go())


def test_a_generation_has_no_more_attributes_than_cpython_keeps_without_a_dict(
    stage_of: Stages,
) -> None:
    """With 31 it takes longer to find any of them, which `push` does for each token."""
    stage = stage_of(*ANSWER)
    play(stage)
    assert len(vars(stage.generation)) <= 30


def test_a_sink_has_a_dozen_attributes(stage_of: Stages) -> None:
    stage = stage_of(*ANSWER)
    sink = RunSink(stage.reader, stage.machine, stage.log, Beginnings(lambda: 5))
    assert len(vars(sink)) <= 12
