"""`/v1/conversations`, and responses that are made in one. Bodies are judged by the SDK's types."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai.types.conversations import (
    Conversation,
    ConversationDeletedResource,
    ConversationItem,
    ConversationItemList,
)
from pydantic import TypeAdapter

from tests.support.asgi import JSON, Call, until
from tests.support.scripted.engine import Die, Script
from tests.support.served import (
    ANSWER,
    CALL,
    LONG,
    STALLED,
    THOUGHT,
    WEATHER,
    Served,
    ids,
    result,
    served,
)
from tests.support.sockets import connected
from tests.support.stores import FAULTS, BrokenStore, memory
from trt_responses.features.conversations.locks import Locks
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Lock

if TYPE_CHECKING:
    from trt_responses.store import Record

Json = dict[str, Any]

PATH = "/v1/conversations"
ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
USER = {"role": "user", "content": "Hello"}
DIES = Script((*((i,) for i in ids("<|channel|>final<|message|>Hello")), Die("burnt")))


async def call(s: Served, method: str, path: str, body: object = None, **headers: str) -> Call:
    raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    return await s.client.send(method, path, raw, JSON | headers)


async def begun(s: Served, **fields: object) -> str:
    made = await call(s, "POST", PATH, fields)
    assert made.status == 200, made.body
    Conversation.model_validate(made.json(), strict=True)
    name: str = made.json()["id"]
    assert name.startswith("conv_")
    return name


async def listed(s: Served, name: str, query: str = "?order=asc&limit=100") -> list[Json]:
    page = await call(s, "GET", f"{PATH}/{name}/items{query}")
    assert page.status == 200, page.body
    ConversationItemList.model_validate(page.json())
    for item in page.json()["data"]:
        ITEM.validate_python(item)
    data: list[Json] = page.json()["data"]
    return data


def kinds(items: list[Json]) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


# --- the object -------------------------------------------------------------------------------


def test_a_conversation_is_made_read_changed_and_deleted() -> None:
    async def story() -> None:
        async with served() as s:
            name = await begun(s, items=[USER], metadata={"a": "1"})
            read = (await call(s, "GET", f"{PATH}/{name}")).json()
            assert (read["metadata"], read["object"]) == ({"a": "1"}, "conversation")
            for metadata in ({"b": "2"}, None):
                changed = await call(s, "POST", f"{PATH}/{name}", {"metadata": metadata})
                assert changed.json() == read | {"metadata": metadata or {}}
                assert (await call(s, "GET", f"{PATH}/{name}")).json() == changed.json()
            assert kinds(await listed(s, name)) == ["user"]
            gone = await call(s, "DELETE", f"{PATH}/{name}")
            ConversationDeletedResource.model_validate(gone.json(), strict=True)
            for method in ("GET", "DELETE"):
                assert (await call(s, method, f"{PATH}/{name}")).status == 404

    asyncio.run(story())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"items":null,"metadata":null}'])
def test_nothing_has_to_be_in_a_new_one(body: bytes) -> None:
    async def story() -> None:
        async with served() as s:
            made = await call(s, "POST", PATH, body)
            assert made.json()["metadata"] == {}
            assert await listed(s, made.json()["id"]) == []

    asyncio.run(story())


# --- its items --------------------------------------------------------------------------------


def test_items_are_added_listed_in_pages_read_and_deleted() -> None:
    async def story() -> None:
        async with served() as s:
            name = await begun(s)
            for start in (0, 20, 40):
                twenty = [USER | {"content": f"{n}"} for n in range(start, start + 20)]
                added = await call(s, "POST", f"{PATH}/{name}/items", {"items": twenty})
                page = added.json()
                ConversationItemList.model_validate(page)
                assert len(page["data"]) == 20
                assert (page["first_id"], page["has_more"]) == (page["data"][0]["id"], False)
            items = await listed(s, name)
            said = [item["content"][0]["text"] for item in items]
            assert said == [f"{n}" for n in range(60)]
            newest = await listed(s, name, "")
            assert [item["id"] for item in newest] == [item["id"] for item in items[:39:-1]]
            after = await listed(s, name, f"?after={newest[-1]['id']}&limit=5")
            assert [item["id"] for item in after] == [item["id"] for item in items[39:34:-1]]
            one = await call(s, "GET", f"{PATH}/{name}/items/{items[7]['id']}")
            assert one.json() == items[7]
            left = await call(s, "DELETE", f"{PATH}/{name}/items/{items[7]['id']}")
            assert left.json()["id"] == name
            Conversation.model_validate(left.json(), strict=True)
            assert [item["id"] for item in await listed(s, name)] == [
                item["id"] for item in (*items[:7], *items[8:])
            ]
            assert (await call(s, "GET", f"{PATH}/{name}/items/{items[7]['id']}")).status == 404

    asyncio.run(story())


def test_items_with_one_id_are_listed_to_the_end_and_deleted_one_by_one() -> None:
    names = {"a": "msg_same", "b": "msg_same", "c": "msg_same-2"}
    same = [USER | {"id": name, "content": text} for text, name in names.items()]

    async def pages(s: Served, path: str) -> list[Json]:
        items: list[Json] = []
        for _ in range(5):
            behind = f"&after={items[-1]['id']}" if items else ""
            page = (await call(s, "GET", f"{path}?order=asc&limit=1{behind}")).json()
            items += page["data"]
            if not page["has_more"]:
                break
        return items

    async def story() -> None:
        async with served() as s:
            made = (await s.client.create(input=same)).json()
            items = await pages(s, f"/v1/responses/{made['id']}/input_items")
            assert [item["content"][0]["text"] for item in items] == ["a", "b", "c"]
            name = await begun(s, items=same[:2])
            added = await call(s, "POST", f"{PATH}/{name}/items", {"items": same[2:]})
            items = await pages(s, f"{PATH}/{name}/items")
            assert [item["content"][0]["text"] for item in items] == ["a", "b", "c"]
            assert added.json()["data"] == items[2:]
            one = await call(s, "GET", f"{PATH}/{name}/items/{items[1]['id']}")
            assert one.json() == items[1]
            await call(s, "DELETE", f"{PATH}/{name}/items/{items[2]['id']}")
            assert await pages(s, f"{PATH}/{name}/items") == items[:2]

    asyncio.run(story())


def test_what_is_listed_can_be_sent_again() -> None:
    async def story() -> None:
        async with served(CALL, ANSWER) as s:
            name = await begun(s, items=[USER])
            made = await s.client.create(input="Weather?", conversation=name, tools=[WEATHER])
            call_id = made.json()["output"][-1]["call_id"]
            await s.client.create(input=[result(call_id)], conversation=name, tools=[WEATHER])
            items = await listed(s, name)
            again = await begun(s, items=items)
            assert [without_id(item) for item in await listed(s, again)] == [
                without_id(item) for item in items
            ]

    asyncio.run(story())


def without_id(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "id"}


# --- responses --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "object"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
def test_a_response_is_made_of_what_stands_there_and_added_to_it(
    form: str, stream: bool, store: bool
) -> None:
    async def story() -> None:
        async with served(THOUGHT, ANSWER) as s:
            name = await begun(s, items=[USER | {"role": "developer"}, USER])
            named = name if form == "text" else {"id": name}
            for number, text in enumerate(("First.", "Second."), 1):
                made = await s.client.create(
                    input=text, conversation=named, stream=stream, store=store
                )
                last = made.events[-1]["response"] if stream else made.json()
                assert last["conversation"] == {"id": name}
                assert last["status"] == "completed"
                items = await listed(s, name)
                assert items[-1]["id"] == last["output"][-1]["id"]
                assert kinds(items).count("user") == 1 + number
            assert kinds(items) == [
                *("developer", "user", "user", "reasoning", "assistant", "user", "assistant")
            ]
            first, second = s.prompt_text(0), s.prompt_text(1)
            shared = first.removesuffix("<|start|>assistant")
            assert second.startswith(shared.rpartition("<|start|>user")[0])
            assert "First." in second
            got = await s.client.get(f"/v1/responses/{last['id']}")
            assert got.status == (200 if store else 404)

    asyncio.run(story())


def test_a_running_response_is_not_seen_and_nobody_else_writes() -> None:
    async def story() -> None:
        async with served(LONG, manual=True) as s:
            name = await begun(s, items=[USER])
            running = s.client.ask(input="x", conversation=name, stream=True)
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(3)
            assert kinds(await listed(s, name)) == ["user"]
            item = (await listed(s, name))[0]["id"]
            for refused in (
                await s.client.create(input="y", conversation=name),
                await s.client.create(input="y", conversation=name, background=True),
                await call(s, "POST", f"{PATH}/{name}/items", {"items": [USER]}),
                await call(s, "POST", f"{PATH}/{name}", {"metadata": {}}),
                await call(s, "DELETE", f"{PATH}/{name}/items/{item}"),
            ):
                assert refused.status == 400
                assert refused.error["code"] == "conversation_locked"
                assert refused.error["param"] == "conversation"
            await s.clock.step(220)
            await running.done()
            assert kinds(await listed(s, name)) == ["user", "user", "assistant"]
            assert (await call(s, "POST", f"{PATH}/{name}", {"metadata": {}})).status == 200

    asyncio.run(story())


def test_the_lock_of_a_background_response_lasts_to_its_end() -> None:
    async def story() -> None:
        async with served(LONG, manual=True) as s:
            name = await begun(s)
            queued = await s.client.create(input="x", conversation=name, background=True)
            assert queued.json()["conversation"] == {"id": name}
            refused = await s.client.create(input="y", conversation=name)
            assert refused.error["code"] == "conversation_locked"
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(220)
            await until(lambda: not len(s.runs))
            assert kinds(await listed(s, name)) == ["user", "assistant"]

    asyncio.run(story())


@pytest.mark.parametrize("written", [DIES, STALLED], ids=["failed", "cancelled"])
@pytest.mark.parametrize("background", [True, False], ids=["background", "foreground"])
def test_what_did_not_end_well_leaves_nothing_and_no_lock(
    written: Script, background: bool
) -> None:
    async def story() -> None:
        async with served(written, ANSWER) as s:
            name = await begun(s, items=[USER])
            failing = s.client.ask(
                input="x", conversation=name, stream=not background, background=background
            )
            await until(lambda: bool(s.engine.requests))
            if written is STALLED and background:
                await failing.done()
                await s.client.send("POST", f"/v1/responses/{failing.json()['id']}/cancel")
            elif written is STALLED:
                failing.hang_up()
            await failing.done()
            await until(lambda: not len(s.runs))
            assert kinds(await listed(s, name)) == ["user"]
            assert (await s.client.create(input="y", conversation=name)).status == 200

    asyncio.run(story())


@pytest.mark.parametrize("mode", ["store", "stream", "background"])
def test_a_conversation_that_is_deleted_meanwhile_fails_its_response(mode: str) -> None:
    async def story() -> None:
        store = memory()
        async with served(LONG, store=store, manual=True) as s:
            name = await begun(s)
            fields = {mode: True, "stream": mode != "store"}
            running = s.client.ask(input="x", conversation=name, **fields)
            await until(lambda: bool(s.engine.requests))
            assert (await call(s, "DELETE", f"{PATH}/{name}")).status == 200
            await s.clock.step(220)
            await running.done()
            if mode == "store":
                assert (running.status, running.error["code"]) == (404, "conversation_deleted")
            else:
                assert running.events[-2]["code"] == "conversation_deleted"
                assert running.events[-1]["type"] == "response.failed"
            assert len(store) == (mode == "background")
            if mode == "background":
                path = f"/v1/responses/{running.events[0]['response']['id']}"
                kept = (await s.client.get(path)).json()
                assert kept == running.events[-1]["response"]
                assert (await s.client.get(f"{path}?stream=true")).body == running.body
                assert (await s.client.create(previous_response_id=kept["id"])).status == 400

    asyncio.run(story())


def test_two_servers_on_one_history_never_lose_what_one_has_added() -> None:
    async def story() -> None:
        store = memory()
        async with served(ANSWER, store=store) as one:
            name = await begun(one)
            seen = await store.get(name, "")
            await one.client.create(input="x", conversation=name)
            assert not await store.change(replaced(seen))  # what another server read before
            assert len(await listed(one, name)) == 2

    asyncio.run(story())


def test_a_lock_that_nobody_waits_for_any_more_is_freed() -> None:
    class Slow(MemoryStore):
        async def lock(self, lock: Lock, lease_s: float) -> bool:
            taken = await super().lock(lock, lease_s)
            asked.set()
            await may.wait()
            return taken

    asked, may = asyncio.Event(), asyncio.Event()

    async def story() -> None:
        store = Slow()
        waiting = asyncio.create_task(Locks(store).take(Lock("conv_1", "", "resp_1")))
        await asked.wait()
        waiting.cancel()
        may.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await store.lock(Lock("conv_1", "", "resp_2"), 1)

    asyncio.run(story())


def replaced(record: Any) -> Any:
    from dataclasses import replace

    return replace(record, version=record.version + 1)


def test_an_end_that_cannot_be_kept_changes_nothing() -> None:
    class Broken(BrokenStore):
        async def change(
            self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
        ) -> bool:
            if response is not None:
                raise self._fault
            return await super().change(conversation, response, lock=lock)

    async def story() -> None:
        async with served(ANSWER, store=Broken(FAULTS[1])) as s:
            name = await begun(s)
            assert (await s.client.create(input="x", conversation=name)).status == 503
            assert await listed(s, name) == []

    asyncio.run(story())


def test_over_a_websocket_it_is_the_same() -> None:
    async def story() -> None:
        async with served(ANSWER) as s, connected(s.app) as socket:
            name = await begun(s)
            for store in (True, False):
                frames = await socket.answer(input="x", conversation=name, store=store)
                assert frames[-1]["response"]["conversation"] == {"id": name}
            assert len(await listed(s, name)) == 4

    asyncio.run(story())


def test_the_tokens_of_a_conversation_are_counted() -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            name = await begun(s, items=[USER] * 3)
            body = orjson.dumps({"model": "demo", "conversation": name, "input": "x"})
            counted = await s.client.send("POST", "/v1/responses/input_tokens", body)
            made = await s.client.create(input="x", conversation=name)
            assert counted.json()["input_tokens"] == made.json()["usage"]["input_tokens"]

    asyncio.run(story())


# --- owners, bounds, refusals -----------------------------------------------------------------

ANN, BOB = ({"authorization": f"Bearer {key}"} for key in ("a-key", "b-key"))


def test_another_owner_sees_no_conversation() -> None:
    async def story() -> None:
        async with served(api_keys="ann:a-key,bob:b-key") as s:
            made = await call(s, "POST", PATH, {"items": [USER]}, **ANN)
            name = made.json()["id"]
            item = (await call(s, "GET", f"{PATH}/{name}/items", **ANN)).json()["first_id"]
            body = {"model": "demo", "input": "x", "conversation": name}
            for method, path, sent in (
                ("GET", f"{PATH}/{name}", None),
                ("POST", f"{PATH}/{name}", {"metadata": {}}),
                ("DELETE", f"{PATH}/{name}", None),
                ("GET", f"{PATH}/{name}/items", None),
                ("POST", f"{PATH}/{name}/items", {"items": [USER]}),
                ("GET", f"{PATH}/{name}/items/{item}", None),
                ("DELETE", f"{PATH}/{name}/items/{item}", None),
                ("POST", "/v1/responses", body),
            ):
                refused = await call(s, method, path, sent, **BOB)
                assert refused.status == 404, (method, path)
                assert refused.error["message"] == f"Conversation with id '{name}' not found."
            assert (await call(s, "GET", f"{PATH}/{name}/items", **ANN)).json()["first_id"] == item

    asyncio.run(story())


@pytest.mark.parametrize("path", ["", "/cancel", "/input_items", "?stream=true"])
def test_a_conversation_is_no_response(path: str) -> None:
    async def story() -> None:
        async with served() as s:
            name = await begun(s)
            method = "POST" if path == "/cancel" else "GET"
            assert (await call(s, method, f"/v1/responses/{name}{path}")).status == 404
            assert (await call(s, "DELETE", f"/v1/responses/{name}")).status == 404
            refused = await s.client.create(input="x", previous_response_id=name)
            assert refused.error["code"] == "previous_response_not_found"
            made = (await s.client.create(input="x")).json()["id"]
            assert (await call(s, "GET", f"{PATH}/{made}")).status == 404
            assert (await call(s, "DELETE", f"{PATH}/{made}")).status == 404
            assert (await call(s, "GET", f"{PATH}/{name}")).status == 200

    asyncio.run(story())


def test_there_are_so_many_items_and_no_more() -> None:
    async def story() -> None:
        async with served(conversation_items=3) as s:
            name = await begun(s, items=[USER] * 3)
            refused = await call(s, "POST", f"{PATH}/{name}/items", {"items": [USER]})
            assert refused.error["code"] == "conversation_too_large"

    asyncio.run(story())


CONV = "{conv}"
LONG_NUMBER = b'{"items": [{"role": "user", "content": "x", "zzz": [1%b]}]}' % (b"0" * 400)
"""It can be read once, and never again."""
BAD: list[tuple[str, str, object, int, str | None, str | None]] = [
    ("POST", "", {"items": [USER] * 21}, 400, "invalid_value", "items"),
    ("POST", "", {"items": "x"}, 400, "invalid_value", "items"),
    ("POST", "", {"items": [7]}, 400, "invalid_value", "items[0]"),
    ("POST", "", {"items": [{"type": "nonsense"}]}, 400, "invalid_value", "items[0]"),
    (
        "POST",
        "",
        {"items": [{"role": "king", "content": "x"}]},
        400,
        "invalid_value",
        "items[0].role",
    ),
    (
        "POST",
        "",
        {"items": [{"role": "user"}]},
        400,
        "missing_required_parameter",
        "items[0].content",
    ),
    ("POST", "", {"items": [{"id": "msg_1"}]}, 404, "item_not_found", "items[0].id"),
    ("POST", "", {"items": [result("call_1")]}, 400, "unknown_call_id", "items[0].call_id"),
    ("POST", f"/{CONV}/items", LONG_NUMBER, 400, "invalid_value", "items[0]"),
    ("POST", "", {"metadata": "x"}, 400, "invalid_value", "metadata"),
    ("POST", "", {"metadata": {"k": 7}}, 400, "invalid_value", "metadata.k"),
    ("POST", "", {"metadata": {"k" * 65: "x"}}, 400, "invalid_value", None),
    ("POST", "", {"metadata": {"k": "x" * 513}}, 400, "invalid_value", "metadata.k"),
    ("POST", "", {"metadata": {f"{n}": "x" for n in range(17)}}, 400, "invalid_value", "metadata"),
    ("POST", "", b"{", 400, "invalid_json", None),
    ("POST", "", b"[]", 400, "invalid_value", None),
    ("POST", f"/{CONV}", {}, 400, "missing_required_parameter", "metadata"),
    ("POST", f"/{CONV}", b"", 400, "invalid_json", None),
    ("POST", f"/{CONV}", {"metadata": []}, 400, "invalid_value", "metadata"),
    ("POST", f"/{CONV}/items", {}, 400, "missing_required_parameter", "items"),
    ("POST", f"/{CONV}/items", {"items": None}, 400, "invalid_value", "items"),
    ("POST", f"/{CONV}/items", {"items": [USER] * 21}, 400, "invalid_value", "items"),
    ("GET", f"/{CONV}/items?limit=0", None, 400, "invalid_value", "limit"),
    ("GET", f"/{CONV}/items?limit=101", None, 400, "invalid_value", "limit"),
    ("GET", f"/{CONV}/items?limit=x", None, 400, "invalid_value", "limit"),
    ("GET", f"/{CONV}/items?order=up", None, 400, "invalid_value", "order"),
    ("GET", f"/{CONV}/items?after=msg_1", None, 400, "invalid_value", "after"),
    ("GET", f"/{CONV}/items/msg_1", None, 404, "not_found", "item_id"),
    ("DELETE", f"/{CONV}/items/msg_1", None, 404, "not_found", "item_id"),
    ("GET", "/conv_x", None, 404, "not_found", "conversation"),
    ("POST", "/conv_x", {"metadata": {}}, 404, "not_found", "conversation"),
    ("POST", "/conv_x/items", {"items": [USER]}, 404, "not_found", "conversation"),
    ("GET", "/conv_x/items", None, 404, "not_found", "conversation"),
    ("DELETE", "/conv_x", None, 404, "not_found", "conversation"),
    ("GET", "", None, 405, "method_not_allowed", None),
    ("PUT", f"/{CONV}", {}, 405, "method_not_allowed", None),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code", "param"), BAD)
def test_a_bad_request_is_refused_by_name(
    method: str, path: str, body: object, status: int, code: str | None, param: str | None
) -> None:
    async def story() -> None:
        async with served() as s:
            name = await begun(s)
            refused = await call(s, method, PATH + path.format(conv=name), body)
            assert (refused.status, refused.error["code"]) == (status, code)
            assert param is None or refused.error["param"] == param
            assert await listed(s, name) == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"conversation": "conv_x"}, 404, "not_found", "conversation"),
        ({"conversation": ""}, 400, "invalid_value", "conversation"),
        ({"conversation": 7}, 400, "invalid_value", "conversation"),
        ({"conversation": {}}, 400, "missing_required_parameter", "conversation.id"),
        ({"conversation": {"id": 7}}, 400, "invalid_value", "conversation.id"),
        (
            {"conversation": "conv_x", "previous_response_id": "resp_x"},
            400,
            "mutually_exclusive_parameters",
            "conversation",
        ),
    ],
)
def test_a_bad_conversation_of_a_response_is_refused(
    fields: Json, status: int, code: str, param: str
) -> None:
    async def story() -> None:
        async with served() as s:
            refused = await s.client.create(input="x", **fields)
            assert (refused.status, refused.error["code"]) == (status, code)
            assert refused.error["param"] == param
            assert (await s.client.create(input="x", conversation=await begun(s))).status == 200

    asyncio.run(story())
