"""The API's items to Harmony messages, and messages to blocks that later turns share.

One table of item kinds. Knows the renderer; knows no store, no HTTP and no engine.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from trt_responses.errors import InvalidRequest
from trt_responses.harmony.render import Message
from trt_responses.store.base import Block
from trt_responses.wire import items as i

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.harmony.render import Renderer
    from trt_responses.store.base import Kind

FUNCTIONS = "functions."
"""The namespace in which Harmony keeps a client's functions."""

JSON_CONSTRAINT = "<|constrain|>json"

ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}


@dataclass(frozen=True, slots=True)
class Said:
    """An item in Harmony's terms. `message` is None when there is nothing to show the model."""

    kind: Kind
    message: Message | None
    call_id: str | None = None
    callee: str | None = None


async def input_blocks(
    items: str | Sequence[i.InputItem], renderer: Renderer, prior: Sequence[Block], at_most: int
) -> list[Block]:
    """What the request itself brings, in order; a result finds its call there or in `prior`."""
    if isinstance(items, str):
        items = [i.InputMessage(role="user", content=items)]
    callees = {b.call_id: b.callee for b in prior if b.call_id and b.callee}
    blocks = []
    for place, item in enumerate(items):
        said = _said(item, callees, f"input[{place}]")
        if said.call_id and said.callee:
            callees[said.call_id] = said.callee
        ids = b""
        if said.message is not None:
            ids = (await renderer.message(said.message, at_most=at_most)).tobytes()
        blocks.append(Block(said.kind, _as_json(item), ids, said.call_id, said.callee))
    return blocks


def _said(item: i.InputItem, callees: dict[str, str], place: str) -> Said:
    match item:
        case i.InputMessage():
            return _message_said(item)
        case i.FunctionCall():
            callee = FUNCTIONS + item.name
            return Said("call", call_message(callee, item.arguments), item.call_id, callee)
        case i.FunctionCallOutput():
            return Said("result", _result(item, callees, place))
        case i.Reasoning():
            parts = item.content or item.summary
            text = "\n".join(part.text for part in parts)
            return Said("reasoning", reasoning_message(text) if text else None)
        case _:
            assert_never(item)


def _message_said(item: i.InputMessage) -> Said:
    text = joined(item.content)
    match item.role:
        case "user":
            return Said("user", Message("user", text))
        case "assistant":
            phase = item.phase or "final_answer"
            kind: Kind = "preamble" if phase == "commentary" else "final"
            return Said(kind, answer_message(phase, text))
        case "system" | "developer":
            return Said("developer", Message("developer", f"# Instructions\n\n{text}"))
        case _:
            assert_never(item.role)


def _result(item: i.FunctionCallOutput, callees: dict[str, str], place: str) -> Message:
    callee = callees.get(item.call_id)
    if callee is None:
        raise InvalidRequest(
            f"No function call with call_id {item.call_id!r:.100} stands before this output: send the "
            "call too, or the previous_response_id of the response that made it.",
            param=f"{place}.call_id",
            code="unknown_call_id",
        )
    return Message(
        "tool", joined(item.output), name=callee, recipient="assistant", channel="commentary"
    )


def answer_message(phase: i.Phase, text: str) -> Message:
    channel = "commentary" if phase == "commentary" else "final"
    return Message("assistant", text, channel=channel)


def reasoning_message(text: str) -> Message:
    return Message("assistant", text, channel="analysis")


def call_message(callee: str, arguments: str) -> Message:
    return Message(
        "assistant",
        arguments,
        channel="commentary",
        recipient=callee,
        content_type=JSON_CONSTRAINT,
    )


def joined(content: str | Iterable[i.TextPart | i.RefusalPart]) -> str:
    """A message's parts as one text, a line each: parts are written as separate things."""
    if isinstance(content, str):
        return content
    return "\n".join(p.text if isinstance(p, i.TextPart) else p.refusal for p in content)


def _as_json(item: i.InputItem) -> bytes:
    """The item as the API gives it back: with an id and a status, whoever left them out."""
    filled = {
        "id": item.id or f"{ID_PREFIXES[item.type]}_{secrets.token_hex(12)}",
        "status": item.status or "completed",
    }
    return item.model_copy(update=filled).model_dump_json(exclude_none=True).encode()
