"""A coding agent's requests as it sends them, and what a model answers to each."""

from __future__ import annotations

import json
from typing import Any

PARAGRAPH = (
    "You are a coding agent that works in a terminal. Keep going until the task is done. Use the "
    "tools; do not guess what a file holds. Quote paths such as `src/main.rs:42`, and never undo "
    "changes that you did not make.\n"
)


PERMISSIONS = "<permissions instructions>\n" + PARAGRAPH * 40 + "</permissions instructions>"
GUIDE = "# AGENTS.md\n\n" + PARAGRAPH * 100
WORLD = "<environment_context>\n  <cwd>/repo</cwd>\n  <shell>bash</shell>\n</environment_context>"


def function(name: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": PARAGRAPH * 2,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:1],
            "additionalProperties": False,
        },
    }


TEXT, NUMBER = {"type": "string", "description": PARAGRAPH}, {"type": "number"}
TOOLS: list[dict[str, Any]] = [
    function("exec_command", cmd=TEXT, workdir=TEXT, yield_time_ms=NUMBER, justification=TEXT),
    function("write_stdin", session_id=NUMBER, chars=TEXT),
    function("update_plan", plan={"type": "array", "items": {"type": "object"}}, explanation=TEXT),
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit files. This is a FREEFORM tool.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin hunk+ end\n"},
    },
    {
        "type": "namespace",
        "name": "mcp__notes",
        "description": "Notes of the team.",
        "tools": [
            function("search", query=TEXT) | {"defer_loading": True},
            function("read", note_id=TEXT),
        ],
    },
    {"type": "web_search", "external_web_access": False},
    {"type": "tool_search", "execution": "client", "parameters": {}},
]


def message(role: str, text: str, number: int) -> dict[str, Any]:
    part = {"type": "input_text", "text": text}
    return {"type": "message", "id": f"msg_own_{number}", "role": role, "content": [part]}


START: list[dict[str, Any]] = [
    message("developer", PERMISSIONS, 0),
    message("user", GUIDE, 1),
    message("user", WORLD, 2),
    message("user", "Fix the failing test.", 3),
]


def body(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": "demo",
        "input": items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199-b",
        "client_metadata": {"installation": "x"},
        "text": {"verbosity": "low"},
    }


THOUGHT = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
FIRST = (
    THOUGHT.format("Run it, and see.")
    + "<|channel|>commentary<|message|>I will run the test.<|end|><|start|>assistant"
    + "<|channel|>commentary to=functions.exec_command <|constrain|>json<|message|>"
    + '{"cmd":"cargo test"}<|call|>'
)


PATCH = '*** Begin Patch\n*** Update File: src/main.rs\n-    "a"\n+    "b"\n*** End Patch\n'
SECOND = (
    THOUGHT.format("A typo — easy.")
    + "<|channel|>commentary to=functions.apply_patch <|constrain|>json<|message|>"
    + json.dumps({"input": PATCH}, ensure_ascii=False)
    + "<|call|>"
)


THIRD = (
    THOUGHT.format("Is there a note?")
    + " to=functions.mcp__notes__search<|channel|>commentary <|constrain|>json<|message|>"
    + '{"query":"typo"}<|call|>'
)


LAST = THOUGHT.format("Done.") + "<|channel|>final<|message|>Fixed `src/main.rs:42`.<|return|>"
