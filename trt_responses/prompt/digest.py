"""A digest of what an item says, by which one that comes back is known as one that was written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from trt_responses.log.action_calls import action_text, arguments_of
from trt_responses.wire import hosted_items as h
from trt_responses.wire import items as i
from trt_responses.wire import output as o

DIGEST_BYTES = 16

Texts = tuple[str, ...]


def digest(item: i.InputItem | o.OutputItem) -> bytes | None:
    """The digest of an item's content, whatever its id; None for items that no model writes."""
    texts = _content(item)
    if texts is None:
        return None
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "little"))
        hasher.update(raw)
    return hasher.digest()


def _content(item: i.InputItem | o.OutputItem) -> Texts | None:
    match item:
        case i.Reasoning() | o.OutputReasoning():
            return ("reasoning", *(part.text for part in item.content or item.summary))
        case i.FunctionCall() | o.OutputFunctionCall():
            return ("function_call", item.call_id, item.name, _canonical(item.arguments))
        case i.CustomToolCall() | o.OutputCustomCall():
            return ("custom_tool_call", item.call_id, item.name, item.input)
        case h.CodeInterpreterCall() | o.OutputCodeCall():
            return ("code_interpreter_call", item.id or "", item.code or "")
        case h.WebSearchCall() | o.OutputWebSearchCall():
            return ("web_search_call", item.id or "", _action(item.action or {}))
        case h.McpCall() | o.OutputMcpCall():
            return ("mcp_call", item.id or "", _canonical(item.arguments))
        case h.McpApprovalRequest() | o.OutputMcpApprovalRequest():
            named = (item.id or "", item.server_label, item.name)
            return ("mcp_approval_request", *named, _canonical(item.arguments))
        case h.ShellCall() | h.LocalShellCall():
            return (item.type, item.call_id, _sorted(arguments_of(item.action)))
        case h.ApplyPatchCall():
            return (item.type, item.call_id, _sorted(arguments_of(item.operation)))
        case o.OutputShellCall() | o.OutputLocalShellCall() | o.OutputPatchCall():
            return (item.type, item.call_id, _sorted(action_text(item)))
        case o.OutputContainerShellCall():
            return (item.type, item.call_id, _sorted(arguments_of(vars(item.action))))
        case o.OutputMessage():
            return ("message", item.phase, *(part.text for part in item.content))
        case i.InputMessage(role="assistant"):
            texts = _texts(item)
            return None if texts is None else ("message", item.phase or "final_answer", *texts)
        case _:
            return None


def _sorted(action: str) -> str:
    """The JSON of an action, with its keys in order: clients' libraries reorder them."""
    return json.dumps(json.loads(action), sort_keys=True)


def _action(action: Mapping[str, Any]) -> str:
    """An action without what a client may not have been given, or has left out."""
    kept = {key: value for key, value in action.items() if key != "sources" and value is not None}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()


def _canonical(arguments: str) -> str:
    """Arguments without the spaces that clients put elsewhere when they read and write them
    again."""
    try:
        return orjson.dumps(orjson.loads(arguments)).decode()
    except ValueError:
        return arguments


def _texts(item: i.InputMessage) -> Texts | None:
    if isinstance(item.content, str):
        return (item.content,)
    texts = tuple(part.text for part in item.content if isinstance(part, i.TextPart))
    return texts if len(texts) == len(item.content) else None
