"""The demo as a bare graph, from nothing to answers: `serve --engine demo-onnx` prepares it first.

The same weights as the embedded engine's, computed by onnxruntime, asked by the real `openai`
client. Budget: 15 s on one core, for one server.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI

from scripts.demo.wordings import SOURCE
from tests.support.serving import child
from trt_responses.backends.engines import engine_of
from trt_responses.engines.tensorrt.cuda import runtime
from trt_responses.errors import StartupError
from trt_responses.prepare.shelf.shelf import select
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CAPITAL = {
    "type": "object",
    "properties": {"country": {"type": "string"}, "capital": {"type": "string"}},
    "required": ["country", "capital"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": CAPITAL}}
QUESTION = "What is the capital of France?"
ANSWERS = {
    QUESTION: "The capital of France is Paris.",
    "Repeat after me: green apple": "green apple",
    "Count from 3 to 7": "3, 4, 5, 6, 7",
    "What is 12 + 7?": "12 + 7 = 19.",
    "My name is Anna.": "Nice to meet you, Anna.",
}


class Demo:
    """The served model, asked greedily."""

    def __init__(self, base_url: str) -> None:
        self.client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="-", max_retries=0)

    async def asked(self, question: str, **options: Any) -> Any:
        given: dict[str, Any] = {"model": "demo-onnx", "input": question, "temperature": 0}
        return await self.client.responses.create(**given | options)

    async def answers_at_once(self) -> None:
        """Five on four slots, of different lengths: each as it would be alone."""
        told = await asyncio.gather(*(self.asked(question) for question in ANSWERS))
        assert {q: made.output_text for q, made in zip(ANSWERS, told, strict=True)} == ANSWERS
        assert all(made.status == "completed" for made in told)

    async def finds_a_prefix_again(self) -> None:
        first = await self.asked(QUESTION)
        again = await self.asked("And of Spain?", previous_response_id=first.id)
        assert again.usage.input_tokens_details.cached_tokens > 64
        assert again.status == "completed"

    async def calls_a_forced_function_and_reads_its_result(self) -> None:
        tools: dict[str, Any] = {"tools": [WEATHER]}
        made = await self.asked("What is the weather in Tokyo?", tool_choice="required", **tools)
        call = made.output[-1]
        assert (call.type, call.name) == ("function_call", "get_weather")
        assert json.loads(call.arguments) == {"city": "Tokyo"}
        sunny = json.dumps({"temperature": 21, "condition": "sunny"})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": sunny}
        told = await self.asked("", input=[result], previous_response_id=made.id, **tools)
        assert told.output_text == "It is sunny and 21 degrees in Tokyo."

    async def answers_in_a_form(self) -> None:
        made = await self.asked(f"{QUESTION} Answer as JSON.", text=FORMAT)
        assert json.loads(made.output_text) == {"country": "France", "capital": "Paris"}

    async def streams(self) -> None:
        deltas = [
            event.delta
            async for event in await self.asked(QUESTION, stream=True)
            if event.type == "response.output_text.delta"
        ]
        assert len(deltas) > 3
        assert "".join(deltas) == ANSWERS[QUESTION]


@pytest.mark.early(17)
def test_the_demo_is_prepared_served_and_right_on_onnxruntime(tmp_path: Path) -> None:
    engines = tmp_path / "engines"
    shutil.copytree(SOURCE, engines / "demo-source")
    arguments = ("--engine", "demo-onnx", "--engines-dir", str(engines), "--port", "0")

    async def story() -> None:
        settings = {"TRT_RESPONSES_THREADS": "1"}
        async with child("serve", *arguments, environment=settings) as server:
            demo = Demo((await server.ready()).url)
            await demo.answers_at_once()
            await demo.finds_a_prefix_again()
            await demo.calls_a_forced_function_and_reads_its_result()
            await demo.answers_in_a_form()
            await demo.streams()
            await demo.client.close()
            server.signal(signal.SIGTERM)
            status, _, said = await server.ended()
            assert status == 0, said

    asyncio.run(story())
    asyncio.run(plans_are_refused_without_a_gpu(engines))


async def plans_are_refused_without_a_gpu(engines: Path) -> None:
    """The same engine as if it had been compiled: its start names what is missing, and the way
    out."""
    selection = select(engines, "demo-onnx")
    compiled = replace(selection.card, kind="tensorrt")
    engine = engine_of(selection._replace(card=compiled), Settings())
    status, count = runtime().cudaGetDeviceCount()
    if status.value == 0 and count:
        return
    with pytest.raises(StartupError, match=r"run on an NVIDIA GPU .* KIND=onnx\.$"):
        await engine.start()
    assert not engine.health().ready
    await engine.stop(5)
