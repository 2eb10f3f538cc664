"""A chat's conversation: its items so far, and the fields of the next request.

Knows the API's items; knows no terminal and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
NAMES = {"code_interpreter": "python", "web_search": "search"}
"""Names of the server's tools for people; that of an MCP server is its label."""
OUTPUTS = ["code_interpreter_call.outputs", "web_search_call.action.sources"]
"""The values of `include` that show what the server's tools gave."""


def name_of(tool: Json) -> str:
    """The name of a tool that the server runs."""
    kind = tool["type"]
    return str(tool.get("server_label") or NAMES.get(kind, kind))


def user_message(text: str) -> Json:
    """A user's message, as an item of the API."""
    return {"type": "message", "role": "user", "content": text}


def result_of(call: Json, output: str) -> Json:
    """The result of a call, as an item of the API; of an approval, yes or no."""
    if call["type"] == "mcp_approval_request":
        approve = output[:1].lower() == "y"
        return {"type": CALLS[call["type"]], "approval_request_id": call["id"], "approve": approve}
    return {"type": CALLS[call["type"]], "call_id": call["call_id"], "output": output}


def wanted_of(call: Json) -> str:
    """The prompt that asks for the answer to a call."""
    if call["type"] == "mcp_approval_request":
        return f"approve {call['server_label']}.{call['name']}? y/n> "
    return f"result of {call['name']}> "


def text_of(item: Json) -> str:
    """The text of a message's item."""
    if isinstance(item.get("content"), str):
        return str(item["content"])
    return "".join(part.get("text", "") for part in item.get("content") or ())


@dataclass(frozen=True, slots=True)
class Turn:
    """What one request sent, and what came of it."""

    sent: Sequence[Json]
    output: Sequence[Json]
    stored: str | None
    """The id of the response, if the server stores it."""


class Conversation:
    """A conversation: the next request names the last stored response and sends newer items."""

    def __init__(self) -> None:
        self.last: Json | None = None
        """The last snapshot of a response that ended by itself."""
        self._turns: list[Turn] = []
        self._failed: Sequence[Json] = ()

    @property
    def items(self) -> list[Json]:
        """All items so far, in order."""
        return [item for turn in self._turns for item in (*turn.sent, *turn.output)]

    def request(self, items: Sequence[Json]) -> Json:
        """The fields of the next request, which sends these items."""
        unstored: list[Json] = [*items]
        for turn in reversed(self._turns):
            if turn.stored is not None:
                return {"input": unstored, "previous_response_id": turn.stored}
            unstored = [*turn.sent, *turn.output, *unstored]
        return {"input": unstored}

    def ended(self, items: Sequence[Json], response: Json) -> None:
        """Add a response that ended by itself, and the items that it answers."""
        self.last = response
        if response["status"] in ("completed", "incomplete"):
            self._add(items, response["output"], response["id"])
        else:
            self._failed = items

    def stopped(self, items: Sequence[Json], text: str) -> None:
        """Add a stopped answer. The server does not store it: the next request sends its text."""
        partial = [{"type": "message", "role": "assistant", "content": text}] if text else []
        self._add(items, partial, None)

    def failed(self, items: Sequence[Json]) -> None:
        """Keep items that got no answer for a retry."""
        self._failed = items

    def load(self, items: Sequence[Json]) -> None:
        """Add items of an earlier conversation."""
        self._add(items, (), None)

    def _add(self, items: Sequence[Json], output: Sequence[Json], stored: str | None) -> None:
        self._failed = ()
        self._turns.append(Turn(items, output, stored))

    def undo(self) -> Sequence[Json]:
        """Take back the last request. Returns the items that it sent, none if there was none."""
        if self._failed:
            items, self._failed = self._failed, ()
            return items
        return self._turns.pop().sent if self._turns else ()

    def question(self) -> str | None:
        """The text of the user's last question."""
        sent = [item for turn in self._turns for item in turn.sent]
        questions = [item for item in (*sent, *self._failed) if item.get("role") == "user"]
        return text_of(questions[-1]) if questions else None

    def undo_question(self) -> None:
        """Take back the user's last question and all behind it."""
        while items := self.undo():
            if any(item.get("role") == "user" for item in items):
                return

    def answer(self) -> str:
        """The text of the last answer."""
        output = self._turns[-1].output if self._turns else ()
        return "".join(text_of(item) for item in output if item["type"] == "message")

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
            return f"**{item['role']}**\n\n{text_of(item)}\n"
        case "reasoning":
            return "\n".join(f"> {line}" for line in text_of(item).splitlines()) + "\n"
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments", item.get("input"))
            return f"**calls {item['name']}**\n\n```\n{arguments}\n```\n"
        case "function_call_output" | "custom_tool_call_output":
            return f"**result**\n\n```\n{item['output']}\n```\n"
        case kind:
            return f"*{kind}*\n"
