"""Converts blocks to the messages that chat templates expect: roles, thoughts, calls and results.

Most templates drop or refuse a developer message, so its text goes into the system message; a later
one becomes a user message. No ids here, and no rendering.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trt_responses.language.messages import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.dialect import Entry
    from trt_responses.dialects.templates.families import Family
    from trt_responses.language.messages import Developer, FunctionTool, Message

    Json = dict[str, Any]

INSTRUCTIONS = "# Instructions\n\n"
"""The heading that Harmony writes before a developer message."""
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""The keys under which templates look for a thought."""


class Conversation:
    """The messages of a prompt, and the block ids of each assistant message."""

    def __init__(self, developer: Developer, entries: Sequence[Entry], family: Family) -> None:
        self.messages: list[Json] = []
        self.own: list[bytes] = []
        """The ids of each assistant message, in order."""
        self._as_text = family.arguments == "string"
        self._calls = 0
        self._last_call = ""
        self._numbers = family.numbers_calls
        self._ids: dict[str, str] = {}
        preface = [developer.instructions, _format(developer)]
        rest = list(entries)
        while rest and rest[0].kind == "developer":
            preface += [_words(message) for message in rest.pop(0).messages]
        if system := "\n\n".join(filter(None, preface)):
            self.messages.append({"role": "system", "content": system})
        for entry in rest:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        for message in entry.messages:
            if message.role == "assistant":
                self._add_own(entry, message)
            elif message.role == "tool":
                name = (message.name or "").removeprefix(FUNCTIONS)
                result = {"role": "tool", "content": message.text, "name": name}
                call_id = entry.call_id or self._last_call
                self.messages.append(result | {"tool_call_id": self._ids.get(call_id, call_id)})
            else:
                self.messages.append({"role": "user", "content": _words(message)})

    def _add_own(self, entry: Entry, message: Message) -> None:
        """Add an assistant message. A thought, or text after a call, begins another message."""
        last = self.messages[-1] if self.messages else {}
        thought = message.channel == "analysis" and message.recipient is None
        begun = last.get("role") == "assistant"
        filled = last.get("content") or last.get("tool_calls")
        if not begun or (thought and filled) or (message.recipient is None and filled):
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
            self.own.append(b"")
        self.own[-1] += entry.ids
        if thought:
            thoughts = "\n".join(filter(None, (last.get(THOUGHT_KEYS[0]), message.text)))
            last |= dict.fromkeys(THOUGHT_KEYS, thoughts)
        elif message.recipient is not None:
            last.setdefault("tool_calls", []).append(self._call(entry, message))
        else:
            last["content"] = message.text

    def _call(self, entry: Entry, message: Message) -> Json:
        name = (message.recipient or "").removeprefix(FUNCTIONS)
        call_id = shown_id = entry.call_id or f"call_{self._calls}"
        if self._numbers:
            shown_id = f"{FUNCTIONS}{name}:{self._calls}"
        self._ids[call_id] = shown_id
        self._last_call = call_id
        self._calls += 1
        arguments = message.text if self._as_text else _object(message.text)
        function = {"name": name, "arguments": arguments}
        return {"type": "function", "id": shown_id, "function": function}


def tool_specs(tools: Iterable[FunctionTool]) -> list[Json]:
    """Tools in the form that templates expect."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters or {"type": "object", "properties": {}}),
            },
        }
        for tool in tools
    ]


def _words(message: Message) -> str:
    return message.text.removeprefix(INSTRUCTIONS) if message.role == "developer" else message.text


def _format(developer: Developer) -> str | None:
    form = developer.response_format
    if form is None:
        return None
    schema = json.dumps(form.schema, ensure_ascii=False)
    return f"Answer with JSON that follows this schema, and with nothing else:\n{schema}"


def _object(text: str) -> Any:
    """Arguments as an object, for templates that iterate over them; other text becomes one
    member."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {"input": value}
