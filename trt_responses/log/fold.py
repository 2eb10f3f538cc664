"""Folds events to a response, one at a time. Pure: it knows neither their source nor who asks.

This is the only place where a response's output is put together. The machine reads back what was
folded here when it needs a text as a whole; there is no second copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from trt_responses.frozen import replace
from trt_responses.wire import events as e
from trt_responses.wire.output import (
    OutputFunctionCall,
    OutputMessage,
    OutputReasoning,
    OutputText,
)

if TYPE_CHECKING:
    from trt_responses.wire.output import OutputItem, OutputPart

    Output = tuple[OutputItem, ...]


def output_after(output: Output, event: e.OutputEvent) -> Output:
    """The items after the event. A response is a wide thing to copy for each event."""
    match event:
        case e.OutputItemAdded():
            return (*output, event.item)
        case e.OutputItemDone():
            return _with_item(output, event.output_index, event.item)
        case _:
            before = output[event.output_index]
            item = _changed(before, event)
            return output if item is before else _with_item(output, event.output_index, item)


def _changed(item: OutputItem, event: e.ItemEvent) -> OutputItem:
    match event:
        case e.ContentPartAdded():
            return _with_parts(item, (*_parts(item), event.part))
        case e.ContentPartDone():
            known = _parts(item)[event.content_index]
            return (
                item if known is event.part else _with_part(item, event.content_index, event.part)
            )
        case e.OutputTextDelta() | e.ReasoningTextDelta():
            part = _with_text(_parts(item)[event.content_index], event)
            return _with_part(item, event.content_index, part)
        case e.OutputTextDone() | e.ReasoningTextDone():
            part = _parts(item)[event.content_index]
            if part.text is event.text:  # the machine's, which has read it here: nothing is copied
                return item
            return _with_part(item, event.content_index, replace(part, text=event.text))
        case e.FunctionCallArgumentsDelta():
            call = _call(item)
            return replace(call, arguments=call.arguments + event.delta)
        case e.FunctionCallArgumentsDone():
            return replace(_call(item), arguments=event.arguments)
        case e.FolderDelta() | e.FolderEvent():
            return event.changed(item)
        case _:
            assert_never(event)


def _with_text(part: OutputPart, event: e.OutputTextDelta | e.ReasoningTextDelta) -> OutputPart:
    longer = replace(part, text=part.text + event.delta)
    if isinstance(longer, OutputText) and isinstance(event, e.OutputTextDelta) and event.logprobs:
        return replace(longer, logprobs=longer.logprobs + event.logprobs)
    return longer


def _with_item(output: Output, index: int, item: OutputItem) -> Output:
    return (*output[:index], item, *output[index + 1 :])


def _with_part(item: OutputItem, index: int, part: OutputPart) -> OutputItem:
    parts = _parts(item)
    return _with_parts(item, (*parts[:index], part, *parts[index + 1 :]))


def _with_parts(item: OutputItem, parts: tuple[OutputPart, ...]) -> OutputItem:
    # The kinds of part and item are paired by the machine; the type checker cannot see the pairing.
    return replace(item, content=parts)  # type: ignore[type-var]


def _parts(item: OutputItem) -> tuple[OutputPart, ...]:
    match item:
        case OutputMessage() | OutputReasoning():
            return item.content
        case _:
            raise TypeError(f"a {item.type} has no content")


def _call(item: OutputItem) -> OutputFunctionCall:
    if not isinstance(item, OutputFunctionCall):
        raise TypeError(f"a {item.type} has no arguments")
    return item
