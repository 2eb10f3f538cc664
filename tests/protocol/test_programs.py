"""Programs of the model that call the client's tools.

Budget: 20 s on one core.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import Response

from tests.support.background import ended
from tests.support.boxed import no_box
from tests.support.scripted_tool import ScriptedTool
from tests.support.sdk_judge import accumulated, refused
from tests.support.served import ANSWER, KEYED, served
from tests.support.sockets import connected
from trt_responses.backends.stores import store_of
from trt_responses.settings import Settings
from trt_responses.stores.whole import says_nothing

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

BOXED = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
PROGRAMS: Json = {"type": "programmatic_tool_calling"}
STOCK: Json = {
    "type": "function",
    "name": "stock",
    "description": "Tells how many are left.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    "output_schema": {"type": "object", "properties": {"left": {"type": "integer"}}},
    "allowed_callers": ["programmatic"],
}
ORDER: Json = {
    "type": "function",
    "name": "order",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    "allowed_callers": ["direct", "programmatic"],
}
TOOLS = [PROGRAMS, STOCK, ORDER]
CODE = """\
import asyncio
items = ["lamp", "desk"]
found = await asyncio.gather(*(tools.stock(item=one) for one in items))
low = min(zip(items, found), key=lambda pair: pair[1]["left"])[0]
print(low, await tools.order(item=low))
"""


def program(code: str) -> str:
    return (
        "<|channel|>commentary to=functions.programmatic_tool_calling <|constrain|>json<|message|>"
        f"{json.dumps({'code': code})}<|call|>"
    )


def outputs(items: list[Json], **by_item: str) -> list[Json]:
    """What a client gives for the calls among some items."""
    return [
        {
            "type": "function_call_output",
            "call_id": one["call_id"],
            "caller": one["caller"],
            "output": by_item[json.loads(one["arguments"])["item"]],
        }
        for one in items
        if one["type"] == "function_call"
    ]


STOCKS = {"lamp": '{"left": 3}', "desk": '{"left": 1}'}


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
@pytest.mark.parametrize("way", ["plain", "stream", "background", "stateless"])
def test_a_program_s_calls_go_to_the_client_and_its_result_to_the_model(way: str) -> None:
    fields: Json = {"tools": TOOLS, "store": way != "stateless"}

    async def story() -> None:
        async with served(program(CODE), ANSWER, python="boxed") as s:

            async def create(**more: Any) -> Json:
                if way == "background":
                    started = (await s.client.create(background=True, **fields | more)).json()
                    return await ended(s, started["id"])
                call = await s.client.create(stream=way == "stream", **fields | more)
                assert call.status == 200, call.body
                if way != "stream":
                    return call.json()
                for event in call.events:
                    assert refused(event) is None, event
                last: Json = call.events[-1]["response"]
                assert [one["type"] for one in accumulated(call.events)] == [
                    one["type"] for one in last["output"]
                ]
                return last

            history: list[Json] = [{"role": "user", "content": "Order what is low."}]

            async def go_on(last: Json, sent: list[Json]) -> Json:
                if way == "stateless":
                    history.extend((*last["output"], *sent))
                    return await create(input=history)
                return await create(input=sent, previous_response_id=last["id"])

            first = await create(input=history)
            Response.model_validate(first)
            wrote, *calls = first["output"]
            assert (first["status"], wrote["type"], wrote["code"]) == ("completed", "program", CODE)
            assert [(one["name"], json.loads(one["arguments"])) for one in calls] == [
                ("stock", {"item": "lamp"}),
                ("stock", {"item": "desk"}),
            ]
            caller = {"type": "program", "caller_id": wrote["call_id"]}
            assert all(one["caller"] == caller for one in calls)
            second = await go_on(first, outputs(calls, **STOCKS))
            Response.model_validate(second)
            (call,) = second["output"]
            assert (call["name"], call["arguments"]) == ("order", '{"item": "desk"}')
            assert call["caller"] == caller
            third = await go_on(second, outputs([call], desk="ordered"))
            Response.model_validate(third)
            result, answer = third["output"]
            assert (result["type"], result["status"]) == ("program_output", "completed")
            assert (result["result"], result["call_id"]) == ("desk ordered\n", wrote["call_id"])
            assert answer["content"][0]["text"] == "Hello there, friend."
            assert len(s.engine.requests) == 2, "the model writes and reads once"
            prompt = s.prompt_text()
            assert '"left": 3' not in prompt, "what a program reads is no part of the prompt"
            assert prompt.endswith(
                "<|start|>functions.programmatic_tool_calling to=assistant<|channel|>commentary"
                "<|message|>desk ordered\n<|end|><|start|>assistant"
            )
            fourth = await go_on(third, [{"role": "user", "content": "Thanks"}])
            assert fourth["output"][0]["type"] == "message"
            assert "desk ordered" in s.prompt_text()
            assert '"left": 3' not in s.prompt_text()

    asyncio.run(story())


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
def test_programs_go_on_over_a_socket_and_on_another_server(tmp_path: Path) -> None:
    async def story() -> None:
        settings = Settings(store=f"sqlite:///{tmp_path / 'history.db'}")
        shared: Json = {"python": "boxed", **KEYED}
        store = store_of(settings, says_nothing)
        async with (
            served(program(CODE), store=store, **shared) as one,
            connected(one.app) as socket,
        ):
            events = await socket.answer(input="Order what is low.", tools=TOOLS)
            first = events[-1]["response"]
        sent = outputs(first["output"], **STOCKS)
        for each in sent:
            del each["caller"]  # the id of the call says whose it is
        store = store_of(settings, says_nothing)
        async with served(ANSWER, store=store, **shared) as other, connected(other.app) as socket:
            more: Json = {"tools": TOOLS, "previous_response_id": first["id"]}
            second = (await socket.answer(input=sent, **more))[-1]["response"]
            more["previous_response_id"] = second["id"]
            sent = outputs(second["output"], desk="ordered")
            third = (await socket.answer(input=sent, **more))[-1]["response"]
            assert third["output"][0]["result"] == "desk ordered\n"

    asyncio.run(story())


@BOXED
def test_a_program_that_fails_says_so_and_the_conversation_goes_on() -> None:
    code = "left = await tools.stock(item='lamp')\nprint('before')\nleft['none']"

    async def story() -> None:
        async with served(program(code), ANSWER, python="boxed") as s:
            first = (await s.client.create(tools=TOOLS)).json()
            sent = outputs(first["output"], **STOCKS)
            more: Json = {"tools": TOOLS, "previous_response_id": first["id"]}
            second = (await s.client.create(input=sent, **more)).json()
            Response.model_validate(second)
            result = second["output"][0]
            assert result["status"] == "incomplete"
            assert result["result"].startswith("before\nTraceback")
            assert "line 3, in <module>\n    left['none']" in result["result"]
            more["previous_response_id"] = second["id"]
            third = await s.client.create(input="And now?", **more)
            assert third.status == 200, third.body
            assert "KeyError: 'none'" in s.prompt_text(), "the model still reads it"

    asyncio.run(story())


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
def test_a_program_without_calls_ends_in_its_own_response() -> None:
    code = (
        "import asyncio, datetime, time\n"
        "async def main():\n"
        "    began = datetime.datetime.now()\n"
        "    await asyncio.sleep(3600)\n"
        "    print((datetime.datetime.now() - began).seconds, time.time() > 1e9)\n"
        "asyncio.run(main())\n"
        "40 + 2"
    )

    async def story() -> None:
        async with served(program(code), ANSWER, python="boxed") as s:
            events = (await s.client.create(stream=True, tools=[PROGRAMS])).events
            for event in events:
                assert refused(event) is None, event
            wrote, result, answer = events[-1]["response"]["output"]
            assert set(wrote) == {"id", "call_id", "code", "fingerprint", "type"}
            assert set(result) == {"id", "call_id", "result", "status", "type"}
            assert (result["result"], result["status"]) == ("3600 True\n42\n", "completed")
            assert (result["call_id"], answer["type"]) == (wrote["call_id"], "message")
            items = [{"role": "user", "content": "x"}, wrote, result]
            again = await s.client.create(input=items, tools=[PROGRAMS], store=False)
            assert again.status == 200, again.body
            assert "3600 True\n42" in s.prompt_text(), "history without a model's ids"
            containers = (await s.client.get("/v1/containers")).json()
            assert containers["data"] == [], "nothing is left of a program"

    asyncio.run(story())


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
def test_a_program_that_makes_other_calls_is_ended() -> None:
    code = "import uuid\nprint(await tools.stock(item='lamp', key=str(uuid.uuid4())))"

    async def story() -> None:
        async with served(program(code), ANSWER, python="boxed") as s:
            first = (await s.client.create(tools=TOOLS)).json()
            sent = outputs(first["output"], **STOCKS)
            more: Json = {"tools": TOOLS, "previous_response_id": first["id"]}
            result = (await s.client.create(input=sent, **more)).json()["output"][0]
            assert result["status"] == "incomplete"
            assert "run again, it did not repeat its calls of stock" in result["result"]

    asyncio.run(story())


FORGED = {
    "a call": (
        "import asyncio\n"
        "tools.waiting.append({'name': 'none', 'text': ''})\n"
        "await asyncio.Event().wait()"
    ),
    "half a character": (
        "import os\n"
        """os.write(1, b'{"result": "\\\\ud800", "failed": true}')\n"""
        "os.dup2(os.open('x', 65), 1)"
    ),
    "deep": "import os\nos.write(1, b'[' * 3000)",
}


@pytest.mark.slow  # starts interpreters in their boxes
@pytest.mark.parametrize("code", FORGED.values(), ids=FORGED)
@BOXED
def test_what_a_program_forges_is_no_call(code: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with served(program(code), ANSWER, python="boxed") as s:
            made = (await s.client.create(tools=TOOLS)).json()
            _, result, answer = made["output"]
            assert (result["status"], answer["type"]) == ("incomplete", "message"), result
        assert "Traceback" not in caplog.text

    asyncio.run(story())


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
def test_tools_of_namespaces_and_custom_tools_are_called_by_their_names() -> None:
    note = {"type": "custom", "name": "note", "allowed_callers": ["programmatic"]}
    find = ORDER | {"name": "find"}
    tools = [PROGRAMS, note, {"type": "namespace", "name": "crm", "tools": [find]}]
    code = "print(await tools.crm__find(item='a'), await tools.note('b'))"

    async def story() -> None:
        async with served(program(code), ANSWER, python="boxed") as s:
            first = (await s.client.create(tools=tools)).json()
            call = first["output"][1]
            assert (call["namespace"], call["name"]) == ("crm", "find")
            more: Json = {"tools": tools, "previous_response_id": first["id"]}
            events = (
                await s.client.create(
                    stream=True, input=outputs(first["output"], a="found"), **more
                )
            ).events
            for event in events:
                assert refused(event) is None, event
            second = events[-1]["response"]
            (call,) = second["output"]
            assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "note", "b")
            more["previous_response_id"] = second["id"]
            parts = [{"type": "input_text", "text": "kept"}]
            sent = [
                {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": parts}
            ]
            third = (await s.client.create(input=sent, **more)).json()
            assert third["output"][0]["result"] == "found kept\n"

    asyncio.run(story())


def test_a_tool_for_programs_alone_is_hidden_and_its_direct_call_answered() -> None:
    direct = "<|channel|>commentary to=functions.stock <|constrain|>json<|message|>{}<|call|>"

    async def story() -> None:
        async with served(direct, ANSWER, tools=[ScriptedTool()]) as s:
            call = await s.client.create(tools=TOOLS)
            assert call.status == 200, call.body
            assert "x-trt-dropped-tools" not in call.headers
            assert [one["type"] for one in call.json()["output"]][-1] == "message"
            assert "There is no tool named 'functions.stock'." in s.prompt_text()
            prompt = s.prompt_text(0)
            for shown in ("type programmatic_tool_calling =", "type order =", "tools.stock:"):
                assert shown in prompt
            for hidden in ("type stock =", "## python", "type python ="):
                assert hidden not in prompt

    asyncio.run(story())


def test_a_program_can_be_forced_beside_the_python_tool() -> None:
    code = {"type": "code_interpreter", "container": {"type": "auto"}}

    async def story() -> None:
        for choice, begun in (
            ("programmatic_tool_calling", "commentary to=functions.programmatic_tool_calling"),
            ("code_interpreter", "analysis to=python"),
        ):
            async with served("1<|call|>", ANSWER, tools=[ScriptedTool("1")]) as s:
                fields: Json = {"tools": [code, *TOOLS], "tool_choice": {"type": choice}}
                call = await s.client.create(**fields)
                assert call.status == 200, call.body
                assert "## python" in s.prompt_text(0)
                prompts = [s.prompt_text(n) for n in range(len(s.engine.requests))]
                assert any(begun in one.rpartition("<|start|>")[2] for one in prompts)

    asyncio.run(story())


class McpServers(ScriptedTool):
    """Servers of tools that no request gets to."""

    kind = "mcp"


@pytest.mark.parametrize(
    ("tools", "more", "param"),
    [
        ([PROGRAMS, STOCK | {"allowed_callers": ["nobody"]}], {}, "tools[1].allowed_callers"),
        ([PROGRAMS, STOCK | {"allowed_callers": "direct"}], {}, "tools[1].allowed_callers"),
        (
            [PROGRAMS, {"type": "apply_patch", "allowed_callers": ["programmatic"]}],
            {},
            "tools[1].allowed_callers",
        ),
        (
            [PROGRAMS, {"type": "mcp", "server_label": "a", "allowed_callers": ["programmatic"]}],
            {},
            "tools[1].allowed_callers",
        ),
        (
            TOOLS,
            {"tool_choice": {"type": "function", "name": "stock"}},
            "tool_choice",
        ),
        (
            TOOLS,
            {
                "input": [
                    {
                        "type": "program",
                        "id": "p",
                        "call_id": "c",
                        "code": "open('x')",
                        "fingerprint": "1.x",
                    }
                ]
            },
            "input",
        ),
    ],
)
def test_what_programs_cannot_do_is_refused_by_name(
    tools: list[Json], more: Json, param: str
) -> None:
    async def story() -> None:
        async with served(ANSWER, tools=[ScriptedTool(), McpServers()]) as s:
            call = await s.client.create(**{"input": "Hello", "tools": tools} | more)
            assert call.status == 400, call.body
            assert call.json()["error"]["param"] == param
            assert not s.engine.requests

    asyncio.run(story())


@pytest.mark.slow  # starts interpreters in their boxes
@BOXED
def test_a_program_waits_for_all_its_outputs_and_is_the_server_s_own() -> None:
    async def story() -> None:
        async with served(program(CODE), ANSWER, python="boxed") as s:
            first = (await s.client.create(tools=TOOLS)).json()
            more: Json = {"tools": TOOLS, "previous_response_id": first["id"]}
            one, two = outputs(first["output"], **STOCKS)
            missing = await s.client.create(input=[one], **more)
            assert missing.status == 400
            assert (
                f"the output of its call '{two['call_id']}'" in missing.json()["error"]["message"]
            )
            wrote, *calls = first["output"]
            changed = wrote | {"code": "print(1)"}
            items = [{"role": "user", "content": "x"}, changed, *calls, one, two]
            forged = await s.client.create(input=items, tools=TOOLS)
            assert forged.status == 400
            assert "this server wrote no such program" in forged.json()["error"]["message"]
            assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_without_python_the_tool_is_dropped_as_other_hosted_ones_are() -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            call = await s.client.create(tools=TOOLS)
            assert call.status == 200, call.body
            assert call.headers["x-trt-dropped-tools"] == "programmatic_tool_calling"

    asyncio.run(story())
