"""Background responses whose server dies, stands still or is stopped: another goes on with them.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import JSON
from tests.support.background import AT_ONCE, cancelled, got, replay, started
from tests.support.greedy import WHOLE, Model, texts
from tests.support.sampled import sampled
from tests.support.served import WEATHER, Served, ids, script, served
from tests.support.steering import GUIDES
from tests.support.template_served import template_served
from tests.support.ticks import Ticks, settled
from tests.support.turns import turn
from trt_responses.errors import StoreUnavailable
from trt_responses.features.background.step import BackgroundStep
from trt_responses.store import Job
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from tests.support.asgi import Call
    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions
    from trt_responses.run.commit import Write
    from trt_responses.run.draft import Draft
    from trt_responses.wire.response import Response

Json = dict[str, Any]

LEASE_S, TAKEOVER_S = 3.0, 30.0
CUSTOM = {"type": "custom", "name": "shell", "description": "Runs a command."}
CALL = ids(
    "<|channel|>commentary to=functions.shell <|constrain|>json<|message|>"
    '{"input": "ls -l /tmp/some/where 😀 && echo it is done"}<|call|>'
)
FLAG = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
SCHEMA = {"format": {"type": "json_schema", "name": "verdict", "schema": FLAG, "strict": True}}


class CountedStore(MemoryStore):
    takes = 0
    """How often a server asked for a response to take over."""

    async def take_job(self, model: str) -> Job | None:
        self.takes += model == "demo"
        assert self.takes < 1000, "it takes and leaves it without a pause"
        return await super().take_job(model)


class Pair:
    """Two servers over one history, each with a clock that stands when its process would."""

    def __init__(self, servers: Sequence[Served], ticks: Sequence[Ticks], store: CountedStore):
        self.servers = servers
        self.store = store
        self.ticks = ticks

    async def pass_(self, seconds: float, *servers: int) -> None:
        """Time for all, in which these make steps and everybody else stands still."""
        for _ in range(int(seconds * 10)):
            self.ticks[-1].now += 0.1
            for number in servers:
                await self.ticks[number].pass_(0.1)
                await self.servers[number].clock.step()

    async def steps(self, count: int) -> None:
        """Steps of the first one's engine; what they gave is kept."""
        await self.servers[0].clock.step(count)
        self.ticks[-1].now += 1
        await self.ticks[0].pass_(1.0)


@asynccontextmanager
async def two(
    model: Callable[[Sequence[int], GenerateOptions], Script], **settings: Any
) -> AsyncIterator[Pair]:
    ticks = [Ticks(), Ticks(), Ticks()]
    store = CountedStore(Bounds(lease_s=LEASE_S, takeover_s=TAKEOVER_S), clock_s=ticks[-1])
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                served(model, store=store, manual=True, sleep=each.sleep, **(AT_ONCE | settings))
            )
            for each in ticks[:2]
        ]
        yield Pair(servers, ticks, store)


def run(
    story: Callable[[Pair], Coroutine[None, None, None]],
    model: Callable[[Sequence[int], GenerateOptions], Script],
    **settings: Any,
) -> None:
    async def told() -> None:
        async with two(model, **settings) as pair:
            await story(pair)

    asyncio.run(asyncio.wait_for(told(), 60))


async def whole(call: Call, pair: Pair, *servers: int) -> Json:
    """The response at a stream's end, of which no event is missing or told twice."""
    for _ in range(100):
        if call.ended:
            break
        await pair.pass_(1, *servers)
    events = call.events
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ends = ("response.completed", "response.failed", "response.incomplete")
    assert [event["type"] in ends for event in events].count(True) == 1
    assert events[-1]["type"] in ends
    last: Json = events[-1]["response"]
    return last


def said(call: Call) -> str:
    return "".join(
        event["delta"] for event in call.events if event["type"] == "response.output_text.delta"
    )


@sampled("steps", [0, 1, 4, 9, 15, 20, len(WHOLE) - 3], every=3)  # 2 s
@pytest.mark.parametrize("how", ["stands still", "is stopped"])
def test_another_server_goes_on_where_the_first_one_stopped(how: str, steps: int) -> None:
    model = Model()

    async def story(pair: Pair) -> None:
        one, other = pair.servers
        response_id = (await started(one))["id"]
        reading = replay(other, response_id)
        await pair.steps(steps)
        if how == "is stopped":
            one.runs.shut_down()
            await settled()
            await pair.pass_(2, 1)
        else:
            await one.clock.step(2)  # of which nobody was told
            await pair.pass_(LEASE_S + 1.2, 1)
            await pair.pass_(2, 0)  # the first one wakes, and may write nothing
        last = await whole(reading, pair, 1)
        assert last["status"] == "completed"
        assert texts(last) == ["They greet me: say 😀 back.", "Hello 😀 there, friend of mine."]
        assert said(reading) == texts(last)[1]
        assert last["usage"]["output_tokens"] == len(WHOLE)
        assert [given for given, _ in model.asked] == [0, steps]
        kept = await got(other, response_id)
        assert kept == last
        await pair.pass_(LEASE_S, 0, 1)
        assert await got(one, response_id) == kept
        again = replay(one, response_id, after=5)
        assert (await whole(again, pair, 0))["id"] == response_id
        assert again.events == [e for e in reading.events if e["sequence_number"] > 5]
        assert len(one.runs) == len(other.runs) == 0

    run(story, model)


def test_what_goes_on_behind_a_steered_response_keeps_the_message_at_another_server() -> None:
    model = Model()

    async def story(pair: Pair) -> None:
        one, other = pair.servers
        tools = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}
        asked = [tools, {"role": "user", "content": "Hello"}]
        first = (await started(one, input=asked))["id"]
        await pair.steps(4)
        path = f"/v1/responses/{first}/steer"
        reply = await one.client.send("POST", path, b'{"input": "Shorter."}', JSON)
        successor = reply.json()["id"]
        await pair.steps(9)
        await pair.pass_(LEASE_S + 1.2, 1)  # the first one stands still
        last = await whole(replay(other, successor), pair, 1)
        assert (last["status"], last["previous_response_id"]) == ("completed", first)
        assert [given for given, _ in model.asked] == [0, 0, 9]
        assert "<|start|>user<|message|>Shorter.<|end|>" in other.prompt_text()
        assert "type weather = " in other.prompt_text()
        assert (await got(other, first))["incomplete_details"] == {"reason": "steered"}

    run(story, model)


def test_a_response_is_steered_at_a_server_that_does_not_make_it() -> None:
    model = Model()

    async def story(pair: Pair) -> None:
        one, other = pair.servers
        first = (await started(one, metadata={"a": "b"}))["id"]
        await pair.steps(4)
        path = f"/v1/responses/{first}/steer"
        steering = other.client.open("POST", path, b'{"input": "Shorter."}', JSON)
        for _ in range(20):
            if not steering.ended:
                await pair.pass_(1)
                await pair.ticks[0].pass_(1.0)
                await pair.ticks[1].pass_(1.0)
        successor = steering.json()
        assert (successor["status"], successor["metadata"]) == ("queued", {"a": "b"})
        last = await whole(replay(other, successor["id"]), pair, 1)
        assert (last["status"], last["previous_response_id"]) == ("completed", first)
        assert (await got(one, first))["incomplete_details"] == {"reason": "steered"}
        assert "<|start|>user<|message|>Shorter.<|end|>" in other.prompt_text()
        assert await pair.store.get(f"steer:{first}", "") is None

    run(story, model)


def test_a_stream_goes_on_at_a_server_that_woke_and_has_lost_the_response() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        reading = one.client.ask(stream=True, background=True)
        await settled()
        await pair.pass_(0.3, 0)
        await one.clock.step(4)
        await pair.pass_(LEASE_S + 4, 1)
        assert len(other.runs) == 0
        last = await whole(reading, pair, 0)
        assert texts(last)[1] == said(reading) == "Hello 😀 there, friend of mine."

    run(story, Model())


def test_a_server_that_woke_never_says_cancelled_of_a_response_that_another_one_has() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        name = (await started(one))["id"]
        await pair.steps(4)
        await pair.pass_(LEASE_S + 1, 1)
        assert len(one.runs) == len(other.runs) == 1
        waking = asyncio.create_task(pair.pass_(2, 0))
        statuses = set()
        while not waking.done():
            statuses.add((await got(one, name))["status"])
            await turn()
        assert statuses == {"in_progress"}
        assert len(one.runs) == 0

    run(story, Model())


def test_a_server_whose_lease_ran_out_takes_its_own_response_and_goes_on_serving() -> None:
    async def story(pair: Pair) -> None:
        one, _ = pair.servers
        name = (await started(one))["id"]
        reading = replay(one, name)
        await pair.steps(4)
        pair.ticks[-1].now += LEASE_S + 1
        await pair.pass_(1.1, 0)
        job = await pair.store.get(name, "")
        assert isinstance(job, Job)
        assert job.term == 2, "it took it before it renewed its lease"
        last = await whole(reading, pair, 0)
        assert last["status"] == "completed"
        assert said(reading) == texts(last)[1] == "Hello 😀 there, friend of mine."
        await pair.pass_(LEASE_S, 0)
        assert len(one.runs) == 0
        again = (await started(one))["id"]
        assert (await whole(replay(one, again), pair, 0))["status"] == "completed"

    run(story, Model())


@pytest.mark.parametrize("at_once", [1, 3])
def test_numbers_go_on_whatever_pieces_a_call_was_told_in(at_once: int) -> None:
    async def story(pair: Pair) -> None:
        response_id = (await started(pair.servers[0], tools=[CUSTOM]))["id"]
        reading = replay(pair.servers[1], response_id)
        await pair.steps(6)
        await pair.pass_(LEASE_S + 1, 1)
        (call,) = (await whole(reading, pair, 1))["output"]
        assert call["input"] == "ls -l /tmp/some/where 😀 && echo it is done"
        deltas = [event["delta"] for event in reading.events if "delta" in event]
        assert "".join(deltas) == call["input"]

    run(story, Model(CALL, at_once=at_once))


THOUGHT = ids("<|channel|>analysis<|message|>They greet me.<|return|>")
FINAL = ids("<|channel|>final<|message|>Hello 😀 there, friend of mine.<|return|>")


@pytest.mark.parametrize("steps", [2, len(THOUGHT) - 1, len(THOUGHT), len(THOUGHT) + 5])
def test_a_turn_after_a_thought_alone_is_gone_on_with_too(steps: int) -> None:
    thinks, answers = Model(THOUGHT), Model(FINAL)
    reopened = (*THOUGHT[:-1], *ids("<|end|><|start|>assistant"))

    def model(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        second = any(
            tuple(prompt_ids[at : at + len(reopened)]) == reopened for at in range(len(prompt_ids))
        )
        return (answers if second else thinks)(prompt_ids, options)

    async def story(pair: Pair) -> None:
        response_id = (await started(pair.servers[0]))["id"]
        reading = replay(pair.servers[1], response_id)
        await pair.steps(steps)
        await pair.pass_(LEASE_S + 1.2, 1)
        last = await whole(reading, pair, 1)
        assert last["status"] == "completed"
        assert texts(last) == ["They greet me.", "Hello 😀 there, friend of mine."]
        assert said(reading) == texts(last)[1]
        assert await got(pair.servers[1], response_id) == last

    run(story, model)


def guided(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    return script('{"ok":true}<|endoftext|>' if options.guide else "Hm.<|end|>")


@pytest.mark.parametrize("how", ["stands still", "is stopped"])
def test_a_text_under_a_schema_cannot_be_gone_on_with_half_way(how: str) -> None:
    async def story(pair: Pair) -> None:
        one, _ = pair.servers
        response_id = (await started(one, text=SCHEMA))["id"]
        reading = replay(pair.servers[1], response_id)
        while not one.engine.requests or one.last.options.guide is None or one.last.steps_made < 2:
            await one.clock.step()
        await pair.steps(0)
        if how == "is stopped":
            one.runs.shut_down()
        last = await whole(reading, pair, 1)
        assert last["status"] == "failed"
        error = reading.events[-2]
        assert error["code"] == ("engine_lost" if how == "stands still" else "server_shutdown")

    run(story, guided, guides=GUIDES)


def test_what_was_asked_to_be_cancelled_is_cancelled_by_whoever_takes_it() -> None:
    async def story(pair: Pair) -> None:
        response_id = (await started(pair.servers[0]))["id"]
        await pair.steps(5)
        pair.ticks[-1].now += LEASE_S
        ending = asyncio.ensure_future(cancelled(pair.servers[1], response_id))
        await settled()
        await pair.pass_(3, 1)
        assert (await ending).json()["status"] == "cancelled"

    run(story, Model())


def test_a_cancel_reaches_the_server_that_has_taken_the_response() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        name = (await started(one))["id"]
        await pair.steps(4)
        await pair.pass_(LEASE_S + 1, 1)
        assert len(one.runs) == len(other.runs) == 1, "the first one has not woken yet"
        asking = asyncio.create_task(cancelled(one, name))
        await settled()
        for _ in range(50):
            if asking.done():
                break
            await pair.pass_(0.1, 1, 0)
        assert (await asking).json()["status"] == "cancelled"
        await pair.pass_(2, 1, 0)
        assert (await got(other, name))["status"] == "cancelled"
        assert len(one.runs) == len(other.runs) == 0

    run(story, Model())


def test_a_server_without_room_leaves_a_response_to_others_and_looks_again_later() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        before = pair.store.takes
        name = (await started(one))["id"]
        await pair.steps(4)
        full = other.client.ask(stream=True)
        await settled()
        pair.ticks[-1].now += LEASE_S + 1
        looks = 5
        for _ in range(looks):
            await pair.ticks[1].pass_(1.0)
        assert pair.store.takes - before <= looks + 1
        assert (await got(other, name))["status"] == "in_progress"
        full.hang_up()
        await settled()
        last = await whole(replay(other, name), pair, 1)
        assert last["status"] == "completed"

    run(story, Model(), max_running=1, max_waiting=0)


def test_what_closes_an_answer_is_told_once_when_its_server_dies_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No id says that a budget has ended: the next server would close the answer once more."""
    store = BackgroundStep.store
    dying = True

    async def story(pair: Pair) -> None:
        async def killed(self: BackgroundStep, write: Write, draft: Draft, last: Response) -> None:
            nonlocal dying
            if not dying:
                return await store(self, write, draft, last)
            dying = False
            await pair.pass_(2.0, 0)  # in which its frames are saved
            raise StoreUnavailable("It is killed here.")

        # patched: a kill between the last token and the commit, where nothing is asked of a store
        monkeypatch.setattr(BackgroundStep, "store", killed)
        one, other = pair.servers
        name = (await started(one, max_output_tokens=len(WHOLE) - 4))["id"]
        reading = replay(other, name)
        await pair.steps(len(WHOLE))
        await pair.pass_(LEASE_S + 1.2, 1)
        last = await whole(reading, pair, 1)
        types = [event["type"] for event in reading.events]
        assert types.count("response.output_text.done") == 1
        assert last["status"] == "incomplete"
        assert not dying

    run(story, Model())


def test_a_server_of_another_vocabulary_goes_on_with_nothing() -> None:
    """It leaves the job to the next server that speaks as the first one did."""

    async def story(pair: Pair) -> None:
        one, other = pair.servers
        ticks = Ticks()
        async with template_served("qwen3", "No.", store=pair.store, sleep=ticks.sleep) as odd:
            response_id = (await started(one))["id"]
            await pair.steps(5)
            pair.ticks[-1].now += LEASE_S + 0.1
            for _ in range(30):
                await ticks.pass_(0.1)
            job = await pair.store.take_job("demo")
            assert job is not None
            assert job.term == 2, "nobody took it before"
            await pair.store.leave_job(job.id, term=job.term, to_others=True)
            reading = replay(other, response_id)
            last = await whole(reading, pair, 1)
            assert texts(last)[1] == "Hello 😀 there, friend of mine."
            assert not odd.engine.requests

    run(story, Model())


# --- conversations ----------------------------------------------------------------------------


async def talk_at(s: Served) -> str:
    made = await s.client.send("POST", "/v1/conversations", b"{}")
    return str(made.json()["id"])


async def items_of(s: Served, conversation: str) -> list[str]:
    listed = await s.client.get(f"/v1/conversations/{conversation}/items?order=asc")
    return [item.get("role") or item["type"] for item in listed.json()["data"]]


async def is_locked(s: Served, conversation: str) -> bool:
    """Whether a server refuses to write there, before its engine is asked."""
    asked = len(s.engine.requests)
    path = f"/v1/conversations/{conversation}"
    refused = await s.client.send("POST", path, b'{"metadata": {}}')
    if refused.status == 200:
        return False
    also = await s.client.create(input="x", conversation=conversation)
    for each in (refused, also):
        assert (each.status, each.error["code"]) == (400, "conversation_locked")
        assert each.error["param"] == "conversation"
    assert len(s.engine.requests) == asked
    return True


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
def test_who_writes_in_a_conversation_at_another_server_is_refused_at_once(store: bool) -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        talk = await talk_at(one)
        writing = one.client.ask(input="x", conversation=talk, store=store)
        await pair.steps(3)
        for _ in range(3):
            await pair.pass_(LEASE_S, 1)
            await pair.ticks[0].pass_(LEASE_S)
            assert await is_locked(other, talk), "its lease is renewed"
        while not writing.ended:
            await one.clock.step()
        assert writing.status == 200
        assert await items_of(other, talk) == ["user", "reasoning", "assistant"]
        again = other.client.ask(input="x", conversation=talk)
        while not again.ended:
            await other.clock.step()
        assert again.status == 200

    run(story, Model())


def test_the_lock_of_a_server_that_stands_still_ends_and_it_changes_nothing_when_it_wakes() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        talk = await talk_at(one)
        stuck = one.client.ask(input="mine", conversation=talk)
        await pair.steps(3)
        assert await is_locked(other, talk)
        await pair.pass_(LEASE_S + 1, 1)
        writing = other.client.ask(input="other", conversation=talk)
        while not writing.ended:
            await other.clock.step()
        assert writing.status == 200
        kept = await items_of(other, talk)
        while not stuck.ended:
            await one.clock.step()
        assert (stuck.status, stuck.error["code"]) == (400, "conversation_locked")
        assert await items_of(one, talk) == kept

    run(story, Model())


@pytest.mark.parametrize("how", ["stands still", "is stopped"])
def test_a_conversation_stays_locked_until_another_server_has_ended_its_response(how: str) -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        talk = await talk_at(one)
        response_id = (await started(one, conversation=talk))["id"]
        reading = replay(other, response_id)
        await pair.steps(4)
        if how == "is stopped":
            one.runs.shut_down()
            await settled()
        else:
            pair.ticks[-1].now += LEASE_S + 1
        assert await is_locked(other, talk), "the response may be gone on with"
        await pair.pass_(1.2, 1)
        assert len(other.runs) == 1
        await pair.pass_(0.5, 0)  # the first one wakes, and frees nothing
        assert await is_locked(other, talk)
        last = await whole(reading, pair, 1)
        assert last["status"] == "completed"
        assert await items_of(other, talk) == ["user", "reasoning", "assistant"]
        assert not await is_locked(other, talk)

    run(story, Model())


def test_what_nobody_can_go_on_with_reads_as_failed() -> None:
    async def story(pair: Pair) -> None:
        one, other = pair.servers
        probed = (await started(one, include=["message.output_text.logprobs"]))["id"]
        await pair.steps(5)
        await pair.pass_(LEASE_S + 2, 1)
        assert (await got(other, probed))["status"] == "failed"

    run(story, Model())
