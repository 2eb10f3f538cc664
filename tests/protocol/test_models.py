"""The names by which the one model is asked for."""

from __future__ import annotations

import asyncio

import orjson

from tests.support.asgi import JSON
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import served


def test_a_model_answers_to_its_aliases_and_says_its_own_name() -> None:
    async def story() -> None:
        async with served(model=("demo", "gpt-5", "openai/demo")) as s:
            for name in ("demo", "gpt-5", "openai/demo"):
                reply = await s.client.create(model=name)
                assert (reply.status, reply.json()["model"]) == (200, "demo")
                card = (await s.client.get(f"/v1/models/{name}")).json()
                assert (card["id"], card["root"]) == (name, "demo")
            listed = (await s.client.get("/v1/models")).json()["data"]
            assert [card["id"] for card in listed] == ["demo", "gpt-5", "openai/demo"]
            refused = await s.client.create(model="claude-opus-5")
            assert (refused.status, refused.error["code"]) == (404, "model_not_found")

    asyncio.run(story())


def test_a_model_answers_to_every_name_where_the_operator_says_so() -> None:
    async def story() -> None:
        async with served(model="*") as s:
            reply = await s.client.create(model="claude-haiku-5")
            assert (reply.status, reply.json()["model"]) == (200, "demo")
            assert len((await s.client.get("/v1/models")).json()["data"]) == 1

    asyncio.run(story())


def test_an_adapter_is_a_model_of_its_own_in_the_list_the_answer_and_the_record() -> None:
    async def story() -> None:
        async with served(model=("demo", "gpt-5"), adapters=("legal", "style")) as s:
            listed = {
                card["id"]: card for card in (await s.client.get("/v1/models")).json()["data"]
            }
            assert list(listed) == ["demo", "gpt-5", "demo:legal", "demo:style"]
            own = listed["demo:style"]
            assert (own["root"], own["parent"]) == ("demo:style", "demo")
            assert "parent" not in listed["demo"]
            for name in ("demo:style", "gpt-5:style"):
                reply = (await s.client.create(model=name)).json()
                kept = (await s.client.get(f"/v1/responses/{reply['id']}")).json()
                told = (await s.client.get(f"/v1/responses/{reply['id']}/explain")).json()
                assert {reply["model"], kept["model"], told["model"]} == {"demo:style"}
                assert s.last.options.adapter == "style"
                card = (await s.client.get(f"/v1/models/{name}")).json()
                assert (card["id"], card["root"]) == (name, "demo:style")
            again = await s.client.create(model="demo", previous_response_id=reply["id"])
            assert (again.json()["model"], s.last.options.adapter) == ("demo", None)

    asyncio.run(story())


def test_every_api_knows_an_adapter_by_its_name() -> None:
    async def story() -> None:
        async with served(adapters=("style",)) as s:
            messages = [{"role": "user", "content": "Hello"}]
            body = orjson.dumps({"model": "demo:style", "max_tokens": 50, "messages": messages})
            for path in ("/v1/chat/completions", "/v1/messages"):
                reply = await s.client.send("POST", path, body)
                assert (reply.status, reply.json()["model"]) == (200, "demo:style")
                assert s.last.options.adapter == "style"
            queued = (await s.client.create(model="demo:style", background=True)).json()
            assert queued["model"] == "demo:style"
            for path in ("/v1/responses/input_tokens", "/v1/responses/compact"):
                sent = orjson.dumps({"model": "demo:style", "input": messages})
                assert (await s.client.send("POST", path, sent)).status == 200

    asyncio.run(story())


def test_an_unknown_adapter_is_refused_as_an_unknown_model() -> None:
    async def story() -> None:
        async with served(adapters=("style",)) as s:
            for name in (
                "demo:",
                "demo:other",
                ":style",
                "style",
                "other:style",
                "demo:style:style",
            ):
                refused = await s.client.create(model=name)
                assert (refused.status, refused.error["code"]) == (404, "model_not_found"), name
                assert (await s.client.get(f"/v1/models/{name}")).status == 404
            assert "'demo', 'demo:style'" in refused.error["message"]
        async with served(adapters=("style",), model="*") as s:
            reply = await s.client.create(model="demo:other")
            assert (reply.json()["model"], s.last.options.adapter) == ("demo", None)

    asyncio.run(story())


def test_a_name_with_a_colon_is_a_name_and_may_have_an_adapter() -> None:
    async def story() -> None:
        async with served(model="gpt-oss:20b", adapters=("20b", "style")) as s:
            for name, adapter in (("gpt-oss:20b", None), ("gpt-oss:20b:style", "style")):
                reply = await s.client.create(model=name)
                assert (reply.json()["model"], s.last.options.adapter) == (name, adapter)

    asyncio.run(story())


def test_owners_and_adapters_share_no_cached_prefix() -> None:
    async def story() -> None:
        async with served(adapters=("style",), api_keys=("ann:one", "bob:two")) as s:
            salts = set()
            for key in ("one", "two"):
                for model in ("demo", "demo:style"):
                    headers = JSON | {"authorization": f"Bearer {key}"}
                    body = orjson.dumps({"model": model, "input": "Hello"})
                    reply = await s.client.send("POST", "/v1/responses", body, headers)
                    assert reply.status == 200
                    salts.add(s.last.options.salt)
            assert len(salts) == 4

    asyncio.run(story())


def test_the_tools_that_the_server_runs_are_listed_as_a_request_names_them() -> None:
    async def story() -> None:
        async with served(tools=[ScriptedTool("42")]) as s:
            (tool,) = (await s.client.get("/v1/models")).json()["data"][0]["tools"]
            assert tool == {"type": "code_interpreter", "container": {"type": "auto"}}
            assert (await s.client.create(tools=[tool])).status == 200
        async with served() as s:
            assert "tools" not in (await s.client.get("/v1/models")).json()["data"][0]

    asyncio.run(story())
