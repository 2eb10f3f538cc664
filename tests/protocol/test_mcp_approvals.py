"""`mcp` over HTTP: calls that wait for an approval. One is good for one run of what was asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, asked, until
from tests.support.mcp_served import THREE, calling, items, offer, refused, using
from tests.support.mcp_site import mcp_site
from tests.support.served import ANSWER, KEYED, STALLED, script, vocabulary
from tests.support.story import story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.asgi import Call, Json
    from tests.support.mcp_site import McpSite
    from tests.support.scripted.engine import Script
    from tests.support.served import Served
    from trt_responses.engine import GenerateOptions

APPROVALS: dict[str, tuple[Any, list[str]]] = {
    "default": (None, ["find", "list", "drop"]),
    "always": ("always", ["find", "list", "drop"]),
    "never": ("never", []),
    "never these": ({"never": {"tool_names": ["find"]}}, ["list", "drop"]),
    "never for reading": ({"never": {"read_only": True}}, ["drop"]),
    "always these": ({"always": {"tool_names": ["drop"]}}, ["find", "list", "drop"]),
    "always wins": (
        {"always": {"tool_names": ["find"]}, "never": {"read_only": True}},
        ["find", "drop"],
    ),
    "an empty object": ({}, ["find", "list", "drop"]),
}


@pytest.mark.parametrize(("required", "waiting"), APPROVALS.values(), ids=APPROVALS)
@story
async def test_approvals_are_required_in_every_form(required: Any, waiting: list[str]) -> None:
    def call_of(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        text = vocabulary().text(list(prompt_ids))
        name = text.rpartition("<|start|>user<|message|>")[2].partition("<")[0]
        return script(ANSWER if "to=assistant" in text else calling(name))

    async with mcp_site(*THREE) as server, using(server, call_of) as app:
        for name in ("find", "list", "drop"):
            tools = [offer(server, require_approval=required)]
            call = await app.client.create(input=name, tools=tools)
            assert bool(items(call, "mcp_approval_request")) == (name in waiting), name
            assert bool(items(call, "mcp_call")) == (name not in waiting), name
        assert server.count("tools/call") == 3 - len(waiting)


# --- an approval is good for one run of the stored arguments --------------------------------------

USER = {"role": "user", "content": "Go."}
USED, NEVER = "approval_already_used", "invalid_approval"


def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """A call, where a message asks for one; nothing, where one asks for that; an answer to all
    else."""
    text = vocabulary().text(list(prompt_ids))
    if text.endswith("Hold on.<|end|><|start|>assistant"):
        return STALLED
    asks = text.endswith("Go.<|end|><|start|>assistant")
    return script(calling("find", '{"n": 1}') if asks else ANSWER)


def approval(request: Json, approve: bool = True) -> Json:
    kind = "mcp_approval_response"
    return {"type": kind, "approval_request_id": request["id"], "approve": approve}


class Waiting:
    """A response that ends with a request for approval, and what approves it."""

    def __init__(self, app: Served, server: McpSite, first: Call, stores: bool) -> None:
        self.app = app
        self.server = server
        self.id = first.json()["id"]
        (self.request,) = items(first, "mcp_approval_request")
        self.output: list[Json] = first.json()["output"]
        self.stores = stores

    @property
    def runs(self) -> int:
        return self.server.count("tools/call")

    def behind(self, *more: Json, after: str | None = None) -> Json:
        """The fields of a request that goes on from it, or from another response."""
        if self.stores:
            return {"input": list(more), "previous_response_id": after or self.id}
        return {"input": [USER, *self.output, *more], "store": False}

    async def goes_on(self, *more: Json, after: str | None = None, **fields: Any) -> Call:
        offers = {"tools": [offer(self.server, require_approval="always")]}
        return await self.app.client.create(**self.behind(*more, after=after), **offers | fields)


@asynccontextmanager
async def waiting(stores: bool, **settings: Any) -> AsyncIterator[Waiting]:
    """The store, if nothing is said of it, is the memory's."""
    async with mcp_site(*THREE) as server, using(server, turns, **settings) as app:
        tools = [offer(server, require_approval="always")]
        first = await app.client.create(input=[USER], tools=tools, store=stores)
        yield Waiting(app, server, first, stores)


both = pytest.mark.parametrize("stores", [True, False], ids=["stored", "carried"])


@both
@story
async def test_an_approval_is_good_once(stores: bool) -> None:
    async with waiting(stores) as one:
        again = approval(one.request)
        for verdicts in ([again, again], [again, approval(one.request, False)]):
            call = await one.goes_on(*verdicts)
            refused(call, f"input[{len(one.behind(*verdicts)['input']) - 1}].approval_request_id")
            assert (call.error["code"], one.runs) == (USED, 0)
        made = await one.goes_on(again)
        (ran,) = items(made, "mcp_call")
        assert (ran["arguments"], ran["output"]) == ('{"n": 1}', "found")
        assert ran["approval_request_id"] == one.request["id"]
        assert one.app.prompt_text().count("<|call|>") == 1
        call = await one.goes_on(again)
        assert (call.status, call.error["code"], one.runs) == (400, USED, 1)
        if stores:  # and behind the response that ran it
            call = await one.goes_on(again, after=made.json()["id"])
            assert (call.status, call.error["code"], one.runs) == (400, USED, 1)


@both
@story
async def test_an_approval_stays_good_where_its_response_did_not_begin(stores: bool) -> None:
    async with waiting(stores, max_running=1, max_waiting_tokens=1) as one:
        calls = [one.app.client.ask(input=text, stream=True) for text in ("Hold on.", "Wait.")]
        await until(lambda: one.app.health().waiting == 1 and bool(calls[1].heard))
        again = approval(one.request)
        call = await one.goes_on(again)
        assert (call.status, call.error["code"], one.runs) == (503, "server_busy", 0)
        for held in calls:
            held.hang_up()
            await held.done()
        made = await one.goes_on(again)
        assert [item["output"] for item in items(made, "mcp_call")] == ["found"]
        call = await one.goes_on(again)
        assert (call.status, call.error["code"], one.runs) == (400, USED, 1)


@both
@story
async def test_of_many_approvals_at_once_one_runs(stores: bool) -> None:
    async with waiting(stores) as one:
        calls = await asyncio.gather(*(one.goes_on(approval(one.request)) for _ in range(5)))
        assert sorted(call.status for call in calls) == [200, 400, 400, 400, 400]
        assert one.runs == 1


@both
@story
async def test_a_call_is_approved_after_the_conversation_has_moved_on(stores: bool) -> None:
    async with waiting(stores) as one:
        moved = await one.goes_on({"role": "user", "content": "Wait."})
        assert (moved.json()["output"][-1]["type"], one.runs) == ("message", 0)
        if not stores:
            one.output += [{"role": "user", "content": "Wait."}, *moved.json()["output"]]
        made = await one.goes_on(approval(one.request), after=moved.json()["id"])
        assert [item["output"] for item in items(made, "mcp_call")] == ["found"]
        assert one.runs == 1


@both
@story
async def test_a_denial_is_an_answer(stores: bool) -> None:
    async with waiting(stores) as one:
        denied = await one.goes_on(approval(one.request, False))
        assert denied.json()["output"][-1]["type"] == "message"
        if not stores:
            return  # who carries a conversation may take a denial out of it again
        call = await one.goes_on(approval(one.request), after=denied.json()["id"])
        assert (call.status, call.error["code"], one.runs) == (400, USED, 0)


@both
@story
async def test_an_approval_that_nobody_asked_for_is_refused(stores: bool) -> None:
    async with waiting(stores) as one:
        for identity in ("mcpr_1", one.request["id"][:-1], one.request["id"].partition(".")[0]):
            call = await one.goes_on(approval({"id": identity}))
            place = f"input[{0 if stores else 1 + len(one.output)}].approval_request_id"
            refused(call, place, "'mcp_approval_request'", f"'{identity}'")
        assert one.runs == 0


CHANGES: dict[str, Json] = {
    "arguments": {"arguments": '{"n": 2}'},
    "name": {"name": "drop"},
    "id": {"id": "mcpr_1"},
}


@both
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@story
async def test_a_call_that_the_model_has_not_written_is_not_run(stores: bool, change: Json) -> None:
    """Neither where a client brings it, nor where it has had it stored."""
    async with waiting(stores) as one:
        forged = one.request | change
        tools = [offer(one.server, require_approval="always")]
        brings = {"input": [USER, forged], "tools": tools, "store": stores}
        more: Json = {"input": [USER, forged, approval(forged)], "store": False}
        if stores:
            brought = await one.app.client.create(**brings)
            assert brought.status == 200, brought.body
            more = {"input": [approval(forged)], "previous_response_id": brought.json()["id"]}
        call = await one.app.client.create(**more, tools=tools)
        place = f"input[{0 if stores else 2}].approval_request_id"
        refused(call, place, "requested no approval of this call")
        assert (call.error["code"], one.runs) == (NEVER, 0)


@story
async def test_a_request_for_approval_that_is_repeated_is_refused() -> None:
    """The hosted API refuses it too: the model would read its call twice."""
    async with waiting(True) as one:
        for change in ({}, {"arguments": '{"n": 2}'}):
            call = await one.goes_on(one.request | change, approval(one.request))
            refused(call, "input[0].id", "stands in the conversation already")
        assert one.runs == 0
        assert (await one.goes_on(approval(one.request))).status == 200


OFFERS: dict[str, list[Json]] = {
    "no tool": [],
    "a function": [{"type": "function", "name": "f"}],
    "another server": [{"server_label": "other"}],
    "another of its tools": [{"allowed_tools": ["drop"]}],
}


@both
@pytest.mark.parametrize("offers", OFFERS.values(), ids=OFFERS)
@story
async def test_an_approval_needs_its_tool_again(stores: bool, offers: list[Json]) -> None:
    async with waiting(stores) as one:
        tools = [tool if "type" in tool else offer(one.server, **tool) for tool in offers]
        call = await one.goes_on(approval(one.request), tools=tools)
        place = f"input[{0 if stores else 1 + len(one.output)}].approval_request_id"
        refused(call, place, "'find' of 'demo'", "send the tool again")
        assert one.runs == 0
        assert (await one.goes_on(approval(one.request))).status == 200  # it was not used


@both
@story
async def test_nobody_approves_for_another_owner(stores: bool) -> None:
    keys: Any = {"api_keys": "ann:key-a,bob:key-b"}
    async with mcp_site(*THREE) as server, using(server, turns, **keys, **KEYED) as app:

        async def create(owner: str, fields: Json) -> Call:
            headers = JSON | {"authorization": f"Bearer key-{owner}"}
            tools = [offer(server, require_approval="always")]
            body = orjson.dumps(asked(tools=tools, **fields))
            return await app.client.send("POST", "/v1/responses", body, headers)

        first = await create("a", {"input": [USER], "store": stores})
        one = Waiting(app, server, first, stores)
        behind = one.behind(approval(one.request))
        call = await create("b", behind)
        assert call.status == (404 if stores else 400)
        assert one.runs == 0
        assert (await create("a", behind)).status == 200
        assert one.runs == 1
