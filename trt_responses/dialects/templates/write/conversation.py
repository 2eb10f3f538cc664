"""Converts blocks to the messages that chat templates expect: roles, thoughts, calls and results.

Most templates drop or refuse a developer message, so its text goes into the system message; a later
one becomes a user message. No ids here, and no rendering.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from trt_responses.dialect import Entry
from trt_responses.dialects.templates.families import Calls, Family
from trt_responses.language.messages import FUNCTIONS, Developer, FunctionTool, Message

Json = dict[str, Any]

INSTRUCTIONS = "# Instructions\n\n"
"""The heading that Harmony writes before a developer message."""
EXAMPLE = "\U0010fffb"
"""Stands for the example of a call, whose marks are no user's text."""
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
        self._numbers, self._short = family.numbers_calls, family.short_ids
        self._ids: dict[str, str] = {}
        described = _described(developer.tools) if family.describes_tools else None
        preface = [developer.instructions, _format(developer), described]
        rest = list(entries)
        while rest and rest[0].kind == "developer":
            preface += [_words(message) for message in rest.pop(0).messages]
        if system := "\n\n".join(filter(None, preface)):
            self.messages.append({"role": "system", "content": system})
        for entry in rest:
            self._add(entry)
        if family.folds_system:
            self._fold()
        if family.merges_users:
            self._merge()

    def _merge(self) -> None:
        """Make one message of user messages in a row."""
        merged: list[Json] = []
        for message in self.messages:
            if merged and merged[-1]["role"] == message["role"] == "user":
                content = f"{merged[-1]['content']}\n\n{message['content']}"
                merged[-1] = message | {"content": content}
            else:
                merged.append(message)
        self.messages = merged

    def _fold(self) -> None:
        """Begin the first user message with the system message, which the template has not."""
        if not self.messages or self.messages[0]["role"] != "system":
            return
        text = self.messages.pop(0)["content"]
        first = self.messages[0] if self.messages else {}
        if first.get("role") == "user":
            self.messages[0] = first | {"content": f"{text}\n\n{first['content']}"}
        else:
            self.messages.insert(0, {"role": "user", "content": text})

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
        elif self._short:
            shown_id = f"{self._calls:09d}"
        self._ids[call_id] = shown_id
        self._last_call = call_id
        self._calls += 1
        arguments = message.text if self._as_text else _object(message.text)
        function = {"name": name, "arguments": arguments}
        return {"type": "function", "id": shown_id, "function": function}


def call_example(calls: Calls) -> str:
    """A call as the template writes it, for the description of tools."""
    begin, end = calls.section or ("", "")
    own = f"{calls.before_name}NAME{calls.after_name}ARGUMENTS{calls.after_arguments}"
    return f"{begin}{calls.open}{own}{calls.close}{end}".strip()


def _described(tools: Sequence[FunctionTool]) -> str | None:
    """The tools as a text, for templates that show none."""
    if not tools:
        return None
    lines = [json.dumps(one["function"], ensure_ascii=False) for one in tool_specs(tools)]
    how = f"To call one, write its name and its arguments as JSON:\n{EXAMPLE}"
    return "\n".join(("# Tools", "", "You can call these functions:", *lines, "", how))


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
