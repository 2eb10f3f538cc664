"""A chat's conversation: its items so far, and the fields of the next request.

Knows the API's items; knows no terminal and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}


def user_message(text: str) -> Json:
    """A user's message, as an item of the API."""
    return {"type": "message", "role": "user", "content": text}


def result_of(call: Json, output: str) -> Json:
    """The result of a call, as an item of the API."""
    return {"type": CALLS[call["type"]], "call_id": call["call_id"], "output": output}


def text_of(item: Json) -> str:
    """The text of a message's item."""
    return "".join(part.get("text", "") for part in item.get("content") or ())


class Conversation:
    """A conversation: the next request names the last stored response and sends newer items."""

    def __init__(self) -> None:
        self.last: Json | None = None
        """The last snapshot of a response that ended by itself."""
        self.items: list[Json] = []
        """All items so far, in order."""
        self._previous: str | None = None
        self._unstored: list[Json] = []

    def request(self, items: Sequence[Json]) -> Json:
        """The fields of the next request, which sends these items."""
        request: Json = {"input": [*self._unstored, *items]}
        if self._previous is not None:
            request["previous_response_id"] = self._previous
        return request

    def ended(self, items: Sequence[Json], response: Json) -> None:
        """Add a response that ended by itself, and the items that it answers."""
        self.last = response
        if response["status"] in ("completed", "incomplete"):
            self._previous, self._unstored = response["id"], []
            self.items += [*items, *response["output"]]

    def stopped(self, items: Sequence[Json], text: str) -> None:
        """Add a stopped answer. The server does not store it: the next request sends its text."""
        partial = [{"type": "message", "role": "assistant", "content": text}] if text else []
        self._unstored += [*items, *partial]
        self.items += [*items, *partial]

    def open_calls(self) -> list[Json]:
        """The calls of the last response that wait for a result."""
        output: Iterable[Json] = self.last["output"] if self.last else ()
        return [item for item in output if item["type"] in CALLS]

    def as_json(self) -> str:
        return json.dumps(self.items, indent=2, ensure_ascii=False) + "\n"

    def as_markdown(self) -> str:
        """The conversation for people, in Markdown; thoughts are quoted."""
        return "\n".join(map(_markdown, self.items))


def _markdown(item: Json) -> str:
    match item["type"]:
        case "message":
            content = item["content"]
            text = content if isinstance(content, str) else text_of(item)
            return f"**{item['role']}**\n\n{text}\n"
        case "reasoning":
            return "\n".join(f"> {line}" for line in text_of(item).splitlines()) + "\n"
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments", item.get("input"))
            return f"**calls {item['name']}**\n\n```\n{arguments}\n```\n"
        case "function_call_output" | "custom_tool_call_output":
            return f"**result**\n\n```\n{item['output']}\n```\n"
        case kind:
            return f"*{kind}*\n"
