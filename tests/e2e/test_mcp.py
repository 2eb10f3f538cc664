"""`mcp` as a user has it: the openai client, a real server, MCP servers over both transports."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import BadRequestError

from tests.support.hostile_mcp import LONG, ODD
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import script, vocabulary
from tests.support.serving import client_of, listening
from tests.support.story import story
from trt_responses.engines.llamacpp.engine import LlamaCppEngine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
HOSTILE = SERVER.with_name("hostile_mcp.py")
ADD = (
    "<|channel|>analysis<|message|>I will add.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.demo__add <|constrain|>json<|message|>"
    '{"a": 1, "b": 2}<|call|>'
)
DELETE = (
    "<|channel|>commentary to=functions.demo__delete <|constrain|>json<|message|>"
    '{"path": "/a"}<|call|>'
)
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
DEMO: Any = {"type": "mcp", "server_label": "demo", "require_approval": "never"}
CALL = [
    "response.output_item.added",
    "response.mcp_call.in_progress",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.mcp_call.completed",
    "response.output_item.done",
]


def engine_of(*texts: str) -> ScriptedEngine:
    return ScriptedEngine([script(text) for text in texts])


def prompt_of(engine: ScriptedEngine, turn: int = -1) -> str:
    return vocabulary().text(list(engine.requests[turn].prompt_ids))


def file_of(tmp_path: Path, **server: Any) -> Path:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"demo": server}}))
    return path


def stdio(tmp_path: Path, **more: Any) -> Path:
    return file_of(tmp_path, command=sys.executable, args=[str(SERVER)], **more)


def hostile(tmp_path: Path, how: str, **more: Any) -> Path:
    return file_of(tmp_path, command=sys.executable, args=[str(HOSTILE), how], **more)


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    """The URL of a server of the SDK's own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVER),
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    try:
        while b"Uvicorn running" not in (line := await child.stderr.readline()):
            assert line, "the MCP server did not start"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        child.kill()
        await child.wait()


def kinds_of(events: list[Any], index: int) -> list[str]:
    kinds = [e.type for e in events if getattr(e, "output_index", None) == index]
    return [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]


@story
async def test_a_tool_of_a_process_is_called_within_the_response(tmp_path: Path) -> None:
    engine = engine_of(ADD, ANSWER, ANSWER)
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        async with client.responses.stream(model="demo", input="1 + 2?", tools=[DEMO]) as stream:
            events = [event async for event in stream]
            last = await stream.get_final_response()
        listed, _, call, message = last.output
        assert listed.type == "mcp_list_tools"
        assert listed.server_label == "demo"
        assert [tool.name for tool in listed.tools] == ["add", "delete", "fail", "draw"]
        assert kinds_of(events, 0) == [
            "response.output_item.added",
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.completed",
            "response.output_item.done",
        ]
        assert kinds_of(events, 2) == CALL
        assert call.type == "mcp_call"
        assert (call.name, call.server_label) == ("add", "demo")
        assert (call.output, call.error, call.status) == ("1 + 2 = 3", None, "completed")
        assert json.loads(call.arguments) == {"a": 1, "b": 2}
        assert message.type == "message"
        shown = prompt_of(engine, 0)
        assert "// Adds two numbers.\ntype demo__add = (_: {" in shown
        assert prompt_of(engine, 1).endswith(
            ADD[ADD.index("<|channel|>commentary") :]
            + "<|start|>functions.demo__add to=assistant<|channel|>commentary<|message|>1 + 2 = 3"
            "<|end|><|start|>assistant"
        )
        later = await client.responses.create(
            model="demo", input="Thanks.", tools=[DEMO], previous_response_id=last.id
        )
        assert [item.type for item in later.output] == ["message"]
        # The call is on commentary, and so stays; the list is not fetched again.
        assert "1 + 2 = 3<|end|>" in prompt_of(engine)


@story
async def test_plain_equals_streamed_over_http_with_a_url_of_the_requests(tmp_path: Path) -> None:
    async with over_http() as url:
        tool: Any = DEMO | {
            "server_url": url,
            "authorization": "s3cret-token",
            "headers": {"x-secret": "s3cret-header"},
            "allowed_tools": {"read_only": True},
        }
        engine = engine_of(ADD, ANSWER)
        async with (
            listening(engine, mcp_urls=(url,), private_networks=("127.0.0.0/8",)) as address,
            client_of(address) as client,
        ):
            raw = await client.responses.with_raw_response.create(
                model="demo", input="1 + 2?", tools=[tool]
            )
            last = raw.parse()
            listed, _, call, _ = last.output
            assert listed.type == "mcp_list_tools"
            assert [one.name for one in listed.tools] == ["add"]
            assert call.type == "mcp_call"
            assert call.output == "1 + 2 = 3"
            assert b"s3cret" not in raw.content
            stored = await client.responses.with_raw_response.retrieve(last.id)
            assert b"s3cret" not in stored.content


@pytest.mark.parametrize("stores", [True, False], ids=["stored", "stateless"])
@story
async def test_a_call_waits_for_its_approval_and_runs_once(tmp_path: Path, stores: bool) -> None:
    engine = engine_of(DELETE, ANSWER)
    tool: Any = {"type": "mcp", "server_label": "demo"}
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        asked: Any = {"model": "demo", "tools": [tool], "store": stores}
        question: Any = {"role": "user", "content": "Delete /a."}
        first = await client.responses.create(input=[question], **asked)
        assert first.status == "completed"
        request = first.output[-1]
        assert request.type == "mcp_approval_request"
        assert (request.name, json.loads(request.arguments)) == ("delete", {"path": "/a"})
        assert len(engine.requests) == 1
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }
        history = [question, *(item.to_dict() for item in first.output)]
        if stores:
            more: Any = {"input": [approval], "previous_response_id": first.id}
        else:
            more = {"input": [*history, approval]}
        second = await client.responses.create(**more, **asked)
        call, message = second.output
        assert call.type == "mcp_call"
        assert (call.output, call.approval_request_id) == ("/a is gone", request.id)
        assert message.type == "message"
        assert len(engine.requests) == 2
        # A client that carries no reasoning has the call written anew, in canonical form.
        written = DELETE if stores else DELETE[DELETE.index("<|message|>") :]
        assert prompt_of(engine).endswith(
            written + "<|start|>functions.demo__delete to=assistant<|channel|>commentary<|message|>"
            "/a is gone<|end|><|start|>assistant"
        )
        assert second.usage is not None
        assert second.usage.input_tokens == len(engine.requests[1].prompt_ids) - 2
        assert prompt_of(engine).count("<|call|>") == 1
        with pytest.raises(BadRequestError, match="has been answered before"):
            await client.responses.create(**more, **asked)


@story
async def test_a_call_that_is_not_approved_is_told_to_the_model(tmp_path: Path) -> None:
    engine = engine_of(DELETE, ANSWER)
    tool: Any = {"type": "mcp", "server_label": "demo"}
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        first = await client.responses.create(model="demo", input="Delete /a.", tools=[tool])
        denial: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": first.output[-1].id,
            "approve": False,
            "reason": "Not that one.",
        }
        second = await client.responses.create(
            model="demo", input=[denial], tools=[tool], previous_response_id=first.id
        )
        assert [item.type for item in second.output] == ["message"]
        assert prompt_of(engine).endswith(
            "<|start|>functions.demo__delete to=assistant<|channel|>commentary<|message|>"
            "Not approved. Not that one.<|end|><|start|>assistant"
        )


@story
async def test_an_approval_of_other_arguments_than_were_asked_for_is_refused(
    tmp_path: Path,
) -> None:
    engine = engine_of(DELETE, ANSWER)
    asked: Any = {
        "model": "demo",
        "tools": [{"type": "mcp", "server_label": "demo"}],
        "store": False,
    }
    question: Any = {"role": "user", "content": "Delete /a."}
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        first = await client.responses.create(input=[question], **asked)
        request: Any = first.output[-1].to_dict()
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request["id"],
            "approve": True,
        }
        for change in ({"arguments": '{"path": "/"}'}, {"name": "fail"}):
            with pytest.raises(BadRequestError) as fault:
                await client.responses.create(input=[question, request | change, approval], **asked)
            assert fault.value.param == "input[2].approval_request_id"
        assert len(engine.requests) == 1


@story
async def test_what_fails_is_told_apart_and_told_to_the_model(tmp_path: Path) -> None:
    failing = ADD.replace("demo__add", "demo__fail").replace('{"a": 1, "b": 2}', "{}")
    drawing = failing.replace("demo__fail", "demo__draw")
    broken = ADD.replace('"b": 2}', "")
    engine = engine_of(failing, broken, drawing, ANSWER)
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        last = await client.responses.create(model="demo", input="Go.", tools=[DEMO])
        raised, misread, drawn = (item for item in last.output if item.type == "mcp_call")
        assert raised.status == misread.status == "failed"
        assert raised.error is not None
        assert misread.error is not None
        assert (raised.error.type, raised.output) == ("mcp_tool_execution_error", None)
        assert (misread.error.type, misread.output) == ("mcp_protocol_error", None)
        assert drawn.output == "[image image/png, 30 bytes: left out]"
        assert "Error parsing tool arguments as JSON" in prompt_of(engine, 2)


@pytest.mark.parametrize("stores", [True, False], ids=["stored", "stateless"])
@pytest.mark.parametrize("name", [ODD, LONG], ids=["odd", "long"])
@story
async def test_a_tool_whose_name_is_no_functions_can_be_approved(
    tmp_path: Path, name: str, stores: bool
) -> None:
    shown = {ODD: "odd_name_read", LONG: ("long_" + "x" * 80)[:64]}[name]
    engine = engine_of(ADD.replace("demo__add", f"demo__{shown}"), ANSWER)
    tool: Any = {"type": "mcp", "server_label": "demo"}
    async with (
        listening(engine, mcp_servers=hostile(tmp_path, "names")) as address,
        client_of(address) as client,
    ):
        asked: Any = {"model": "demo", "tools": [tool], "store": stores}
        question: Any = {"role": "user", "content": "Read."}
        first = await client.responses.create(input=[question], **asked)
        request = first.output[-1]
        assert request.type == "mcp_approval_request"
        assert request.name == name
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }
        if stores:
            more: Any = {"input": [approval], "previous_response_id": first.id}
        else:
            history = [item.to_dict() for item in first.output]
            more = {"input": [question, *history, approval]}
        second = await client.responses.create(**more, **asked)
        call = second.output[0]
        assert call.type == "mcp_call"
        assert (call.name, call.output) == (name, f"called {name}")
        told = f"<|start|>functions.demo__{shown} to=assistant<|channel|>commentary<|message|>"
        assert f"{told}called {name}<|end|>" in prompt_of(engine)
        called = re.findall(r"to=functions\.demo__([^ <]+)", prompt_of(engine))
        assert called == [shown]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("silent", "Error: The server gave no answer within 0.5 seconds."),
        ("die", "Error: Connection closed"),
        ("flood", "Error: The server sent more than 1048576 bytes and was disconnected."),
    ],
)
@story
async def test_the_model_is_told_of_a_bad_server(tmp_path: Path, how: str, why: str) -> None:
    engine = engine_of(ADD, ANSWER)
    async with (
        listening(engine, mcp_servers=hostile(tmp_path, how, timeout_s=0.5)) as address,
        client_of(address) as client,
    ):
        last = await client.responses.create(model="demo", input="Go.", tools=[DEMO])
        assert last.status == "completed"
        call = next(item for item in last.output if item.type == "mcp_call")
        assert call.status == "failed"
        assert f"<|channel|>commentary<|message|>{why}<|end|>" in prompt_of(engine)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("many", "The server has more than 2000 tools."),
        ("cursor", "The server's list has more than 50 pages."),
        (
            "equal",
            "The server's tools 'a.b' and 'a/b' both have the name 'demo__a_b' for the model",
        ),
    ],
)
@story
async def test_a_list_that_cannot_be_offered_is_told_and_the_response_goes_on(
    tmp_path: Path, how: str, why: str
) -> None:
    engine = engine_of(ANSWER)
    async with (
        listening(engine, mcp_servers=hostile(tmp_path, how)) as address,
        client_of(address) as client,
    ):
        last = await client.responses.create(model="demo", input="Go.", tools=[DEMO])
        listed, message = last.output
        assert listed.type == "mcp_list_tools"
        assert why in str(listed.error)
        assert message.type == "message"
        assert "demo__" not in prompt_of(engine)


@story
async def test_what_a_server_says_is_no_structure_of_the_prompt(tmp_path: Path) -> None:
    engine = engine_of(ANSWER)
    async with (
        listening(engine, mcp_servers=hostile(tmp_path, "words")) as address,
        client_of(address) as client,
    ):
        await client.responses.create(model="demo", input="Go.", tools=[DEMO])
    plain = engine_of(ANSWER)
    async with (
        listening(plain, mcp_servers=hostile(tmp_path, "silent")) as address,
        client_of(address) as client,
    ):
        await client.responses.create(model="demo", input="Go.", tools=[DEMO])
    told = [list(one.requests[0].prompt_ids) for one in (engine, plain)]
    marks = [[i for i in ids if vocabulary().is_control(i)] for ids in told]
    assert marks[0] == marks[1]
    lines = prompt_of(engine).splitlines()
    assert not [line for line in lines if line.startswith(("Obey", "now"))]
    assert lines.count("# Tools") == 0  # ours stands behind a mark
    assert lines.count("## functions") == 1


@story
async def test_a_servers_tool_can_be_chosen(tmp_path: Path) -> None:
    engine = engine_of("{}<|call|>", ANSWER)  # the header is forced; it reads no guides
    choice: Any = {"type": "mcp", "server_label": "demo", "name": "fail"}
    async with (
        listening(engine, mcp_servers=stdio(tmp_path)) as address,
        client_of(address) as client,
    ):
        with pytest.raises(BadRequestError):
            await client.responses.create(
                model="demo", input="Go.", tools=[DEMO], tool_choice=choice | {"server_label": "x"}
            )
        last = await client.responses.create(
            model="demo", input="Go.", tools=[DEMO], tool_choice=choice
        )
        assert last.status == "completed"
        assert last.output[-1].type == "message"
        call = next(item for item in last.output if item.type == "mcp_call")
        assert call.name == "fail"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/elsewhere",
        "http://127.0.0.1:9/mcp/../x",
        "http://user@127.0.0.1:9/mcp",
        "https://127.0.0.1:9/mcp",
    ],
)
@story
async def test_a_url_that_is_not_allowed_is_refused(url: str) -> None:
    async with (
        listening(engine_of(ANSWER), mcp_urls=("http://127.0.0.1:9/mcp",)) as address,
        client_of(address) as client,
    ):
        tool: Any = DEMO | {"server_url": url}
        with pytest.raises(BadRequestError) as fault:
            await client.responses.create(model="demo", input="Go.", tools=[tool])
        assert fault.value.param == "tools[0].server_url"


@pytest.mark.xdist_group("embedded")
@story
async def test_a_models_own_arguments_are_those_that_the_tool_lists(
    tmp_path: Path, demo_gguf: Path
) -> None:
    """Nothing is scripted. Left to itself, this model writes a city where a tool takes nothing."""
    engine = LlamaCppEngine(demo_gguf, context_tokens=2048, slots=1, threads=1)
    asked: Any = {"model": "demo", "tools": [DEMO], "max_tool_calls": 1, "max_output_tokens": 100}
    async with (
        listening(engine, mcp_servers=stdio(tmp_path, shared=True)) as address,
        client_of(address) as client,
    ):
        for name, members in (("add", {"a", "b"}), ("draw", set())):
            last = await client.responses.create(
                input="What is 37 plus 91?",
                tool_choice={"type": "mcp", "server_label": "demo", "name": name},
                extra_body={"seed": 1},
                **asked,
            )
            (call,) = [item for item in last.output if item.type == "mcp_call"]
            assert json.loads(call.arguments).keys() == members
            assert (call.name, call.status, call.error) == (name, "completed", None)
