"""`serve --engine vllm://…` in one command: schemas, forced calls, stored history, Codex, and a
server below that is killed under a response. Over a server in the place of vLLM, and over vLLM's
own where VLLM_PYTHON names a Python that has it.

Budget: 8 s on one core, most of it processes that begin; 2 minutes more with vLLM's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from tests.support.id_servers import server_process
from tests.support.polling import PATIENCE_S
from tests.support.serve_command import Command
from tests.support.vllm_app import PYTHON, vllm_app
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Begin = Callable[[int, str], AbstractAsyncContextManager[tuple[Any, int]]]

pytestmark = pytest.mark.xdist_group("http_engines")  # one process loads its engines


CODEX = shutil.which("codex")
CONFIG = """\
model = "demo"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{url}/v1"
wire_api = "responses"
"""
SCRIPT = """\
rules:
  - when: {result: true}
    say: The word is in the file.
  - when: {text: Write it}
    call: {name: exec_command, arguments: {cmd: echo apple > notes.txt}}
  - when: {text: weather}
    call: {name: get_weather, arguments: auto}
  - when: {text: slowly}
    say: One two three four five six seven eight nine ten.
    pace_s: 0.1
  - say: auto
"""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
FORMAT = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}


@dataclass
class Bench:
    """A server over one in the place of vLLM, whose process and port a test may replace."""

    place: Path
    command: Command
    begin: Begin
    process: Any
    port: int
    runner: asyncio.Runner
    stack: AsyncExitStack

    async def restart(self) -> None:
        """Kill the server below, and start another one on its port."""
        self.process.kill()
        begun = self.begin(self.port, str(self.place / "script.yaml"))
        self.process, _ = await self.stack.enter_async_context(begun)


own = pytest.mark.skipif(PYTHON is None, reason="VLLM_PYTHON names no Python that has vLLM")
SERVERS = [
    pytest.param(partial(server_process, "vllm"), id="double"),
    pytest.param(vllm_app, id="vllm", marks=own),
]


@pytest.fixture(scope="module", params=SERVERS)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    begin: Begin = request.param
    place = tmp_path_factory.mktemp("over-ids")
    script = place / "script.yaml"
    script.write_text(SCRIPT)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        process, port = runner.run(stack.enter_async_context(begin(0, str(script))))
        with _served(place, ("--engine", f"vllm://127.0.0.1:{port}/demo")) as command:
            yield Bench(place, command, begin, process, port, runner, stack)
        runner.run(stack.aclose())


def _served(place: Path, given: tuple[str, ...]) -> Command:
    headers = {f"{PREFIX}ENGINE_HEADERS": "x-session-id={session}"}
    command = Command(place, *given, env={f"{PREFIX}STORE": "memory://", **headers})
    try:
        command.until_ready()
    except BaseException:
        command.stop()
        raise
    return command


async def create(command: Command, **fields: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
        reply = await client.post(f"{command.url}/v1/responses", json={"model": "demo", **fields})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def codex_turn(command: Command, place: Path) -> subprocess.CompletedProcess[str]:
    assert CODEX is not None
    (place / "config.toml").write_text(CONFIG.format(url=command.url))
    work = place / "work"
    work.mkdir()
    return subprocess.run(
        [CODEX, "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "Write it."],
        check=False,
        cwd=work,
        env=os.environ | {"CODEX_HOME": str(place)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_schemas_forced_calls_and_stored_history_over_ids(bench: Bench) -> None:
    async def claim() -> None:
        command = bench.command
        placed = await create(command, input="Where?", text=FORMAT)
        assert json.loads(placed["output"][-1]["content"][0]["text"]) == {"city": "Bern"}
        forced = {"type": "function", "name": "get_weather"}
        called = await create(
            command, input="The weather?", tools=[TOOL], tool_choice=forced, store=True
        )
        (call,) = [item for item in called["output"] if item["type"] == "function_call"]
        assert json.loads(call["arguments"]) == {"city": "Bern"}
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}
        answered = await create(
            command, input=[result], previous_response_id=called["id"], tools=[TOOL]
        )
        assert "in the file" in answered["output"][-1]["content"][0]["text"]

    bench.runner.run(claim())


def test_a_response_goes_on_when_the_server_below_was_killed(bench: Bench) -> None:
    async def claim() -> None:
        said = ""
        body = {"model": "demo", "input": "Count slowly.", "stream": True}
        async with (
            httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client,
            client.stream("POST", f"{bench.command.url}/v1/responses", json=body) as reply,
        ):
            async for line in reply.aiter_lines():
                event = json.loads(line[6:]) if line.startswith("data: {") else {"type": ""}
                if event["type"] != "response.output_text.delta":
                    continue
                if not said:
                    await bench.restart()
                said += event["delta"]
        assert said == "One two three four five six seven eight nine ten."

    bench.runner.run(claim())


@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
def test_codex_runs_a_command_over_ids(bench: Bench) -> None:
    turn = codex_turn(bench.command, bench.place)
    assert turn.returncode == 0, turn.stderr
    assert (bench.place / "work" / "notes.txt").read_text() == "apple\n"
    assert "The word is in the file." in turn.stdout
