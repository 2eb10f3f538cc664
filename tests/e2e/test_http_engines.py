"""`serve --engine vllm://…` in one command: schemas, forced calls, stored history, Codex, and a
server below that is killed under a response.

Budget: 8 s on one core, most of it processes that begin.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from tests.support.id_servers import server_process
from tests.support.polling import PATIENCE_S
from tests.support.serve_command import Command
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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


@asynccontextmanager
async def over(kind: str, place: Path) -> AsyncIterator[tuple[Command, Any, int]]:
    """A server over one in the place of vLLM or SGLang, with the process and port of that."""
    script = place / "script.yaml"
    script.write_text(SCRIPT)
    async with server_process(kind, script=str(script)) as (process, port):
        given = ("--engine", f"{kind}://127.0.0.1:{port}/demo")
        with await asyncio.to_thread(_served, place, given) as command:
            yield command, process, port


def _served(place: Path, given: tuple[str, ...]) -> Command:
    command = Command(place, *given, env={f"{PREFIX}STORE": "memory://"})
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


@pytest.mark.slow  # processes
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_schemas_forced_calls_and_stored_history_over_ids(kind: str, tmp_path: Path) -> None:
    async def claim() -> None:
        async with over(kind, tmp_path) as (command, _, _):
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

    asyncio.run(claim())


@pytest.mark.slow  # processes
def test_a_response_goes_on_when_the_server_below_was_killed(tmp_path: Path) -> None:
    async def claim() -> None:
        async with over("vllm", tmp_path) as (command, process, port):
            said = ""
            body = {"model": "demo", "input": "Count slowly.", "stream": True}
            async with (
                AsyncExitStack() as stack,
                httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client,
                client.stream("POST", f"{command.url}/v1/responses", json=body) as reply,
            ):
                async for line in reply.aiter_lines():
                    event = json.loads(line[6:]) if line.startswith("data: {") else {"type": ""}
                    if event["type"] != "response.output_text.delta":
                        continue
                    if not said:
                        process.kill()
                        script = str(tmp_path / "script.yaml")
                        await stack.enter_async_context(server_process("vllm", port, script))
                    said += event["delta"]
            assert said == "One two three four five six seven eight nine ten."

    asyncio.run(claim())


@pytest.mark.slow  # Codex starts
@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
def test_codex_runs_a_command_over_ids(tmp_path: Path) -> None:
    async def claim() -> None:
        async with over("vllm", tmp_path) as (command, _, _):
            turn = await asyncio.to_thread(codex_turn, command, tmp_path)
            assert turn.returncode == 0, turn.stderr
            assert (tmp_path / "work" / "notes.txt").read_text() == "apple\n"
            assert "The word is in the file." in turn.stdout

    asyncio.run(claim())
