"""A response's own items as blocks: what it leaves behind for the requests that continue it.

Knows items, spans of ids and the renderer; knows no store and no HTTP.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import assert_never

from trt_responses.dialect import Renderer
from trt_responses.language.reader import Reader, Span
from trt_responses.prompt import conversation as c
from trt_responses.store import Block, Kind
from trt_responses.wire import output as o
from trt_responses.wire.response import Response, lasting_json

WrittenItem = (
    o.OutputMessage
    | o.OutputReasoning
    | o.OutputFunctionCall
    | o.OutputHostedCall
    | o.OutputActionCall
)

CALLS = (o.OutputFunctionCall, o.OutputActionCall)


async def output_blocks(response: Response, reader: Reader, renderer: Renderer) -> list[Block]:
    """The response's own items, with the ids that the model wrote.

    A message that was written by the dialect's rules keeps its ids, so that the next prompt extends
    what the engine has cached. Any other is rendered anew: the model must not learn from its own
    slip, nor find a header in a text. A call that was cut is dropped: it cannot be answered.
    """
    blocks = []
    spans = iter(reader.messages)
    for item in response.output:
        if isinstance(item, o.OutputBeside):
            blocks.append(Block("preamble", lasting_json(item), b""))
            continue
        if (span := next(spans, None)) is None:
            # a thought that says nothing, and carries what tools have answered
            if lasting(item):
                blocks.append(Block("reasoning", lasting_json(item), b""))
            continue
        if not lasting(item):
            continue
        if span.earlier:
            answered = answer_ids(reader.kept, span).tobytes()
            blocks.append(Block("result", lasting_json(item), answered))
            continue
        ids = (
            renderer.own_ids(reader.kept, span)
            if _lawful(item, span)
            else await _rendered(item, span, renderer)
        )
        if isinstance(item, o.OutputHostedCall) and not _lawful(item, span):
            result = answer_ids(reader.kept, span).tobytes()
            ids = array("I", renderer.joined((("call", ids.tobytes()), ("result", result)))[0])
        call_id = item.call_id if isinstance(item, CALLS) else None
        if isinstance(item, o.OutputHostedCall) and not item.run_here:
            call_id = item.id
        callee = _callee(item, span) if call_id else None
        blocks.append(Block(_kind(item, span), lasting_json(item), ids.tobytes(), call_id, callee))
    return blocks


def lasting(item: o.OutputItem) -> bool:
    """Whether an item stays in the conversation: a call that was cut, or whose run was broken off,
    cannot be answered."""
    if isinstance(item, o.OutputHostedCall):
        return not item.run_here or item.status in ("completed", "failed")
    return not isinstance(item, CALLS) or item.status == "completed"


def _lawful(item: o.OutputItem, span: Span) -> bool:
    """Whether a message's own ids are what the dialect writes for its item."""
    is_call = isinstance(item, (*CALLS, o.OutputHostedCall))
    if isinstance(item, o.OutputHostedCall) and span.channel is None:
        return False
    return not span.repaired and is_call == (span.recipient is not None)


def answer_ids(kept: Sequence[int], span: Span) -> array[int]:
    """The ids of a tool's answer to a call, which stay with the call."""
    return array("I", span.stored_answer or kept[span.end : span.end + span.answer_tokens])


def _kind(item: WrittenItem, span: Span) -> Kind:
    match item:
        case o.OutputHostedCall():
            # what a thought has looked up leaves with the thought
            return "reasoning" if _channel(item, span) == "analysis" else "call"
        case o.OutputReasoning():
            return "reasoning"
        case o.OutputMessage():
            return "preamble" if item.phase == "commentary" else "final"
        case o.OutputFunctionCall() | o.OutputActionCall():
            return "call"
        case _:
            assert_never(item)


def _channel(item: o.OutputHostedCall, span: Span) -> str:
    return span.channel or item.channel


def _callee(item: o.OutputItem, span: Span) -> str:
    if span.recipient is not None:
        return span.recipient
    if isinstance(item, o.OutputActionCall):
        return c.callee_of(*item.called)
    if isinstance(item, o.OutputNamespacedCall):
        return c.callee_of(item.name, item.namespace)
    assert isinstance(item, o.OutputFunctionCall)
    return c.callee_of(item.name)


async def _rendered(item: WrittenItem, span: Span, renderer: Renderer) -> array[int]:
    match item:
        case o.OutputReasoning():
            message = c.reasoning_message(item.text)
        case o.OutputMessage():
            message = c.answer_message(item.phase, "".join(part.text for part in item.content))
        case o.OutputFunctionCall():
            message = c.call_message(_callee(item, span), item.arguments)
        case o.OutputActionCall():
            message = c.call_message(_callee(item, span), item.text())
        case o.OutputHostedCall():
            recipient = span.recipient or ""
            message = (
                c.code_message(recipient, item.text(), _channel(item, span))
                if item.is_code
                else c.call_message(recipient, item.text())
            )
        case _:
            assert_never(item)
    return await renderer.message(message)
