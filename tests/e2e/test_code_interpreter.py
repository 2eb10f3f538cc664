"""`code_interpreter` as a user has it: the openai client, a real server, and code in its box."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.boxed import no_box, processes_in
from tests.support.code_server import ENDLESS, ENDLESS_COMMAND, begun
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import script, vocabulary
from tests.support.serving import client_of, listening
from tests.support.story import story

if TYPE_CHECKING:
    from openai.types.responses import Response

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

ROOT = Path(__file__).parents[2]
TOOL: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
TOOLS: Any = {
    "python": TOOL,
    "shell": {"type": "shell", "environment": {"type": "container_auto"}},
}
NEVER_ENDS = {"python": ENDLESS, "shell": ENDLESS_COMMAND}
ANSWER = "<|channel|>final<|message|>Done.<|return|>"


def calling(code: str) -> str:
    return (
        "<|channel|>analysis<|message|>I will compute.<|end|><|start|>assistant"
        f"<|channel|>analysis to=python code<|message|>{code}<|call|>"
    )


def logs_of(response: Response) -> str:
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    assert call.outputs is not None
    return "".join(output.logs for output in call.outputs if output.type == "logs")


@story
async def test_code_runs_streamed_and_plain_and_its_state_lives_on(tmp_path: Path) -> None:
    scripts = [calling("x = 37 * 91\nx"), ANSWER, calling("x + 1"), ANSWER]
    engine = ScriptedEngine([script(text) for text in scripts])
    asked: Any = {"model": "demo", "tools": [TOOL], "include": ["code_interpreter_call.outputs"]}
    async with (
        listening(engine, python="boxed", data_dir=tmp_path) as address,
        client_of(address) as client,
    ):
        async with client.responses.stream(input="37 * 91?", **asked) as stream:
            kinds = [event.type async for event in stream]
            first = await stream.get_final_response()
        assert logs_of(first) == "3367\n"
        assert first.output_text == "Done."
        assert kinds.index("response.code_interpreter_call.completed") < len(kinds) - 1
        second = await client.responses.create(
            input="And one more?", previous_response_id=first.id, **asked
        )
        assert logs_of(second) == "3368\n"
        assert second.output_text == "Done."


@story
async def test_the_model_is_told_the_truth_of_its_box(tmp_path: Path) -> None:
    engine = ScriptedEngine([script(ANSWER)])
    async with (
        listening(engine, python="boxed", python_s=7.0, data_dir=tmp_path) as address,
        client_of(address) as client,
    ):
        await client.responses.create(model="demo", input="Hi", tools=[TOOL])
        counted = await client.responses.input_tokens.count(model="demo", input="Hi", tools=[TOOL])
    told = vocabulary().text(list(engine.requests[0].prompt_ids))
    assert "or time out after 7 seconds" in told
    assert "# Tools\n\n## python\n\nUse this tool" in told
    assert counted.input_tokens == len(engine.requests[0].prompt_ids)


async def asked_of(
    port: int, *, stream: bool, tool: Any = TOOL
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = orjson.dumps({"model": "demo", "input": "Hi", "stream": stream, "tools": [tool]})
    head = f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return reader, writer


@story
async def test_a_client_that_hangs_up_ends_endless_code(tmp_path: Path) -> None:
    engine = ScriptedEngine([script(ENDLESS)])
    async with listening(engine, python="boxed", data_dir=tmp_path) as address:
        reader, writer = await asked_of(address.port, stream=True)
        await reader.readuntil(b"interpreting")
        await until(lambda: bool(begun(tmp_path)))
        writer.close()
        await until(lambda: not processes_in(tmp_path))
    assert not list((tmp_path / "containers").iterdir())


@pytest.mark.parametrize(("tool", "processes"), [("python", 1), ("shell", 3)])
@pytest.mark.parametrize("end", ["cancel", "drain"])
@story
async def test_a_cancel_and_a_drain_end_what_never_ends(
    tmp_path: Path, end: str, tool: str, processes: int
) -> None:
    engine = ScriptedEngine([script(NEVER_ENDS[tool])])
    settings: Any = {tool: "boxed", "data_dir": tmp_path, "drain_s": 0.1}
    async with listening(engine, **settings) as address, client_of(address) as client:
        running = await client.responses.create(
            model="demo", input="Hi", tools=[TOOLS[tool]], background=True
        )
        await until(lambda: bool(begun(tmp_path)))
        assert len(processes_in(tmp_path)) == processes
        if end == "cancel":
            cancelled = await client.responses.cancel(running.id)
            assert cancelled.status == "cancelled"
            await until(lambda: not processes_in(tmp_path))
    assert not processes_in(tmp_path)
    assert not list((tmp_path / "containers").iterdir())


@pytest.mark.parametrize(("tool", "processes"), [("python", 1), ("shell", 3)])
@story
async def test_a_server_that_is_killed_leaves_no_process_and_the_next_no_directory(
    tmp_path: Path, tool: str, processes: int
) -> None:
    """Of a shell: its keeper, the command, and what the command began."""
    for number in range(2):
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.code_server", str(tmp_path), tool),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert server.stdout is not None
            port = int(await server.stdout.readline())
            left = list((tmp_path / "containers").iterdir())
            assert len(left) == 1, "what the last one left is swept"
            assert not begun(tmp_path)
            async with asyncio.timeout(300):
                asking = asyncio.create_task(_ask(port, TOOLS[tool]))
                await until(lambda: bool(begun(tmp_path)))
                assert len(processes_in(tmp_path)) == processes, number
        finally:
            server.kill()
            await server.communicate()
        await until(lambda: not processes_in(tmp_path))
        await asyncio.wait((asking,))


async def _ask(port: int, tool: Any) -> None:
    reader, writer = await asked_of(port, stream=False, tool=tool)
    await reader.read()
    writer.close()
