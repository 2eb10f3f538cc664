"""The requests that are made of every contender."""

from __future__ import annotations

import orjson

MODEL = "bench"

BODY = orjson.dumps({"model": MODEL, "input": "What is the weather?", "stream": True})

CHAT_BODY = orjson.dumps(
    {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the weather?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
)
"""The same question to chat completions."""

TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "name": name,
        "description": f"Tells the {name} of a harbour, at one hour or over a whole day.",
        "parameters": {
            "type": "object",
            "properties": {
                "harbour": {"type": "string", "description": "Name of the harbour."},
                "hour": {"type": "integer", "minimum": 0, "maximum": 23},
                "unit": {"type": "string", "enum": ["metric", "imperial"]},
            },
            "required": ["harbour"],
        },
    }
    for name in ("tide", "wind", "traffic", "depth", "visibility")
]

MANY_TOOLS = [
    tool | {"name": f"{tool['name']}_{harbour}"} for harbour in range(10) for tool in TOOLS
]


def body_with(tools: list[dict[str, object]]) -> bytes:
    """What an agent asks, with its instructions and its tools."""
    return orjson.dumps(
        {
            "model": MODEL,
            "instructions": "Answer as a harbour master would: short, and with numbers.",
            "input": [{"role": "user", "content": "What is the weather?"}],
            "tools": tools,
            "stream": True,
        }
    )
