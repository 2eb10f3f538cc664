"""Writes the items of other servers' tools as the calls and results that a model knows.

A call stands in the functions' namespace, under its tool's name; what it gave is the answer of that
name. Knows items and messages; knows no renderer and no store.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from trt_responses.language.messages import FUNCTIONS, Message
from trt_responses.log.action_calls import arguments_of
from trt_responses.tool import function_name
from trt_responses.wire import hosted_items as p

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.wire.items import SentItem

JSON_CONSTRAINT = "<|constrain|>json"

NOT_KEPT = "[The output of this call was not kept.]"
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class HostedCallText(NamedTuple):
    """An item as messages: a call, a result, or both."""

    callee: str | None = None
    arguments: str | None = None
    result: str | None = None
    call_id: str | None = None
    """The id that joins a call without its result, and a result without its call."""

    @property
    def lasts(self) -> bool:
        """Whether it says something once the model has answered: a call whose output was not kept
        only says why a tool loop goes on."""
        return self.result is not NOT_KEPT


def call_message(callee: str, arguments: str) -> Message:
    """The message that calls a function."""
    return Message(
        "assistant",
        arguments,
        channel="commentary",
        recipient=callee,
        content_type=JSON_CONSTRAINT,
    )


def result_message(callee: str, text: str) -> Message:
    """The message of a function's result."""
    return Message("tool", text, name=callee, recipient="assistant", channel="commentary")


def hosted_call_text(item: p.HostedItem) -> HostedCallText:
    """The messages of an item, one case for each kind."""
    match item:
        case p.WebSearchCall():
            return HostedCallText(_callee("web_search"), _json(item.action or {}), NOT_KEPT)
        case p.CodeInterpreterCall():
            code = _json({"code": item.code or ""})
            outputs = NOT_KEPT if item.outputs is None else _texts(item.outputs, "logs")
            return HostedCallText(_callee("code_interpreter"), code, outputs)
        case p.McpCall():
            answer = NOT_KEPT if item.output is None else item.output
            if item.error is not None:
                answer = f"Error: {_text(item.error)}"
            return HostedCallText(
                _callee(function_name(item.server_label, item.name)), item.arguments, answer
            )
        case p.McpListTools():
            names = [str(tool.get("name", "")) for tool in item.tools]
            answer = _json(names) if item.error is None else f"Error: {_text(item.error)}"
            return HostedCallText(_callee(f"{item.server_label}.list_tools"), "{}", answer)
        case p.McpApprovalRequest():
            callee = _callee(function_name(item.server_label, item.name))
            return HostedCallText(callee, item.arguments, None, item.id)
        case p.McpApprovalResponse():
            verdict = "Approved." if item.approve else "Not approved."
            reason = f" {item.reason}" if item.reason else ""
            return HostedCallText(None, None, verdict + reason, item.approval_request_id)
        case p.LocalShellCall():
            return HostedCallText(
                _callee("local_shell"), arguments_of(item.action), None, item.call_id
            )
        case p.LocalShellCallOutput():
            return HostedCallText(None, None, item.output, item.call_id or item.id or "")
        case p.ShellCall():
            return HostedCallText(_callee("shell"), arguments_of(item.action), None, item.call_id)
        case p.ShellCallOutput():
            output = "\n".join(_ran(one) for one in item.output)
            return HostedCallText(None, None, output, item.call_id)
        case p.ApplyPatchCall():
            return HostedCallText(
                _callee("apply_patch"), arguments_of(item.operation), None, item.call_id
            )
        case p.ApplyPatchCallOutput():
            lines = ["failed"] if item.status == "failed" else []
            lines += [item.output] if item.output else []
            return HostedCallText(None, None, "\n".join(lines) or "completed", item.call_id)
        case _:
            assert_never(item)


def _callee(name: str) -> str:
    """A client's words in a header, without what would be structure there."""
    return FUNCTIONS + NOT_IN_NAMES.sub("_", name)


def _texts(outputs: Sequence[Mapping[str, Any]], *keys: str) -> str:
    """The texts of a tool's outputs, a line each; what is no text is named."""
    lines = []
    for output in outputs:
        texts = [output[key] for key in keys if isinstance(output.get(key), str)]
        lines += [text for text in texts if text] if texts else [f"[{output.get('type')}]"]
    return "\n".join(lines)


def _ran(output: Mapping[str, Any]) -> str:
    """The output of a command, and how it ended, unless that was well."""
    lines = [output[key] for key in ("stdout", "stderr") if isinstance(output.get(key), str)]
    outcome = output.get("outcome")
    match outcome:
        case {"type": "timeout"}:
            lines.append("[The command took too long and was ended.]")
        case {"exit_code": int(code)} if code:
            lines.append(f"[exit code {code}]")
    return "\n".join(line.removesuffix("\n") for line in lines if line)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def settled_places(items: Sequence[SentItem]) -> list[int]:
    """The places of approvals that say nothing: what their calls gave stands among the items."""
    answered = {item.approval_request_id for item in items if isinstance(item, p.McpCall)}
    return [
        place
        for place, item in enumerate(items)
        if isinstance(item, p.McpApprovalResponse)
        and item.approve
        and item.approval_request_id in answered
    ]
