"""More requests than the engine has places, over the app: who waits, who goes first, who is sent
away, by counting the engine's steps."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, asked, until
from tests.support.served import ANSWER, LONG, STALLED, Served, ids, served, vocabulary
from tests.support.turns import turn
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, OwnerLimits, digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Call

KEYS = "ann:ann-key,bob:bob-key"


def ask(s: Served, owner: str, **fields: object) -> Call:
    headers = JSON | {"authorization": f"Bearer {owner}-key"}
    body = orjson.dumps(asked(**fields))
    return s.client.open("POST", "/v1/responses", body, headers)


async def finish(s: Served, *calls: Call) -> None:
    while not all(call.ended for call in calls):
        await s.clock.step()


def queue(s: Served) -> tuple[int, int]:
    report = s.health()
    return report.running, report.waiting


def test_those_that_wait_are_told_created_at_once_and_begin_when_a_place_is_free() -> None:
    async def story() -> None:
        async with served(ANSWER, manual=True, max_running=1) as s:
            first, second = s.client.ask(stream=True), s.client.ask(stream=True)
            await until(lambda: queue(s) == (1, 1))
            await second.until(lambda call: b"response.in_progress" in call.body)
            assert len(s.engine.requests) == 1
            await finish(s, first, second)
            assert len(s.engine.requests) == 2
            for call in (first, second):
                assert call.events[-1]["type"] == "response.completed"
            assert queue(s) == (0, 0)

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_a_client_that_leaves_the_line_frees_its_place(stream: bool) -> None:
    async def story() -> None:
        async with served(STALLED, ANSWER, manual=True, max_running=1, max_waiting=1) as s:
            first = s.client.ask(stream=True)
            await until(lambda: queue(s) == (1, 0))
            second = s.client.ask(stream=stream)
            await until(lambda: queue(s) == (1, 1))
            assert (await s.client.create()).error["code"] == "server_busy"
            second.hang_up()
            await second.done()
            assert queue(s) == (1, 0)
            third = s.client.ask()
            await until(lambda: queue(s) == (1, 1))
            first.hang_up()
            await first.done()
            await finish(s, third)
            assert third.json()["status"] == "completed"
            assert len(s.engine.requests) == 2, "the one that left was never asked for"

    asyncio.run(story())


def test_a_background_response_that_waits_can_be_cancelled() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True, max_running=1) as s:
            first = s.client.ask(stream=True)
            await until(lambda: queue(s) == (1, 0))
            waiting = (await s.client.create(background=True)).json()
            await until(lambda: queue(s) == (1, 1))
            cancelled = await s.client.send("POST", f"/v1/responses/{waiting['id']}/cancel")
            assert cancelled.json()["status"] == "cancelled"
            assert queue(s) == (1, 0)
            first.hang_up()
            await first.done()

    asyncio.run(story())


def test_an_owner_who_floods_does_not_starve_another() -> None:
    """Bob comes behind twenty requests of Ann's, and is second."""

    async def story() -> None:
        async with served(ANSWER, manual=True, max_running=1, api_keys=KEYS) as s:
            flood = [ask(s, "ann", input=f"a{n}") for n in range(20)]
            await until(lambda: queue(s) == (1, 19))
            late = ask(s, "bob", input="bob")
            await until(lambda: queue(s) == (1, 20))
            await finish(s, late)
            assert "bob" in s.prompt_text(1)
            await finish(s, *flood)

    asyncio.run(story())


def test_under_ten_times_the_load_first_tokens_come_as_soon_as_without() -> None:
    """Ten requests arrive where one fits: those that are let in wait for nobody, and the others are
    told when to come again. Counted in the engine's steps."""

    async def story() -> None:
        width, rounds = 4, 10
        async with served(LONG, manual=True, max_running=width, max_waiting=0) as s:
            alone = await _steps_to_first(s, [s.client.ask(stream=True)])
            waits: list[int] = []
            for _ in range(rounds):
                calls = [s.client.ask(stream=True) for _ in range(10 * width)]
                await until(lambda: queue(s)[0] == width)  # awaited at once
                await until(lambda: sum(c.ended for c in calls) == 9 * width)  # noqa: B023
                refused = [call for call in calls if call.ended]
                for call in refused:
                    assert (call.status, call.error["code"]) == (503, "server_busy")
                    assert int(call.headers["retry-after"]) in range(1, 6)
                    assert call.headers["x-should-retry"] == "true"
                waits += await _steps_to_first(s, [c for c in calls if c not in refused])
            assert len(waits) == width * rounds
            assert max(waits) <= 1.5 * alone[0]

    asyncio.run(story())


async def _steps_to_first(s: Served, calls: list[Call]) -> list[int]:
    """The steps from each one's arrival to its first text; all are brought to their end."""
    begun = s.clock.steps
    await until(lambda: queue(s)[0] == len(calls))
    await finish(s, *calls)
    steps = [
        next(h.step for h in call.heard if b"output_text.delta" in h.message.get("body", b""))
        for call in calls
    ]
    return [step - begun for step in steps]


def test_limits_of_the_key_file_hold_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    tight = OwnerLimits(requests_per_minute=2)
    with changing(path) as write:
        write(
            [
                Key(owner="ann", name="a", sha256=digest_of("ann-key"), limits=tight),
                Key(owner="bob", name="b", sha256=digest_of("bob-key")),
            ]
        )

    async def story() -> None:
        async with served(ANSWER, keys_file=path, data_dir=tmp_path) as s:
            for left in "10":
                told = await ask(s, "ann").done()
                assert told.status == 200
                assert told.headers["x-ratelimit-limit-requests"] == "2"
                assert told.headers["x-ratelimit-remaining-requests"] == left
                assert "x-ratelimit-limit-tokens" not in told.headers
            refused = await ask(s, "ann").done()
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert refused.headers["x-ratelimit-limit-requests"] == "2"
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            wait_s = int(refused.headers["retry-after"])
            assert f"try again in {wait_s}s" in refused.error["message"]
            unlimited = await ask(s, "bob").done()
            assert unlimited.status == 200
            assert not [name for name in unlimited.headers if name.startswith("x-ratelimit")]
            chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
            headers = JSON | {"authorization": "Bearer ann-key"}
            told = await s.client.send("POST", "/v1/chat/completions", orjson.dumps(chat), headers)
            assert (told.status, told.error["code"]) == (429, "rate_limit_exceeded")

    asyncio.run(story())


@pytest.mark.parametrize("path", ["responses", "chat/completions", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_replies_to_an_owner_with_limits_say_how_much_is_left(path: str, stream: bool) -> None:
    message = {"role": "user", "content": "Hello"}
    body = {"input": "Hello"} if path == "responses" else {"messages": [message], "max_tokens": 9}
    headers = JSON | {"authorization": "Bearer key"}
    limits: dict[str, Any] = {"owner_requests_per_minute": 2, "owner_tokens_per_minute": 6}

    async def story() -> None:
        async with served(ANSWER, api_keys="ann:key", **limits) as s:
            asked = orjson.dumps(body | {"model": "demo", "stream": stream})
            told = await s.client.send("POST", f"/v1/{path}", asked, headers)
            assert told.status == 200
            for what, limit, remaining in (("requests", "2", "1"), ("tokens", "6", "0")):
                assert told.headers[f"x-ratelimit-limit-{what}"] == limit
                assert told.headers[f"x-ratelimit-remaining-{what}"] == remaining
            assert re.fullmatch(r"\d+s", told.headers["x-ratelimit-reset-requests"])
            assert re.fullmatch(r"\d+m\d+s", told.headers["x-ratelimit-reset-tokens"])

    asyncio.run(story())


def test_prompts_that_wait_are_bounded_in_tokens() -> None:
    async def story() -> None:
        async with served(STALLED, manual=True, max_running=1, max_waiting_tokens=500) as s:
            calls = [s.client.ask(stream=True)]
            await until(lambda: queue(s) == (1, 0))
            words = " word" * 400
            assert len(vocabulary().encoding.encode(words)) == len(ids(words)) == 400
            calls.append(s.client.ask(stream=True, input=words))
            await calls[1].until(lambda call: bool(call.heard))  # its prompt is read and it waits
            assert queue(s) == (1, 1)
            refused = await s.client.create(input=words)
            assert (refused.status, refused.error["code"]) == (503, "server_busy")
            assert queue(s) == (1, 1)
            for call in calls:
                call.hang_up()
                await call.done()
            assert queue(s) == (0, 0)

    asyncio.run(story())


def test_an_engine_that_stands_still_is_not_ready_and_its_responses_fail() -> None:
    may_act = asyncio.Event()

    async def sleep(_: float) -> None:
        await may_act.wait()
        await turn()

    async def story() -> None:
        async with served(STALLED, stall_s=0.05, sleep=sleep) as s:
            call = s.client.ask(stream=True)
            ready = await s.client.get("/health/ready")
            while ready.status == 200:
                ready = await s.client.get("/health/ready")
            assert "no step" in ready.json()["reason"]
            assert (await s.client.get("/health/live")).status == 200
            may_act.set()
            events = (await call.done()).events
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            assert "no step" in events[-2]["message"]
            assert (await s.client.get("/health/ready")).status == 200
            for _ in range(2):
                failed = await s.client.create()
                assert (failed.status, failed.error["code"]) == (503, "engine_lost")
            assert (await s.client.get("/health/live")).status == 503
            assert (await s.client.get("/health")).json()["state"] == "failed"

    asyncio.run(story())
