"""A model with a chat template behind a server like vLLM or SGLang, by its tokeniser's directory.

Budget: 3 s on one core.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import Client, living
from tests.support.id_servers import KINDS, id_server
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import SETTINGS
from tests.support.story import story
from tests.support.tiny_hf import write_tiny_hf
from trt_responses.app import create_app
from trt_responses.backends.dialects import dialect_named
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.errors import UsageError
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

TOOL = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = """<tool_call>
{"name": "get_weather", "arguments": {"city": "Bern"}}
</tool_call><|im_end|>"""
ANSWER = "<think>\nIt snows.\n</think>\n\nSnow.<|im_end|>"


@pytest.mark.parametrize(("kind", "ids"), [("vllm", "token_ids"), ("sglang", "input_ids")])
@story
async def test_qwen_is_served_by_ids_with_calls_thoughts_and_history(
    tmp_path: Path, kind: str, ids: str
) -> None:
    place = write_tiny_hf(tmp_path / "qwen")
    spoken = dialect_named(str(place))
    assert isinstance(spoken, TemplateDialect)
    encode, ends = spoken.tokeniser.encode, spoken.places.stops

    def written(prompt: Any, _: Any) -> Script:
        shown = spoken.tokeniser.text(prompt)
        text = ANSWER if "<tool_response>" in shown else CALL
        return Script(tuple((token_id,) for token_id in encode(text)))

    engine = ScriptedEngine(
        written, clock=StepClock.free(), guides={"json_schema": frozenset(ends)}
    )
    server = KINDS[kind](engine)
    async with id_server(server) as port:
        settings = SETTINGS | {"engine": f"{kind}://127.0.0.1:{port}/demo", "speaks": str(place)}
        app = create_app(Settings(**settings))
        async with living(app):
            client = Client(app)
            called = (await client.create(input="Weather?", tools=[TOOL])).json()
            (call,) = [each for each in called["output"] if each["type"] == "function_call"]
            assert json.loads(call["arguments"]) == {"city": "Bern"}
            result = {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": "snow",
            }
            answered = (
                await client.create(input=[result], previous_response_id=called["id"], tools=[TOOL])
            ).json()
            thought, message = answered["output"]
            assert thought["content"][0]["text"].strip() == "It snows."
            assert message["content"][0]["text"] == "Snow."
        assert server.misuse == []
        stops = [body["sampling_params"].get("stop_token_ids", []) for body in server.bodies]
        size = len(spoken.lexicon.token_bytes)
        assert all(token_id < size for row in stops for token_id in row), "none is gpt-oss's"
        assert all(n < size for body in server.bodies for n in body[ids])


def test_a_directory_that_says_nothing_of_a_model_stops_the_start(tmp_path: Path) -> None:
    for speaks, why in ((tmp_path / "none", "is no directory"), (tmp_path, "config.json")):
        settings = SETTINGS | {"engine": "vllm://127.0.0.1:1/demo", "speaks": str(speaks)}
        with pytest.raises(UsageError, match=why):
            create_app(Settings(**settings))
    place = write_tiny_hf(tmp_path / "qwen")
    settings = SETTINGS | {"engine": "llama-server://127.0.0.1:1/demo", "speaks": str(place)}
    with pytest.raises(UsageError, match="serves gpt-oss alone"):
        create_app(Settings(**settings))
