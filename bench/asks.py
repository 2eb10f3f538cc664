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

TOOLS = [
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

BODY_WITH_TOOLS = orjson.dumps(
    {
        "model": MODEL,
        "instructions": "Answer as a harbour master would: short, and with numbers.",
        "input": [{"role": "user", "content": "What is the weather?"}],
        "tools": TOOLS,
        "stream": True,
    }
)
