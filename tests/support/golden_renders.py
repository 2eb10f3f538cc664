"""Conversations, and the prompts that transformers makes of them: `golden.json` of the templates,
and `forms.json` of those that describe themselves.

To write it anew, in an environment with transformers: `python -m tests.support.golden_renders`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import template_forms
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "data" / "templates"
FILE = FOLDER / "golden.json"
TEMPLATES = ("qwen3", "qwen3_5_think", "nemotron_3_nano", "glm4moe", "deepseek_v3_1")
SPECIAL = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
STRING_ARGUMENTS = ("deepseek_v3_1",)
"""Templates that join the arguments to their text."""

REFUSED = "refused"
"""In place of a prompt's digest."""
WORDS = (
    *("Hello.", "Grüße, 世界 👩‍💻", "", " two  spaces ", "line\n\nline\n", "a < b && c > d"),
    *('{"json": [1, 2]}', "'quoted' \"twice\"", "C:\\path\\n", "ends in a newline\n"),
)
VALUES: tuple[Any, ...] = ("Oslo", "", "2", 2, 2.5, True, None, [1, "two"], {"ü": None}, "a\nb")
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather <now>, in °C.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "a town"},
                    "days": {"type": "integer", "enum": [1, 2]},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object"}},
    },
)


def conversation(dice: random.Random) -> Json:
    """Messages, tools and switches as a request might bring them."""
    messages: list[Json] = []
    if dice.random() < 0.6:
        messages.append({"role": "system", "content": dice.choice(WORDS[:2])})
    for _ in range(dice.randint(1, 2)):
        messages.append({"role": "user", "content": dice.choice(WORDS)})
        for _ in range(dice.randint(0, 2)):
            messages += _tool_turn(dice)
        if dice.random() < 0.7:
            messages.append(_assistant(dice))
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "And now?"})
    switches = dice.choice(({}, {"enable_thinking": True}, {"enable_thinking": False}))
    tools = [] if dice.random() < 0.3 else list(TOOLS)
    return {"messages": messages, "tools": tools, "switches": switches}


def _assistant(dice: random.Random) -> Json:
    thought = {"reasoning_content": dice.choice(WORDS)} if dice.random() < 0.6 else {}
    return {"role": "assistant", "content": dice.choice(WORDS), **thought}


def _tool_turn(dice: random.Random) -> list[Json]:
    calls, results = [], []
    for number in range(dice.randint(1, 2)):
        keys = dice.sample(("city", "days", "ключ"), dice.randint(0, 3))
        function = {"name": "get_weather", "arguments": {key: dice.choice(VALUES) for key in keys}}
        calls.append({"type": "function", "id": f"call_{number}", "function": function})
        results.append(
            {
                "role": "tool",
                "content": dice.choice(WORDS),
                "tool_call_id": f"call_{number}",
                "name": "get_weather",
            }
        )
    return [{**_assistant(dice), "tool_calls": calls}, *results]


def as_taken(template: str, messages: list[Json]) -> list[Json]:
    """The messages with arguments as this template takes them."""
    if template not in STRING_ARGUMENTS:
        return messages
    changed: list[Json] = json.loads(json.dumps(messages))
    for message in changed:
        for call in message.get("tool_calls", ()):
            text = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            call["function"]["arguments"] = text
    return changed


def as_wanted(name: str, messages: list[Json]) -> list[Json]:
    """The messages as the template of this name takes them."""
    family = template_forms.family(name)
    changed: list[Json] = json.loads(json.dumps(messages))
    numbers: dict[str, str] = {}
    for message in changed:
        if "reasoning_content" in message:
            message |= dict.fromkeys(THOUGHT_KEYS, message["reasoning_content"])
        if message["role"] == "tool":
            message["tool_call_id"] = numbers[message["tool_call_id"]]
        for call in message.get("tool_calls", ()):
            function, number = call["function"], len(numbers)
            own = f"functions.{function['name']}:{number}" if family.numbers_calls else call["id"]
            call["id"] = numbers[call["id"]] = f"{number:09d}" if family.short_ids else own
            if family.arguments == "string":
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return changed


def shown(render: Callable[..., str], name: str, conversation: Json) -> str:
    """The digest of a prompt; `REFUSED` if the template refuses the conversation."""
    family = template_forms.family(name)
    try:
        prompt = render(
            as_wanted(name, conversation["messages"]),
            conversation["tools"] or ([] if family.empty_tools else None),
            conversation["switches"],
        )
    except Exception:  # a template may raise anything
        return REFUSED
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


def forms(transformers: Any, conversations: list[Json]) -> Json:
    """What there is to know of the templates of forms."""
    module = importlib.import_module("transformers.utils.chat_template_utils")
    module.datetime = Today  # type: ignore[attr-defined]  # templates ask for the date
    templates: Json = {}
    for name in template_forms.places():
        source, family = template_forms.source(name), template_forms.family(name)

        def render(messages: list[Json], tools: Any, switches: Json, source: str = source) -> str:
            (prompts, _) = module.render_jinja_template(
                [messages],
                tools,
                chat_template=source,
                **template_forms.SPECIAL,
                add_generation_prompt=True,
                **switches,
            )
            return str(prompts[0])

        templates[name] = {
            "digest": template_forms.digest(name),
            "calls": family.calls.body if family.calls else "",
            "why": family.no_calls if family.calls is None else "",
            "thoughts": family.thought is not None,
            "renders": [shown(render, name, one) for one in conversations],
        }
    version = transformers.__version__
    return {"transformers": version, "templates": templates}


class Today(datetime):
    """The day on which all conversations take place."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Today:
        return cls(2026, 1, 2, tzinfo=tz)


def main() -> None:
    transformers: Any = importlib.import_module("transformers")
    tokenizers: Any = importlib.import_module("tokenizers")
    dice = random.Random(25)
    conversations = [conversation(dice) for _ in range(24)]
    renders = {}
    for name in TEMPLATES:
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL
        )
        tokenizer.chat_template = (FOLDER / f"{name}.jinja").read_text("utf-8")
        renders[name] = [
            tokenizer.apply_chat_template(
                as_taken(name, one["messages"]),
                tools=one["tools"] or None,
                tokenize=False,
                add_generation_prompt=True,
                **one["switches"],
            )
            for one in conversations
        ]
    golden = {"conversations": conversations, "renders": renders}
    FILE.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", "utf-8")
    found = json.dumps(forms(transformers, conversations), ensure_ascii=False, indent=1)
    template_forms.FILE.write_text(found + "\n", "utf-8")


if __name__ == "__main__":
    main()
