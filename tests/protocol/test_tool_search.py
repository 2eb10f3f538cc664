"""`tool_search` and `defer_loading`: tools that the model reads of when a search has found them.

Budget: 2 s on one core.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.responses import Response

from tests.support.asgi import asked
from tests.support.background import ended
from tests.support.sdk_judge import accumulated, refused
from tests.support.served import ANSWER, served
from tests.support.sockets import connected
from trt_responses.accept.responses import accept
from trt_responses.features.tool_search.texts import Index, definitions, listing
from trt_responses.wire.request import Request

Json = dict[str, Any]


def function(name: str, description: str = "", *, later: bool = True, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties}
    sent = {"type": "function", "name": name, "description": description, "parameters": parameters}
    return sent | ({"defer_loading": True} if later else {})


SEARCH: Json = {"type": "tool_search", "execution": "client", "description": "Finds tools."}
MAIL = function("send_mail", "Sends a mail.\nTo one person.", to={"type": "string"})
PLAIN = function("clock", "Tells the time.", later=False)
SPACE = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [function("find", "Finds one."), function("drop", "Drops one.")],
}
TOOLS = [SEARCH, MAIL, PLAIN, SPACE]
SEARCHED = (
    "<|channel|>commentary to=functions.tool_search <|constrain|>json<|message|>"
    '{"query": "mail"}<|call|>'
)
CALLED = (
    '<|channel|>commentary to=functions.send_mail <|constrain|>json<|message|>{"to": "Ann"}<|call|>'
)


def found(call: Json, *tools: Json) -> Json:
    return {
        "type": "tool_search_output",
        "call_id": call["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": list(tools),
    }


def test_deferred_tools_stand_in_the_prompt_by_name_and_a_line() -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            call = await s.client.create(tools=TOOLS)
            assert call.status == 200, call.body
            assert "x-trt-ignored" not in call.headers
            assert "x-trt-dropped-tools" not in call.headers
            prompt = s.prompt_text()
            assert "send_mail: Sends a mail." in prompt
            assert "crm: Customers." in prompt
            assert "type clock =" in prompt
            for hidden in ("type send_mail =", "To one person", "crm__find", "Drops one"):
                assert hidden not in prompt

    asyncio.run(story())


@pytest.mark.parametrize("way", ["plain", "stream", "background", "stateless"])
def test_what_the_client_s_search_finds_is_called(way: str) -> None:
    fields: Json = {"tools": TOOLS, "store": way != "stateless"}

    async def story() -> None:
        async with served(SEARCHED, CALLED) as s:
            if way == "stream":
                call = await s.client.create(stream=True, **fields)
                for event in call.events:
                    assert refused(event) is None, event
                first = call.events[-1]["response"]
            elif way == "background":
                started = (await s.client.create(background=True, **fields)).json()
                first = await ended(s, started["id"])
            else:
                first = (await s.client.create(**fields)).json()
            Response.model_validate(first)
            (search,) = first["output"]
            assert search["type"] == "tool_search_call"
            assert search["execution"] == "client"
            assert search["arguments"] == {"query": "mail"}
            before = s.prompt_text()
            output = found(search, MAIL, function("new_one", "Brand new."))
            more: Json = {"input": [output], "previous_response_id": first["id"]}
            if way == "stateless":
                more = {"input": [{"role": "user", "content": "Hello"}, search, output]}
            second = await s.client.create(**fields | more)
            assert second.status == 200, second.body
            assert second.json()["output"][0]["name"] == "send_mail"
            prompt = s.prompt_text()
            assert "You can call these functions now:" in prompt
            assert "To one person." in prompt
            if way != "stateless":
                assert prompt.startswith(before), "the prefix of ids is kept"
            items = (await s.client.get(f"/v1/responses/{second.json()['id']}/input_items")).json()
            if way != "stateless":
                assert items["data"][0]["type"] == "tool_search_output"

    asyncio.run(story())


def test_a_tool_that_the_request_does_not_have_is_called_when_it_was_found() -> None:
    new = "<|channel|>commentary to=functions.crm__new <|constrain|>json<|message|>{}<|call|>"
    space = {"type": "namespace", "name": "crm", "description": "", "tools": [function("new")]}

    async def story() -> None:
        async with served(SEARCHED, new, new) as s:
            first = (await s.client.create(tools=[SEARCH])).json()
            output = found(first["output"][0], space)
            chained: Json = {"tools": [SEARCH], "previous_response_id": first["id"]}
            second = (await s.client.create(input=[output], **chained)).json()
            (called,) = second["output"]
            assert (called["namespace"], called["name"]) == ("crm", "new")
            result = {"type": "function_call_output", "call_id": called["call_id"], "output": "ok"}
            chained["previous_response_id"] = second["id"]
            third = (await s.client.create(input=[result], **chained)).json()
            assert third["output"][0]["name"] == "new", "an earlier search counts"

    asyncio.run(story())


def test_2000_tools_are_a_short_list_and_the_right_one_is_found() -> None:
    words = ("invoice", "ticket", "weather", "order", "photo")
    tools = [
        function(f"{words[n % 5]}_tool_{n}", f"Handles {words[n % 5]} {n}") for n in range(2000)
    ]
    tools[1234] = function("create_invoice_draft", "Creates a draft of an invoice for a customer.")
    accepted = accept(Request.model_validate({"input": "x", "tools": [SEARCH, *tools]}))
    listed = listing(accepted.tools)
    assert len(listed.splitlines()) == 102
    assert "1900 more" in listed
    best = Index(accepted.tools).find("draft an invoice")
    assert best[0].name == "create_invoice_draft"
    assert json.dumps(best[0].parameters) in definitions(best)
    assert not Index(accepted.tools).find("qwertz")


@pytest.mark.parametrize("query", ["письмо", "天気を知りたい", "météo ?"])
def test_words_of_any_alphabet_find_a_tool(query: str) -> None:
    about = {"mail": "Отправляет письмо.", "sky": "東京の天気", "forecast": "La météo."}
    named = {"письмо": "mail", "天気を知りたい": "sky", "météo ?": "forecast"}
    tools = [function(name, text) for name, text in about.items()]
    accepted = accept(Request.model_validate({"input": "x", "tools": [SEARCH, *tools]}))
    assert Index(accepted.tools).find(query)[0].name == named[query]


SERVER = {"type": "tool_search"}


@pytest.mark.parametrize("way", ["plain", "stream", "background"])
def test_the_server_searches_and_the_model_calls_what_it_found(way: str) -> None:
    async def story() -> None:
        async with served(SEARCHED, CALLED, ANSWER) as s:
            fields: Json = {"tools": [SERVER, *TOOLS[1:]]}
            if way == "stream":
                events = (await s.client.create(stream=True, **fields)).events
                for event in events:
                    assert refused(event) is None, event
                types = [item["type"] for item in accumulated(events)]
                assert types == [i["type"] for i in events[-1]["response"]["output"]]
                first = events[-1]["response"]
            elif way == "background":
                started = (await s.client.create(background=True, **fields)).json()
                first = await ended(s, started["id"])
            else:
                first = (await s.client.create(**fields)).json()
            Response.model_validate(first)
            search, output, call = first["output"]
            assert (search["type"], search["execution"]) == ("tool_search_call", "server")
            assert search["arguments"] == {"query": "mail"}
            assert (output["type"], output["status"]) == ("tool_search_output", "completed")
            assert [tool["name"] for tool in output["tools"]] == ["send_mail"]
            assert (call["type"], call["name"]) == ("function_call", "send_mail")
            one, two = s.prompt_text(0), s.prompt_text(1)
            assert two.startswith(one), "the prefix of ids is kept"
            assert "To one person." in two.removeprefix(one)
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
            chained = {"previous_response_id": first["id"], "input": [result]}
            last = (await s.client.create(**fields | chained)).json()
            assert last["output"][0]["content"][0]["text"] == "Hello there, friend."
            assert s.prompt_text().startswith(two)
            items = [{"role": "user", "content": "Hello"}, *first["output"], result]
            replayed = await s.client.create(**fields | {"input": items, "store": False})
            assert replayed.status == 200, replayed.body
            assert "To one person." in s.prompt_text()

    asyncio.run(story())


def test_a_search_that_finds_nothing_says_so_and_a_wrong_one_too() -> None:
    wrong = SEARCHED.replace('"query": "mail"', '"words": 1')
    nothing = SEARCHED.replace("mail", "qwertz")

    async def story() -> None:
        async with served(wrong, nothing, ANSWER) as s:
            last = (await s.client.create(tools=[SERVER, *TOOLS[1:]])).json()
            assert [item["type"] for item in last["output"]] == [
                *("tool_search_call", "tool_search_output") * 2,
                "message",
            ]
            assert "Give a 'query'" in s.prompt_text(1)
            assert "No tool was found" in s.prompt_text(2)

    asyncio.run(story())


def test_a_search_comes_back_with_arguments_of_any_size() -> None:
    search = {"type": "tool_search_call", "arguments": {"query": "mail", "most": 2**70}}

    async def story() -> None:
        async with served(ANSWER) as s:
            body = asked(input=[search, {"role": "user", "content": "Go on."}])
            call = await s.client.send("POST", "/v1/responses", json.dumps(body).encode())
            assert call.status == 200, call.body
            assert f'{{"query":"mail","most":{2**70}}}' in s.prompt_text()

    asyncio.run(story())


@pytest.mark.parametrize("tool", [SEARCH, SERVER], ids=["client", "server"])
def test_a_number_of_more_than_64_bits_in_a_search_is_a_float(tool: Json) -> None:
    big = SEARCHED.replace('"mail"', f'"mail", "limit": {2**70}')

    async def story() -> None:
        async with served(big, ANSWER) as s:
            last = (await s.client.create(tools=[tool, *TOOLS[1:]])).json()
            assert last["output"][0]["arguments"] == {"query": "mail", "limit": 2.0**70}

    asyncio.run(story())


@pytest.mark.parametrize("execution", ["client", "server"])
def test_over_a_socket_too(execution: str) -> None:
    async def story() -> None:
        async with served(SEARCHED, CALLED) as s, connected(s.app) as socket:
            tools = [SEARCH | {"execution": execution}, *TOOLS[1:]]
            events = await socket.answer(input="Hello", tools=tools)
            last = events[-1]["response"]
            Response.model_validate(last)
            assert last["output"][0]["type"] == "tool_search_call"
            if execution == "client":
                again = found(last["output"][0], MAIL)
                more = {"tools": tools, "previous_response_id": last["id"]}
                last = (await socket.answer(input=[again], **more))[-1]["response"]
            assert last["output"][-1]["name"] == "send_mail"
            wish = {"stream_options": {"resumable_seconds": 5}}
            (refusal,) = await socket.answer(input="Hello", store=False, **wish)
            assert refusal["error"]["param"] == "stream_options.resumable_seconds"

    asyncio.run(story())
