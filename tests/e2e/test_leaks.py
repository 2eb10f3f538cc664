"""The gate of leaks: responses of all kinds leave nothing behind, though clients hang up, sockets
vanish and tools die."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import tempfile
import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.asgi import until
from tests.support.floods import UPGRADE, text
from tests.support.hostile_http import SERVER
from tests.support.mcp_served import calling, offer
from tests.support.processes import children_of
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, ENDLESS, SETTINGS, THOUGHT, script, vocabulary
from tests.support.serving import our_server
from tests.support.story import story
from trt_responses.app import create_app
from trt_responses.settings import Settings
from trt_responses.web.framework import App

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions

TOOLS = {"calm": "as others", "dying": "die", "silent": "silent"}
"""MCP servers, each a process for each response, and how it behaves in a call."""
GRACE_S = 15.0
"""For what is over to be gone; a machine that is busy takes seconds to end a process."""
WARM = 2
"""Rounds until what is made once is made: threads of the pool, connections of the store."""


def answers(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """A call of the tool until it was answered, an endless text, or a short one."""
    prompt = vocabulary().text(list(prompt_ids)[-64:])
    for label in TOOLS:
        if f"CALL {label}" in prompt:
            return script(calling("add").replace("demo", label))
    return ENDLESS if "LONG" in prompt else script(THOUGHT if "THINK" in prompt else ANSWER)


class Client:
    """Clients of one server, over sockets of their own."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(
        self, path: str = "/v1/responses", *, leave_at: bytes | None = None, **fields: object
    ) -> bytes:
        """The reply to a body; with `leave_at`, the client hangs up when that has come."""
        body = json.dumps({"model": "demo"} | fields).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        sent = f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
        return await self._sent(sent, leave_at)

    async def call(self, label: str, **fields: Any) -> bytes:
        """The reply to a request that has the model call a tool of this server."""
        tools = [offer(server_label=label)]
        return await self.ask(input=f"CALL {label}", tools=tools, max_tool_calls=1, **fields)

    async def talk(self) -> bytes:
        """The reply to a response in a conversation of its own."""
        made = await self.ask("/v1/conversations")
        (name,) = re.findall(rb'"id":"(conv_\w+)"', made)
        return await self.ask(input="Hello", conversation=name.decode())

    async def vanish(self) -> None:
        """A WebSocket that is reset while a response runs."""
        await self._sent(UPGRADE, b"\r\n\r\n", text(input="LONG"), b"output_text.delta")

    async def _sent(self, sent: bytes, leave_at: bytes | None, *more: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(sent)
            if leave_at is None:
                return await reader.read()
            heard = await reader.readuntil(leave_at)
            if more:
                writer.write(more[0])
                await reader.readuntil(more[1])
            writer.transport.abort()
            return heard
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def kinds(client: Client) -> list[Callable[[], Awaitable[object]]]:
    """Responses, each another way."""
    user = [{"role": "user", "content": "Hello"}]
    long = [{"role": "user", "content": "LONG"}]
    chat, message = "/v1/chat/completions", "/v1/messages"
    say: dict[str, Any] = {"input": "Hello"}
    delta = b"output_text.delta"
    return [
        lambda: client.ask(**say),
        lambda: client.ask(**say, store=False),
        lambda: client.ask(**say, stream=True),
        lambda: client.ask(input="THINK", stream=True, include=["reasoning.encrypted_content"]),
        lambda: client.ask(**say, background=True),
        lambda: client.ask(**say, background=True, stream=True),
        lambda: client.ask(input="LONG", stream=True, leave_at=delta),
        lambda: client.ask(input="LONG", stream=True, leave_at=delta, store=False),
        lambda: client.ask(input="LONG", background=True, stream=True, leave_at=delta),
        lambda: client.ask(input="LONG", max_output_tokens=16),
        lambda: client.ask(chat, messages=user),
        lambda: client.ask(chat, messages=user, stream=True),
        lambda: client.ask(chat, messages=long, stream=True, leave_at=b'"content":" word'),
        lambda: client.ask(message, messages=user, max_tokens=64),
        lambda: client.ask(message, messages=user, max_tokens=64, stream=True),
        lambda: client.ask(input=5),
        lambda: client.ask(**say, previous_response_id="resp_none"),
        lambda: client.ask(**say, text={"format": {"type": "json_object"}}),
        lambda: client.ask("/v1/responses/input_tokens", **say),
        lambda: client.ask("/v1/responses/compact", input=user),
        lambda: client.ask("/v2/models/demo/generate", text_input="Hello"),
        client.talk,
        *(partial(client.call, label) for label in ("calm", "dying")),
        partial(client.call, "silent", stream=True, leave_at=b"mcp_call_arguments.done"),
        client.vanish,
    ]


class Held(NamedTuple):
    """What a process holds."""

    children: frozenset[int]
    descriptors: int
    tasks: int
    threads: int
    files: frozenset[str]

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        return cls(
            frozenset(children_of(os.getpid())),
            len(os.listdir("/proc/self/fd")),
            len(asyncio.all_tasks()),
            threading.active_count(),
            frozenset(os.listdir(tempfile.gettempdir())),
        )

    def leaves(self, before: Held) -> dict[str, object]:
        """What is there now and was not before."""
        more = {
            "children": self.children - before.children,
            "descriptors": max(0, self.descriptors - before.descriptors),
            "tasks": max(0, self.tasks - before.tasks),
            "threads": max(0, self.threads - before.threads),
            "files": self.files - before.files,
        }
        return {name: left for name, left in more.items() if left}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Client, Callable[[], bool]]]:
    """A server with these tools; clients of it, and whether nothing runs on it."""
    servers = folder / "servers.json"
    entries = {
        label: {"command": sys.executable, "args": [str(SERVER), how]}
        for label, how in TOOLS.items()
    }
    servers.write_text(json.dumps(entries))
    settings = Settings(
        **SETTINGS,
        port=0,
        data_dir=folder,
        store=f"sqlite:///{folder / 'history.db'}",
        mcp_servers=servers,
        max_background=1000,
        log_level="error",
    )
    engine = ScriptedEngine(answers, clock=StepClock.free(), keep_records=1)
    app = create_app(settings, engine=engine)
    async with our_server(app, settings) as server:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield (
            Client(port),
            lambda: not len(app.state.runs) and not server.server_state.connections,
        )


async def fill_pool() -> None:
    """Have all threads of asyncio's pool begin: it adds them as calls happen to overlap."""
    most = min(32, (os.cpu_count() or 1) + 4)
    together = threading.Barrier(most)
    await asyncio.gather(*(asyncio.to_thread(together.wait, GRACE_S) for _ in range(most)))


async def left_by(folder: Path, rounds: int) -> dict[str, object]:
    """What so many rounds of responses leave in a server."""
    async with served(folder) as (client, is_idle):
        before = None
        for number in range(WARM + rounds):
            if number == WARM:
                before = Held.now()
            await asyncio.gather(*(kind() for kind in kinds(client)))
            await until(is_idle)
        assert before is not None
        with suppress(TimeoutError):  # children are ended by the kernel, in its time
            async with asyncio.timeout(GRACE_S):
                await until(lambda: not Held.now().leaves(before))
        return Held.now().leaves(before)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary directory of its own: other tests write to the usual one meanwhile."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is asked for again


@story
async def test_responses_leave_nothing(tmp_path: Path) -> None:
    assert await left_by(tmp_path, rounds=8) == {}


@pytest.mark.early(34)
@pytest.mark.slow  # 2,000 responses
@story
async def test_two_thousand_responses_leave_nothing(tmp_path: Path) -> None:
    assert await left_by(tmp_path, rounds=100) == {}


@story
async def test_servers_that_have_ended_leave_nothing(tmp_path: Path) -> None:
    async def life() -> None:
        async with served(tmp_path) as (client, is_idle):
            await asyncio.gather(*(kind() for kind in kinds(client)))
            await until(is_idle)

    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, App) for one in gc.get_objects())

    await fill_pool()
    await life()
    before, apps = Held.now(), alive()
    for _ in range(3):
        await life()
    assert Held.now().leaves(before) == {}
    assert alive() <= apps
