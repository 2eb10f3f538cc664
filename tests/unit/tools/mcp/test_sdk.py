"""Connections to MCP servers that behave badly, and the names of the SDK that are used."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, cast

import mcp_types
import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client import streamable_http
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from tests.support.asgi import until
from tests.support.hostile_http import SERVER, hostile_http
from tests.support.hostile_mcp import BROKEN
from tests.support.idle import beside, idle, left_to_do
from tests.support.processes import children_of, is_alive
from tests.support.sampled import sampled
from tests.support.story import story
from tests.support.turns import turn
from trt_responses.tools.fetch_guard import Reach
from trt_responses.tools.mcp.limits import Fault, Limits
from trt_responses.tools.mcp.sdk import STAND_INS, Connection, messages
from trt_responses.tools.mcp.servers import Local, Remote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

REACH = Reach((ip_network("127.0.0.0/8"),), None)
GONE_S = 30.0
TURN_S = 1.0
"""Others wait no longer; a reply of 300 MB that is read whole takes five times as long."""
FAULTS = {
    "parts": "more than 1000 parts",
    "mute": "no answer within 0.75 seconds",
    "silent list": "no answer within 0.75 seconds",
    "silent": "no answer within 0.5 seconds",
    "deaf": "no answer within 0.5 seconds",
    "pings": "more than 1000 messages",
    "pings by CR": "more than 1000 messages",
    "slow pings": "no answer within 0.5 seconds",
    "flood": "more than 1048576 bytes",
    "long": "more than 1048576 bytes",
    "die": "Connection closed|ended without a response",
    "cursor": "more than 50 pages",
    "many": "more than 2000 tools",
}
UNREADABLE = dict.fromkeys(BROKEN, "a reply that cannot be read") | {"no number": "What?"}


def limits(how: str) -> Limits:
    """Short where the deadline is what ends it."""
    return Limits(
        connect_s=0.75 if how in ("mute", "stubborn", "silent list") else 20.0,
        call_s=0.5 if how in ("silent", "deaf", "slow pings") else 20.0,
    )


async def use(connection: Connection, text: str = "") -> None:
    await connection.tools()
    await connection.call("add", {"text": text})


@asynccontextmanager
async def connected(how: str, transport: str) -> AsyncIterator[Connection]:
    if transport == "stdio":
        local = Local(sys.executable, (str(SERVER), how), {}, None, False)
        yield Connection(local, limits(how), REACH)
        return
    async with hostile_http(how) as url:
        yield Connection(Remote(url, {}), limits(how), REACH)


CASES = [  # only a pipe fills up, and has lines
    (how, transport)
    for how in FAULTS
    for transport in ("stdio", "http")
    if (how, transport) not in {("deaf", "http"), ("pings by CR", "stdio")}
]


@sampled("how, transport", CASES, every=3, ids=map("-".join, CASES))  # 7 s: processes, deadlines
@story
async def test_a_bad_server_is_told_of_in_time_and_gone_soon(how: str, transport: str) -> None:
    tasks, children = asyncio.all_tasks(), set(children_of(os.getpid()))
    async with connected(how, transport) as connection:
        async with beside() as others:
            with pytest.raises(Fault, match=FAULTS[how]):
                await use(connection, "x" * 500_000 if how == "deaf" else "")
            async with asyncio.timeout(GONE_S):
                await connection.ended()
        assert others.count > 100
        assert others.longest_s < TURN_S
        assert connection.is_gone
        await until(lambda: asyncio.all_tasks() == tasks)
    assert set(children_of(os.getpid())) <= children
    assert await idle(), left_to_do()


@pytest.mark.parametrize("how", UNREADABLE)
@story
async def test_a_reply_that_cannot_be_read_is_a_fault_at_once(how: str) -> None:
    """The deadline would be a fault of other words. The lines before it are no replies."""
    async with connected(how, "stdio") as connection:
        with pytest.raises(Fault, match=re.escape(UNREADABLE[how])):
            await use(connection)
        assert not connection.over
        await connection.ended()


class FirstIsShort:
    """Limits with a short deadline for the first call alone."""

    connect_s, max_bytes, max_messages, max_pages = 20.0, 1 << 20, 1000, 50

    def __init__(self) -> None:
        self._left = [20.0, 0.5]

    @property
    def call_s(self) -> float:
        return self._left.pop()


@story
async def test_a_call_that_is_late_ends_no_other_call_of_a_shared_process() -> None:
    local = Local(sys.executable, (str(SERVER), "held"), {}, None, True)
    connection = Connection(local, cast("Limits", FirstIsShort()), REACH)
    await connection.tools()
    late, other = (asyncio.ensure_future(connection.call("add", {})) for _ in range(2))
    with pytest.raises(Fault, match=r"no answer within 0\.5 seconds"):
        await late
    assert connection.over
    assert (await other).content[0]["text"] == "late"
    await until(lambda: connection.is_gone)


DEEP = {"a": json.loads("[" * 300 + "]" * 300)}


@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, DEEP], ids=["half a character", "deep"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@story
async def test_arguments_that_cannot_be_sent_end_no_connection(
    arguments: dict[str, Any], transport: str
) -> None:
    """Others may be using it."""
    async with connected("", transport) as connection:
        await connection.tools()
        with pytest.raises(Fault, match="arguments cannot be sent"):
            await connection.call("add", arguments)
        assert not connection.over
        assert (await connection.call("add", {})).content[0]["text"] == "called add"
        await connection.ended()


@story
async def test_a_reply_that_cannot_be_read_fails_no_other_call_than_its_own() -> None:
    waiting = {3, 4}
    (fault,) = messages(b'{"jsonrpc":"2.0","id":3,"result":{"id":4,"a":"\\ud800"}}', waiting)
    assert (fault.id, waiting) == (3, {4})  # type: ignore[union-attr]
    assert messages(b'{"id": 5, "result": []}', waiting) == []
    assert messages(b'[{"id": 4}] was logged', waiting) == []
    (fault,) = messages(b'{"jsonrpc":"2.0",', waiting)
    assert (fault.id, waiting) == (4, set())  # type: ignore[union-attr]


@story
async def test_what_a_child_writes_to_standard_error_is_logged_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        local = Local(sys.executable, (str(SERVER), "complains"), {}, None, False, "demo")
        connection = Connection(local, limits(""), REACH)
        await use(connection)
        await connection.ended()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "MCP server demo:  [31mIt hurts"
    assert any("more lines of its log" in line for line in lines)
    assert len(lines) < 100


@story
async def test_a_program_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    for command, cwd in (("not-there", None), ("./not-there", str(tmp_path)), ("/", None)):
        connection = Connection(Local(command, (), {}, cwd, False), limits(""), REACH)
        with pytest.raises(Fault, match="cannot be started: No such file or directory"):
            await connection.tools()
        await connection.ended()


BEGINS = f"""
import asyncio, sys
from trt_responses.tools.mcp.process import ServerProcess
from trt_responses.tools.mcp.servers import Local

async def main():
    at = Local(sys.executable, ({str(SERVER)!r}, "mute"), {{}}, None, False)
    child = await ServerProcess.begin(at, {{}})
    print(child._child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@story
async def test_a_child_that_reads_nothing_ends_with_a_server_that_is_killed() -> None:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", BEGINS, stdout=pipe)
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    assert is_alive(pid)
    server.kill()
    await server.wait()
    await until(lambda: not is_alive(pid))


@pytest.mark.slow  # 3 s: it waits until the child is killed
@story
async def test_a_child_that_heeds_no_signal_is_gone_soon() -> None:
    async with connected("stubborn", "stdio") as connection:
        with pytest.raises(Fault, match="no answer"):
            await connection.tools()
        async with asyncio.timeout(GONE_S):
            await connection.ended()
        assert connection.is_gone


@story
async def test_what_spins_is_seen() -> None:
    """The judge of the test above: a callback that schedules itself, as a cancel scope that was
    left in another task does."""
    assert not left_to_do()
    loop, spins = asyncio.get_running_loop(), True

    def again() -> None:
        if spins:
            loop.call_soon(again)

    again()
    for _ in range(3):
        await turn()
        assert left_to_do()
    spins = False
    assert await idle(), left_to_do()


async def _children() -> None:
    async with connected("names", "stdio") as good:
        assert len(await good.tools()) == 2
        await good.ended()
    async with connected("flood", "stdio") as bad:
        with pytest.raises(Fault):
            await bad.call("add", {})
        await bad.ended()


def test_nothing_of_a_child_outlives_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    unraised: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda fault: unraised.append(str(fault.exc_value)))
    asyncio.run(_children())
    gc.collect()
    assert unraised == []


def parameters(of: Callable[..., object]) -> set[str]:
    return set(inspect.signature(of).parameters)


def test_the_sdk_has_the_names_that_are_used_of_it() -> None:
    assert {"server", "cache"} <= parameters(Client)
    assert "cursor" in parameters(Client.list_tools)
    assert list(inspect.signature(Client.call_tool).parameters)[1:3] == ["name", "arguments"]
    assert callable(ClientSession.validate_tool_result)
    assert {"url", "http_client"} <= parameters(streamable_http_client)
    assert {"PATH", "HOME"} >= get_default_environment().keys() & {"PATH", "HOME"} != set()
    assert {"tools", "next_cursor"} <= mcp_types.ListToolsResult.model_fields.keys()
    assert {
        *("name", "description", "input_schema", "annotations")
    } <= mcp_types.Tool.model_fields.keys()
    assert {
        *("content", "structured_content", "is_error")
    } <= mcp_types.CallToolResult.model_fields.keys()
    source = inspect.getsource(streamable_http)
    assert all(f'message="{words}"' in source for words in STAND_INS)
    assert 'message=f"Failed to parse' in source
    fault = MCPError(code=-32001, message="Late.")
    assert (fault.code, fault.message) == (-32001, "Late.")
    line = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    message = SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    told = json.loads(message.message.model_dump_json(by_alias=True, exclude_unset=True))
    assert told == json.loads(line)
