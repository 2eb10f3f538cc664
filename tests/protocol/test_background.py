"""Background responses: stored before they are told of, read by anybody, ended on a word.

Time is `Ticks` and the engine's steps are counted: nothing here waits for a clock.
Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai.types.responses import Response

from tests.support import lawful
from tests.support.asgi import JSON, asked
from tests.support.scripted.engine import Die
from tests.support.served import ANSWER, THOUGHT, script, served
from tests.support.stores import BrokenStore
from tests.support.ticks import Ticks, settled
from trt_responses.errors import ApiError, StoreUnavailable
from trt_responses.features.background.replay import LOST
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.wire.response import Response as OurResponse

if TYPE_CHECKING:
    from tests.support.asgi import Call
    from trt_responses.store import Job
from tests.support.background import AT_ONCE, cancelled, ended, got, started, two
from tests.support.served import STALLED


def test_it_is_queued_in_progress_and_completed_and_says_so_in_every_snapshot() -> None:
    async def story() -> None:
        async with served(THOUGHT, manual=True, **AT_ONCE) as s:
            queued = await started(s, metadata={"a": "b"})
            assert (queued["status"], queued["background"]) == ("queued", True)
            assert (queued["output"], queued["usage"]) == ([], None)
            await settled()
            assert (await got(s, queued["id"]))["status"] == "in_progress"
            await s.clock.step(8)
            half = await got(s, queued["id"])
            assert half["status"] == "in_progress"
            assert half["output"][0]["status"] in ("in_progress", "completed")
            last = await ended(s, queued["id"])
            assert (last["status"], last["background"]) == ("completed", True)
            assert last["output"][1]["content"][0]["text"] == "Hello there, friend."
            assert last["metadata"] == {"a": "b"}
            plain = s.client.ask(metadata={"a": "b"})
            while not plain.ended:
                await s.clock.step()
            drop = ("id", "background", "created_at", "completed_at", "output")
            for key in plain.json().keys() - set(drop):
                assert last[key] == plain.json()[key], key

    asyncio.run(story())


def test_the_job_is_stored_before_it_is_told_of() -> None:
    async def story() -> None:
        class Slow(MemoryStore):
            def __init__(self) -> None:
                super().__init__()
                self.asked, self.may = asyncio.Event(), asyncio.Event()

            async def put_job(self, job: Job) -> None:
                self.asked.set()
                await self.may.wait()
                await super().put_job(job)

        store = Slow()
        async with served(store=store) as s:
            plain = s.client.ask(background=True)
            stream = s.client.ask(background=True, stream=True)
            await store.asked.wait()
            await settled()
            assert not plain.heard
            assert not stream.heard
            assert not s.engine.requests, "nothing is generated for what may not be kept"
            store.may.set()
            assert (await plain.done()).json()["status"] == "queued"
            await stream.done()

    asyncio.run(story())


def test_a_job_that_cannot_be_stored_is_refused_and_holds_no_place() -> None:
    async def story() -> None:
        class Full(MemoryStore):
            async def put_job(self, job: Job) -> None:
                raise StoreUnavailable("The disk is full.", retry_after_s=9)

        async with served(store=Full(), max_background=1) as s:
            for _ in range(3):
                call = await s.client.create(background=True)
                assert (call.status, call.headers["retry-after"]) == (503, "9")
            assert len(s.runs) == 0

    asyncio.run(story())


def test_without_a_store_it_is_refused_by_name() -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.create(background=True, store=False)
            assert (call.status, call.error["param"]) == (400, "background")

    asyncio.run(story())


def test_it_streams_from_its_log_and_is_what_a_lawful_stream_is() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await s.client.create(background=True, stream=True)
            events = call.events
            types = [event["type"] for event in events]
            assert types[:3] == ["response.created", "response.queued", "response.in_progress"]
            told = [event["response"]["status"] for event in events[:3]]
            assert told == ["queued", "queued", "in_progress"]
            assert call.body.endswith(b"data: [DONE]\n\n")
            numbers = [event["sequence_number"] for event in events]
            assert numbers == list(range(len(events)))
            without = [events[0], *events[2:]]
            for number, event in enumerate(without):
                event["sequence_number"] = number
            without[0]["response"]["status"] = "in_progress"
            lawful.check(without, events[-1]["response"])
            assert await got(s, events[0]["response"]["id"]) == events[-1]["response"]

    asyncio.run(story())


def test_a_reader_that_leaves_changes_nothing() -> None:
    async def story() -> None:
        async with served(THOUGHT, manual=True, **AT_ONCE) as s:
            call = s.client.ask(background=True, stream=True)
            await call.until(lambda c: len(c.heard) > 1)
            response_id = call.events[0]["response"]["id"]
            await s.clock.step(3)
            call.hang_up()
            await call.done()
            await settled()
            assert s.last.state == "running"
            assert (await ended(s, response_id))["status"] == "completed"

    asyncio.run(story())


@pytest.mark.parametrize("there", [False, True], ids=["here", "on another server"])
def test_it_is_cancelled_and_stays_so(there: bool) -> None:
    async def story() -> None:
        async with two(STALLED) as t:
            response_id = (await started(t.one))["id"]
            stream = t.one.client.open("GET", f"/v1/responses/{response_id}?stream=true")
            await t.one.clock.step(6)
            s = t.other if there else t.one
            call = s.client.open("POST", f"/v1/responses/{response_id}/cancel")
            await settled()
            await t.pass_(3)
            last = (await call.done()).json()
            assert last["status"] == "cancelled"
            assert [item["status"] for item in last["output"]] == ["incomplete"]
            assert t.one.last.state == "aborted"
            await stream.done()
            assert stream.body.endswith(b"data: [DONE]\n\n")
            assert "response.completed" not in [event["type"] for event in stream.events]
            for again in (t.one, t.other):
                assert (await cancelled(again, response_id)).json() == last
                assert await got(again, response_id) == last
            assert len(t.one.runs) == 0
            follow = await t.one.client.create(previous_response_id=response_id)
            assert (follow.status, follow.error["code"]) == (
                400,
                "previous_response_not_continuable",
            )

    asyncio.run(story())


def test_cancelling_what_has_ended_gives_its_snapshot() -> None:
    async def story() -> None:
        async with served() as s:
            response_id = (await started(s))["id"]
            last = await ended(s, response_id)
            call = await cancelled(s, response_id)
            assert (call.status, call.json()) == (200, last)

    asyncio.run(story())


def test_only_what_is_made_in_the_background_is_cancelled() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create()).json()
            call = await cancelled(s, made["id"])
            assert (call.status, call.error["code"]) == (400, "not_a_background_response")
            call = await cancelled(s, "resp_unknown")
            assert (call.status, call.error["code"]) == (404, "not_found")

    asyncio.run(story())


def test_another_server_polls_it_to_its_end() -> None:
    async def story() -> None:
        async with two(THOUGHT) as t:
            queued = await started(t.one)
            await settled()
            assert (await got(t.other, queued["id"]))["status"] == "in_progress"
            call = await t.other.client.create(previous_response_id=queued["id"])
            assert (call.status, call.error["code"]) == (409, "previous_response_in_progress")
            assert call.headers["retry-after"] == "2"
            await t.one.clock.step(6)
            await t.pass_(11)
            assert (await got(t.other, queued["id"]))["output"], "news come with the heartbeat"
            last = await ended(t.one, queued["id"])
            assert await got(t.other, queued["id"]) == last
            call = t.other.client.ask(previous_response_id=queued["id"])
            while not call.ended:
                await t.other.clock.step()
            assert call.json()["status"] == "completed"

    asyncio.run(story())


def test_a_run_outlives_many_leases_while_its_server_lives() -> None:
    async def story() -> None:
        async with two(STALLED) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(3)
            await t.pass_(100)
            assert (await got(t.other, response_id))["status"] == "in_progress"

    asyncio.run(story())


def test_what_a_dead_server_was_making_reads_failed_within_its_lease() -> None:
    async def story() -> None:
        async with two(THOUGHT) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(5)
            await t.pass_(2)
            await t.pass_(25, dead=0)
            assert (await got(t.other, response_id))["status"] == "in_progress"
            await t.pass_(6, dead=0)
            lost = await got(t.other, response_id)
            assert (lost["status"], lost["error"]["message"]) == ("failed", LOST)
            assert not [i for i in lost["output"] if i["status"] == "in_progress"]
            assert (await cancelled(t.other, response_id)).json() == lost
            call = await t.other.client.create(previous_response_id=response_id)
            assert call.error["code"] == "previous_response_not_continuable"
            # It was only slow: what it says now is not believed, for others were told otherwise.
            await t.one.clock.step(60)
            await settled()
            assert await got(t.other, response_id) == lost
            assert len(t.one.runs) == 0

    asyncio.run(story())


@pytest.mark.parametrize("there", [False, True], ids=["here", "on another server"])
def test_deleting_it_ends_it(there: bool) -> None:
    async def story() -> None:
        async with two(STALLED) as t:
            response_id = (await started(t.one))["id"]
            await t.one.clock.step(4)
            s = t.other if there else t.one
            call = await s.client.send("DELETE", f"/v1/responses/{response_id}")
            assert call.json() == {"id": response_id, "object": "response", "deleted": True}
            await t.pass_(2)
            assert t.one.last.state == "aborted"
            for each in (t.one, t.other):
                assert (await each.client.get(f"/v1/responses/{response_id}")).status == 404
            assert len(t.one.runs) == 0

    asyncio.run(story())


def test_it_belongs_to_its_owner() -> None:
    async def story() -> None:
        async with served(STALLED, api_keys="a:k1,b:k2", manual=True, **AT_ONCE) as s:

            async def ask(key: str, method: str, path: str, body: bytes = b"") -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                return await s.client.send(method, path, body, headers)

            body = orjson.dumps(asked(background=True))
            at = f"/v1/responses/{(await ask('k1', 'POST', '/v1/responses', body)).json()['id']}"
            calls = [("GET", at), ("GET", at + "?stream=true"), ("DELETE", at)]
            calls += [("POST", at + "/cancel"), ("GET", at + "/input_items")]
            for method, path in calls:
                call = await ask("k2", method, path)
                assert (call.status, call.error["code"]) == (404, "not_found"), path
            assert s.last.state != "aborted"
            assert (await ask("k1", "GET", at)).status == 200

    asyncio.run(story())


def test_an_owner_has_so_many_at_once_and_no_more() -> None:
    async def story() -> None:
        more: dict[str, Any] = {"api_keys": "a:k1,b:k2", "max_background": 2, **AT_ONCE}
        async with served(STALLED, manual=True, **more) as s:

            async def ask(key: str) -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                body = orjson.dumps(asked(background=True))
                return await s.client.send("POST", "/v1/responses", body, headers)

            first = (await ask("k1")).json()["id"]
            assert (await ask("k1")).status == 200
            refused = await ask("k1")
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert "retry-after" in refused.headers
            assert (await ask("k2")).status == 200
            headers = JSON | {"authorization": "Bearer k1"}
            await s.client.send("POST", f"/v1/responses/{first}/cancel", b"", headers)
            await settled()
            assert (await ask("k1")).status == 200

    asyncio.run(story())


def test_a_failure_is_stored_and_told_with_its_reason() -> None:
    async def story() -> None:
        async with served(script("<|channel|>final<|message|>Oh", Die("out of memory"))) as s:
            call = await s.client.create(background=True, stream=True)
            types = [event["type"] for event in call.events[-2:]]
            assert types == ["error", "response.failed"]
            last = call.events[-1]["response"]
            assert await got(s, last["id"]) == last
            assert "out of memory" in last["error"]["message"]

    asyncio.run(story())


def test_an_end_that_cannot_be_stored_is_a_failure_and_no_other_end_is_told() -> None:
    async def story() -> None:
        class Broken(BrokenStore):
            async def finish_job(self, *_: Any, **__: Any) -> bool:
                raise ApiError("no room", status=503)

        async with served(ANSWER, store=Broken(OSError())) as s:
            call = await s.client.create(background=True, stream=True)
            types = [event["type"] for event in call.events]
            assert types[-2:] == ["error", "response.failed"]
            assert "response.completed" not in types
            assert len(s.runs) == 0

    asyncio.run(story())


def test_a_store_that_is_away_for_less_than_a_lease_does_no_harm() -> None:
    async def story() -> None:
        ticks = Ticks()

        class Away(MemoryStore):
            away = False

            async def renew_job(self, *given: Any, **more: Any) -> Any:
                if self.away:
                    raise StoreUnavailable("away")
                return await super().renew_job(*given, **more)

            async def append_frames(self, *given: Any, **more: Any) -> Any:
                if self.away:
                    raise StoreUnavailable("away")
                return await super().append_frames(*given, **more)

        store = Away(Bounds(lease_s=30), clock_s=ticks)
        async with served(THOUGHT, store=store, manual=True, sleep=ticks.sleep, **AT_ONCE) as s:
            response_id = (await started(s))["id"]
            await settled()
            store.away = True
            await s.clock.step(4)
            await ticks.pass_(20)
            store.away = False
            await ticks.pass_(2)
            last = await ended(s, response_id)
            assert last["status"] == "completed"
            replay = await s.client.get(f"/v1/responses/{response_id}?stream=true")
            numbers = [event["sequence_number"] for event in replay.events]
            assert numbers == list(range(len(numbers)))

    asyncio.run(story())


def test_a_start_whose_keeping_was_not_answered_leaves_nothing_that_is_made_later() -> None:
    async def story() -> None:
        class Unanswered(MemoryStore):
            first = ""

            async def put_job(self, job: Job) -> None:
                await super().put_job(job)
                self.first = job.id
                raise StoreUnavailable("cut off", retry_after_s=1)

        store = Unanswered(Bounds(lease_s=30, takeover_s=60))
        async with served(THOUGHT, store=store, **AT_ONCE) as s:
            call = await s.client.create(background=True)
            assert call.status == 503
            assert store.first
            assert await store.get(store.first, "") is None
            assert len(s.runs) == 0

    asyncio.run(story())


@pytest.mark.parametrize("was_kept", [True, False])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_frames_whose_keeping_was_not_answered_are_told_once(which: int, was_kept: bool) -> None:
    """A reader that leaves while they are being kept does the same."""

    async def story() -> None:
        ticks = Ticks()

        class Unanswered(MemoryStore):
            asked = 0

            async def append_frames(self, *given: Any, **more: Any) -> Any:
                self.asked += 1
                if self.asked != which:
                    return await super().append_frames(*given, **more)
                if was_kept:
                    await super().append_frames(*given, **more)
                raise StoreUnavailable("cut off")

        store = Unanswered(Bounds(lease_s=30), clock_s=ticks)
        async with served(THOUGHT, store=store, manual=True, sleep=ticks.sleep, **AT_ONCE) as s:
            response_id = (await started(s))["id"]
            for _ in range(6):
                await settled()
                await s.clock.step(2)  # so that more is new at each beat
                await ticks.pass_(1)
            last = await ended(s, response_id)
            assert store.asked > which
            assert last["status"] == "completed"
            call = await s.client.get(f"/v1/responses/{response_id}?stream=true")
            numbers = [event["sequence_number"] for event in call.events]
            assert numbers == list(range(len(numbers)))
            assert call.events[-1]["type"] == "response.completed"

    asyncio.run(story())


def test_a_stop_ends_what_goes_on_and_stores_that_it_did() -> None:
    async def story() -> None:
        class Lasting(MemoryStore):
            async def stop(self) -> None:
                pass

        store = Lasting()
        async with served(STALLED, store=store, manual=True, **AT_ONCE) as s:
            response_id = (await started(s))["id"]
            await s.clock.step(3)
        async with served(store=store) as s:
            body = await got(s, response_id)
            assert body["status"] == "failed"
            assert "stopped" in body["error"]["message"]

    asyncio.run(story())


def test_a_stop_lets_what_goes_on_come_to_its_end() -> None:
    async def story() -> None:
        class Lasting(MemoryStore):
            async def stop(self) -> None:
                pass

        store = Lasting()
        async with served(THOUGHT, store=store, drain_s=60) as s:
            response_id = (await started(s))["id"]
        async with served(store=store) as s:
            assert (await got(s, response_id))["status"] == "completed"

    asyncio.run(story())


class Slow(MemoryStore):
    """Its stop, and the next job if `holds`, wait."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.names: list[str] = []
        self.putting, self.stopping, self.go_on = (asyncio.Event() for _ in range(3))

    async def put_job(self, job: Job) -> None:
        await super().put_job(job)
        self.names.append(job.id)
        self.putting.set()
        if self.holds:
            await self.stopping.wait()

    async def stop(self) -> None:
        self.stopping.set()
        await self.go_on.wait()


@pytest.mark.parametrize("is_earlier", [True, False])
def test_none_begins_behind_the_end_of_those_that_run(is_earlier: bool) -> None:
    async def story() -> None:
        store = Slow()
        store.holds = is_earlier
        server = served(store=store, **AT_ONCE)
        s = await server.__aenter__()
        if is_earlier:
            call = s.client.ask(background=True)
            await store.putting.wait()
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        await store.stopping.wait()
        if not is_earlier:
            call = s.client.ask(background=True)
        await call.done()
        assert (call.status, call.error["code"]) == (503, "server_draining")
        assert [await store.get(name, "") for name in store.names] == [None] * is_earlier
        store.go_on.set()
        await stopping

    asyncio.run(story())


def test_a_queued_snapshot_is_the_sdks() -> None:
    async def story() -> None:
        async with served() as s:
            body = await started(s)
            assert Response.model_validate(body).status == "queued"
            assert body.keys() >= set(OurResponse.__dataclass_fields__)

    asyncio.run(story())
