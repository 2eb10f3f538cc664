"""How the models of each first family write a turn, and what their templates make of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pytest

from tests.support.asgi import JSON
from tests.support.template_families import checkpoint
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.asgi import Call, Json
    from tests.support.served import Served


class Writes(NamedTuple):
    """How the models of a family write a turn, as their template would."""

    thought: str
    call: str
    one_argument: str
    end: str
    stop: str

    def calling(self, name: str, **arguments: str) -> str:
        """A turn that calls."""
        if self.one_argument:
            body = "".join(self.one_argument.format(*pair) for pair in arguments.items())
        else:
            body = json.dumps(arguments, ensure_ascii=False)
        return self.thought.format("I look.") + self.call.format(name, body) + self.end

    def answering(self, text: str) -> str:
        return self.thought.format("I know.") + text + self.stop


WRITES = {
    "qwen3": Writes(
        "<think>\n{}\n</think>\n\n",
        '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>',
        "",
        "<|im_end|>",
        "<|im_end|>",
    ),
    "qwen3_5_think": Writes(
        "{}\n</think>\n\n",
        "<tool_call>\n<function={}>\n{}</function>\n</tool_call>",
        "<parameter={}>\n{}\n</parameter>\n",
        "<|im_end|>",
        "<|im_end|>",
    ),
    "glm4moe": Writes(
        "\n<think>{}</think>\n",
        "<tool_call>{}\n{}</tool_call>",
        "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
        "<|observation|>",
        "<|user|>",
    ),
}
"""By the name of a template of each of the first families."""
every_family = pytest.mark.parametrize("name", WRITES)


async def create(s: Served, **fields: Any) -> Call:
    body = {"model": "demo", "input": "What is 37 * 91?"} | fields
    return await s.client.send("POST", "/v1/responses", orjson.dumps(body), JSON)


def own(thought: str, text: str = "", call: Json | None = None) -> Json:
    """A turn of the model's, as templates take it."""
    turn: Json = {"role": "assistant", "content": text, **dict.fromkeys(THOUGHT_KEYS, thought)}
    return turn if call is None else turn | {"tool_calls": [{"type": "function", "function": call}]}


def rendered(name: str, messages: Sequence[Json], tools: Sequence[Json]) -> list[int]:
    """What the template itself makes of a conversation."""
    one = checkpoint(name)
    shown = [{"type": "function", "function": tool} for tool in tools]
    switch = {} if one.family.switch is None else {one.family.switch.name: True}
    return one.tokeniser.encode(one.template.render(messages, shown or None, **switch))


def shown_to(s: Served, name: str) -> list[Json]:
    """The tools that the first prompt shows."""
    text = checkpoint(name).tokeniser.text(s.prompt(0))
    lines = text.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    return [json.loads(line)["function"] for line in lines if line.strip()]
