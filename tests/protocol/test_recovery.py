"""Engines that go away under running responses and come back: what a client gets.

Budget: 5 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import until
from tests.support.greedy import WHOLE, Model, texts
from tests.support.scripted.engine import Script
from tests.support.served import Served, ids, served
from tests.support.steering import GUIDES
from tests.support.ticks import Ticks
from trt_responses.features.recovery.recovery import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tests.support.asgi import Call
    from trt_responses.engine import GenerateOptions, Loss

Json = dict[str, Any]

SCHEMA = {
    "format": {
        "type": "json_schema",
        "name": "verdict",
        "schema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    }
}


def run(
    story: Callable[[Served, Ticks], Coroutine[None, None, None]],
    model: Callable[[Sequence[int], GenerateOptions], Script],
    **settings: Any,
) -> None:
    async def told() -> None:
        ticks = Ticks()
        async with served(model, manual=True, sleep=ticks.sleep, drain_s=0, **settings) as s:
            await story(s, ticks)

    asyncio.run(asyncio.wait_for(told(), 60))


async def begun(s: Served, **fields: Any) -> Call:
    """A stream whose prompt the engine has."""
    before = len(s.engine.requests)
    call = s.client.ask(stream=True, **fields)
    await until(lambda: len(s.engine.requests) > before)
    return call


async def back(s: Served, ticks: Ticks) -> None:
    await s.engine.start()
    await ticks.pass_(2 * LOOK_S)


async def done(s: Served, ticks: Ticks, call: Call) -> Call:
    while not call.ended:
        await s.clock.step()
        await ticks.pass_(LOOK_S)
    return call


def told(call: Call) -> list[Json]:
    """The events, without what differs between two responses to the same request."""
    response = call.events[-1]["response"]
    text = call.body.decode().replace(response["id"].removeprefix("resp_"), "ID")
    assert text.endswith("data: [DONE]\n\n")
    events = call.events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return [
        {
            key: value.replace(response["id"].removeprefix("resp_"), "ID")
            if isinstance(value, str)
            else value
            for key, value in event.items()
            if key not in ("response", "item", "part")
        }
        for event in events
    ]


@pytest.mark.parametrize("loss", ["died", "exchanged"])
def test_wherever_an_engine_goes_the_client_gets_what_it_would_have_got(loss: Loss) -> None:
    model = Model()

    async def story(s: Served, ticks: Ticks) -> None:
        undisturbed = await done(s, ticks, await begun(s))
        for step in (*range(1, len(WHOLE), 4), len(WHOLE) - 1):
            model.asked.clear()
            call = await begun(s, max_output_tokens=500, seed=7)
            await s.clock.step(step)
            s.engine.go(loss, "it was killed")
            await back(s, ticks)
            await done(s, ticks, call)
            assert told(call) == told(undisturbed), f"after {step} steps"
            ended, expected = (c.events[-1]["response"] for c in (call, undisturbed))
            assert texts(ended) == texts(expected)
            assert ended["usage"] == expected["usage"]
            (_, first), (given, second) = model.asked
            assert given == step
            assert (first.max_tokens, second.max_tokens) == (500, 500 - step)
            assert second.seed == 7
            assert second.priority > first.priority

    run(story, model)


def test_a_budget_that_was_used_up_ends_the_response_as_incomplete() -> None:
    async def story(s: Served, ticks: Ticks) -> None:
        call = await begun(s, max_output_tokens=len(WHOLE) - 4)
        await s.clock.step(len(WHOLE) - 5)
        s.engine.go("died", "it was killed")
        await back(s, ticks)
        ended = (await done(s, ticks, call)).events[-1]["response"]
        assert ended["status"] == "incomplete"
        assert ended["usage"]["output_tokens"] == len(WHOLE) - 4

    run(story, Model())


def test_a_text_under_a_schema_is_not_entered_half_way() -> None:
    def model(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        body = '{"ok":true}<|endoftext|>' if options.guide else "Hm.<|end|>"
        return Script(tuple((i,) for i in ids(body)))

    async def story(s: Served, ticks: Ticks) -> None:
        for given, failed in ((0, False), (2, True)):
            call = await begun(s, text=SCHEMA)
            while s.last.options.guide is None or s.last.steps_made < given:
                await s.clock.step()
            s.engine.go("died", "it was killed")
            await back(s, ticks)
            events = (await done(s, ticks, call)).events
            if failed:
                error, last = events[-2:]
                assert (error["type"], error["code"]) == ("error", "engine_lost")
                assert "half-way" in error["message"]
                assert last["response"]["status"] == "failed"
            else:
                assert texts(events[-1]["response"])[-1] == '{"ok":true}'

    run(story, model, guides=GUIDES)


def test_what_was_at_its_first_step_at_two_deaths_fails_and_its_neighbour_does_not() -> None:
    model = Model()

    async def story(s: Served, ticks: Ticks) -> None:
        innocent = await begun(s)
        await s.clock.step(5)
        killer = await begun(s, input="Kill!")
        s.engine.go("died", "it was killed")
        await back(s, ticks)
        assert len(model.asked) == 3, "a suspect waits until the others have a token"
        await s.clock.step()
        await ticks.pass_(2 * LOOK_S)
        assert len(model.asked) == 4
        s.engine.go("died", "it was killed again")
        await back(s, ticks)
        await done(s, ticks, killer)
        error = killer.events[-2]
        assert (error["code"], "not tried again" in error["message"]) == ("engine_lost", True)
        ended = (await done(s, ticks, innocent)).events[-1]["response"]
        assert ended["status"] == "completed"

    run(story, model)


def test_a_plain_request_that_killed_the_engine_is_told_not_to_come_back() -> None:
    async def story(s: Served, ticks: Ticks) -> None:
        call = s.client.ask()
        for _ in range(2):
            await ticks.pass_(LOOK_S)
            s.engine.go("died", "it was killed")
            await back(s, ticks)
        await done(s, ticks, call)
        assert (call.status, call.error["code"]) == (503, "engine_lost")
        assert call.headers["x-should-retry"] == "false"

    run(story, Model())


def test_a_run_that_gets_on_survives_any_number_of_deaths() -> None:
    words = ids("<|channel|>final<|message|>" + " word" * 200 + "<|return|>")

    async def story(s: Served, ticks: Ticks) -> None:
        call = await begun(s)
        for _ in range(4):
            await s.clock.step(40)
            s.engine.go("died", "it was killed")
            await back(s, ticks)
        ended = (await done(s, ticks, call)).events[-1]["response"]
        assert texts(ended) == [" word" * 200]

    run(story, Model(words))


def test_a_run_that_waits_for_an_engine_can_be_cancelled_and_its_stream_lives() -> None:
    async def story(s: Served, ticks: Ticks) -> None:
        made = (await s.client.create(background=True)).json()
        call = await begun(s)
        await s.clock.step(5)
        s.engine.go("exchanged", "another version is loaded")
        await ticks.pass_(30)
        report = s.health()
        assert (report.engine_alive, report.ready, report.running) == (True, False, 2)
        assert call.body.count(b": ") >= 2, "comments keep the stream alive"
        cancelled = await s.client.send("POST", f"/v1/responses/{made['id']}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        await back(s, ticks)
        assert (await done(s, ticks, call)).events[-1]["response"]["status"] == "completed"

    run(story, Model())


@pytest.mark.parametrize(
    ("settings", "dies", "words"),
    [({}, True, "burnt out"), ({"engine_pause_s": 0}, False, "it was killed")],
    ids=["the engine is lost for ever", "no pause is allowed"],
)
def test_without_an_engine_to_wait_for_the_response_fails(
    settings: Json, dies: bool, words: str
) -> None:
    async def story(s: Served, ticks: Ticks) -> None:
        call = await begun(s)
        await s.clock.step(5)
        s.engine.go("died", "it was killed")
        if dies:
            s.engine.kill("burnt out")
        await ticks.pass_(2 * LOOK_S)
        error = (await done(s, ticks, call)).events[-2]
        assert words in error["message"]

    run(story, Model(), **settings)
