"""A response's own items as blocks: what it leaves behind for the requests that continue it.

Knows items, spans of ids and the renderer; knows no store and no HTTP.
"""

from __future__ import annotations

from array import array
from itertools import zip_longest
from typing import TYPE_CHECKING, assert_never

import orjson

from trt_responses.harmony.write import conversation as c
from trt_responses.store.base import Block
from trt_responses.tokens.control import CONTROL
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.read.reader import Reader, Span
    from trt_responses.harmony.write.render import Renderer
    from trt_responses.store.base import Kind
    from trt_responses.wire.response import Response

    WrittenItem = (
        o.OutputMessage
        | o.OutputReasoning
        | o.OutputFunctionCall
        | o.OutputCustomCall
        | o.OutputCodeCall
    )

CALLS = (o.OutputFunctionCall, o.OutputCustomCall)
CODE_CHANNEL = "analysis"
"""Of a call that is run here and named no channel, and of its answer."""


async def output_blocks(response: Response, reader: Reader, renderer: Renderer) -> list[Block]:
    """The response's own items, with the ids that the model wrote.

    A message that was written by Harmony's rules keeps its ids, so that the next prompt extends
    what the engine has cached. Any other is rendered anew: the model must not learn from its own
    slip, nor find a header in a text. A call that was cut is dropped, for nobody can answer it.
    """
    blocks = []
    for item, span in zip_longest(response.output, reader.messages):
        if span is None:  # a thought that says nothing, and carries what tools have answered
            blocks.append(Block("reasoning", orjson.dumps(item), b""))
            continue
        assert not isinstance(item, o.OutputCompaction), "no message of the model's is one"
        if not lasting(item):
            continue
        ids = (
            own_ids(reader.kept, span, renderer.generation_prompt)
            if _lawful(item, span)
            else await _rendered(item, span, renderer)
        )
        if isinstance(item, o.OutputCodeCall) and not _lawful(item, span):
            ids += answer_ids(reader.kept, span)
        call_id = item.call_id if isinstance(item, CALLS) else None
        callee = _callee(item, span) if call_id else None
        blocks.append(Block(_kind(item, span), orjson.dumps(item), ids.tobytes(), call_id, callee))
    return blocks


def lasting(item: o.OutputItem) -> bool:
    """Whether an item stays in the conversation: nobody can answer a call that was cut, or whose
    run was broken off."""
    if isinstance(item, o.OutputCodeCall):
        return item.status in ("completed", "failed")
    return not isinstance(item, CALLS) or item.status == "completed"


def _lawful(item: o.OutputItem, span: Span) -> bool:
    """Whether a message's own ids are what Harmony writes for its item."""
    is_call = isinstance(item, (*CALLS, o.OutputCodeCall))
    if isinstance(item, o.OutputCodeCall) and span.channel is None:
        return False
    return not span.repaired and is_call == (span.recipient is not None)


def own_ids(kept: Sequence[int], span: Span, opening: Sequence[int]) -> array[int]:
    """A message's ids as they stand in later prompts: author first, the lawful terminator last.

    The author of the first message is not among the kept ids: the prompt ended with it.
    """
    ids = array("I", kept[span.start : span.end])
    if not ids or ids[0] != CONTROL.start:
        ids = array("I", opening) + ids
    if span.terminator is not None:
        ids.pop()
    ids.append(CONTROL.call if span.recipient else CONTROL.end)
    return ids + answer_ids(kept, span)


def answer_ids(kept: Sequence[int], span: Span) -> array[int]:
    """What a tool of the server's answered to a call: it goes where the call goes."""
    return array("I", kept[span.end : span.end + span.answer_tokens])


def _kind(item: WrittenItem, span: Span) -> Kind:
    match item:
        case o.OutputCodeCall():  # what a thought has looked up leaves with the thought
            return "reasoning" if (span.channel or CODE_CHANNEL) == "analysis" else "call"
        case o.OutputReasoning():
            return "reasoning"
        case o.OutputMessage():
            return "preamble" if item.phase == "commentary" else "final"
        case o.OutputFunctionCall() | o.OutputCustomCall():
            return "call"
        case _:
            assert_never(item)


def _callee(item: o.OutputItem, span: Span) -> str:
    assert isinstance(item, CALLS)
    if span.recipient is not None:
        return span.recipient
    if isinstance(item, o.OutputNamespacedCall | o.OutputNamespacedCustomCall):
        return c.callee_of(item.name, item.namespace)
    return c.callee_of(item.name)


async def _rendered(item: WrittenItem, span: Span, renderer: Renderer) -> array[int]:
    match item:
        case o.OutputReasoning():
            message = c.reasoning_message(item.text)
        case o.OutputMessage():
            message = c.answer_message(item.phase, "".join(part.text for part in item.content))
        case o.OutputFunctionCall():
            message = c.call_message(_callee(item, span), item.arguments)
        case o.OutputCustomCall():
            message = c.call_message(_callee(item, span), c.wrapped(item.input))
        case o.OutputCodeCall():
            message = c.code_message(span.recipient or "", item.code, span.channel or CODE_CHANNEL)
        case _:
            assert_never(item)
    return await renderer.message(message)
