"""Conversations, and the prompts that transformers makes of them: `golden.json` of the templates.

To write it anew, in an environment with transformers: `python -m tests.support.golden_renders`.
"""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "data" / "templates"
FILE = FOLDER / "golden.json"
TEMPLATES = ("qwen3", "qwen3_5_think", "nemotron_3_nano", "glm4moe", "deepseek_v3_1")
SPECIAL = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
STRING_ARGUMENTS = ("deepseek_v3_1",)
"""Templates that join the arguments to their text."""

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


if __name__ == "__main__":
    main()
