"""Folds events to a response, one at a time. Pure: it knows neither their source nor who asks.

This is the only place where a response's output is put together. The machine reads back what was
folded here when it needs a text as a whole; there is no second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trt_responses.frozen import replace
from trt_responses.wire import events as e
from trt_responses.wire.output import (
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputPart,
    OutputReasoning,
    OutputText,
)

Output = tuple[OutputItem, ...]

PARTED = OutputMessage, OutputReasoning


def output_after(output: Output, event: e.OutputEvent) -> Output:
    """The items after the event. A response is a wide thing to copy for each event."""
    if isinstance(event, e.OutputItemAdded):
        return (*output, event.item)
    index = event.output_index
    before = output[index]
    item = event.item if isinstance(event, e.OutputItemDone) else _changed(before, event)
    return output if item is before else (*output[:index], item, *output[index + 1 :])


def _changed(item: OutputItem, event: e.ItemEvent) -> OutputItem:
    if (change := CHANGES.get(type(event))) is not None:
        return change(item, event)
    assert isinstance(event, e.FolderEvent)
    return event.changed(item)


def _part_added(item: OutputItem, event: e.ContentPartAdded) -> OutputItem:
    return _with_parts(item, (*_parts(item), event.part))


def _part_done(item: OutputItem, event: e.ContentPartDone) -> OutputItem:
    known = _parts(item)[event.content_index]
    return item if known is event.part else _with_part(item, event.content_index, event.part)


def _text_grown(item: OutputItem, event: e.OutputTextDelta | e.ReasoningTextDelta) -> OutputItem:
    part = _parts(item)[event.content_index]
    longer = replace(part, text=part.text + event.delta)
    if isinstance(longer, OutputText) and isinstance(event, e.OutputTextDelta) and event.logprobs:
        longer = replace(longer, logprobs=longer.logprobs + event.logprobs)
    return _with_part(item, event.content_index, longer)


def _text_done(item: OutputItem, event: e.OutputTextDone | e.ReasoningTextDone) -> OutputItem:
    part = _parts(item)[event.content_index]
    if part.text is event.text:  # the machine's, which has read it here: nothing is copied
        return item
    return _with_part(item, event.content_index, replace(part, text=event.text))


def _arguments_grown(item: OutputItem, event: e.FunctionCallArgumentsDelta) -> OutputItem:
    call = _call(item)
    return replace(call, arguments=call.arguments + event.delta)


def _arguments_done(item: OutputItem, event: e.FunctionCallArgumentsDone) -> OutputItem:
    return replace(_call(item), arguments=event.arguments)


CHANGES: Mapping[type, Callable[[Any, Any], OutputItem]] = {
    e.ContentPartAdded: _part_added,
    e.ContentPartDone: _part_done,
    e.OutputTextDelta: _text_grown,
    e.ReasoningTextDelta: _text_grown,
    e.OutputTextDone: _text_done,
    e.ReasoningTextDone: _text_done,
    e.FunctionCallArgumentsDelta: _arguments_grown,
    e.FunctionCallArgumentsDone: _arguments_done,
}
"""What each event makes of its item; a folder's event says it itself."""


def _with_part(item: OutputItem, index: int, part: OutputPart) -> OutputItem:
    parts = _parts(item)
    return _with_parts(item, (*parts[:index], part, *parts[index + 1 :]))


def _with_parts(item: OutputItem, parts: tuple[OutputPart, ...]) -> OutputItem:
    # The kinds of part and item are paired by the machine; the type checker cannot see the pairing.
    return replace(item, content=parts)  # type: ignore[type-var]


def _parts(item: OutputItem) -> tuple[OutputPart, ...]:
    if not isinstance(item, PARTED):
        raise TypeError(f"a {item.type} has no content")
    return item.content


def _call(item: OutputItem) -> OutputFunctionCall:
    if not isinstance(item, OutputFunctionCall):
        raise TypeError(f"a {item.type} has no arguments")
    return item
