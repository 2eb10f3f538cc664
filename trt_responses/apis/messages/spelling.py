"""How a log is written as the events of Anthropic's Messages API.

Each item is a block. Knows events and entries; knows no request.
"""

from __future__ import annotations

from typing import Any

import orjson

from trt_responses.apis.chat.silent import SILENT, OtherSpelling, SilentDeltas
from trt_responses.apis.messages.hosted import citation_of, result_of, use_of
from trt_responses.apis.messages.output import (
    Thoughts,
    begun,
    block_of,
    ending_of,
    error_of,
    signature_of,
)
from trt_responses.errors import ApiError
from trt_responses.frozen import replace
from trt_responses.log.entries import Deltas, unnumbered
from trt_responses.wire import events as e
from trt_responses.wire.events import Delta, Event
from trt_responses.wire.output import OutputItem, OutputReasoning, UrlCitation
from trt_responses.wire.response import Response

TAIL = b'"}}\n\n'
TAILS = unnumbered(TAIL)

KINDS = {
    e.OutputTextDelta: b'{"type":"text_delta","text":"',
    e.ReasoningTextDelta: b'{"type":"thinking_delta","thinking":"',
    e.FunctionCallArgumentsDelta: b'{"type":"input_json_delta","partial_json":"',
}


WHOLE = {
    "response.code_interpreter_call_code.done": "code",
    "response.mcp_call_arguments.done": "arguments",
}
"""The events with which the text of a call is whole that the server runs, and its key there."""
AT_ONCE = ("web_search_call",)
"""The items of such calls whose text is whole when they begin."""
RESULT = "/result"


class MessagesSpelling(OtherSpelling):
    """The events of one message."""

    def __init__(self, response: Response, prompt_tokens: int, *, thoughts: Thoughts) -> None:
        self._begun = begun(response, prompt_tokens)
        self._thoughts = thoughts
        self._blocks: dict[str, int] = {}
        """The number of each block, by its item's id."""
        self._calls: dict[str, OutputItem] = {}
        """The calls that the server runs, as they began."""

    def repeated(self, response: Response, number: int) -> bytes:
        return _frame("ping")

    def frame(self, event: Event, number: int) -> bytes:
        if type(event) in SILENT:
            return b""
        match event:
            case e.Created():
                return _frame("message_start", message=self._begun)
            case e.OutputItemAdded(item=item):
                return self._block_start(item)
            case e.FolderEvent(type=kind) if kind in WHOLE:
                return self._called(event)
            case e.OutputItemDone(item=item) if item.id in self._calls:
                return self._block(item.id + RESULT, result_of(item))
            case e.FolderEvent(type="response.output_text.annotation.added"):
                return self._noted(event)
            case e.OutputItemDone(item=item) if item.id in self._blocks:
                return self._block_stop(item)
            case e.Completed(response=response, stop=stop):
                return _ended(response, stop)
            case e.Incomplete(response=response):
                return _ended(response, None)
            case e.Error(message=message):
                return _frame(**error_of(ApiError(message)))
            case _:
                return b""

    def deltas(self, first: int, template: Delta, *, scored: bool) -> Deltas:
        if isinstance(template, e.FolderDelta):  # of a call that the server runs: see `_called`
            return SilentDeltas(first, template, b"")
        thoughts = self._thoughts if isinstance(template, e.ReasoningTextDelta) else "shown"
        if thoughts != "hidden":
            index = self._place(template.item_id)
        if thoughts != "shown":
            return SilentDeltas(first, template, b"")
        head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,' % index
        )
        head += b'"delta":' + KINDS[type(template)]
        return Deltas(first, template, head, TAILS, lambda _: TAIL)

    def _place(self, item_id: str) -> int:
        """The number of an item's block. Called first in the items' order."""
        return self._blocks.setdefault(item_id, len(self._blocks))

    def _called(self, event: Any) -> bytes:
        """A call that the server runs, when its text is whole."""
        name, begun = WHOLE[event.type], self._calls[event.item_id]
        whole: Any = begun  # one of a folder's dataclasses
        return self._use(replace(whole, **{name: getattr(event, name)}))

    def _noted(self, event: Any) -> bytes:
        """A citation of a page; others have no like here."""
        if not isinstance(event.annotation, UrlCitation):
            return b""
        delta = {"type": "citations_delta", "citation": citation_of(event.annotation)}
        return _frame("content_block_delta", index=self._place(event.item_id), delta=delta)

    def _use(self, item: OutputItem) -> bytes:
        block = use_of(item)
        assert block is not None, "another item is no call"
        written = orjson.dumps(block["input"]).decode()
        delta = {"type": "input_json_delta", "partial_json": written}
        return self._block(item.id, block | {"input": {}}, delta)

    def _block(self, key: str, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        """A block that is whole."""
        at = self._place(key)
        frames = [_frame("content_block_start", index=at, content_block=block)]
        frames += [_frame("content_block_delta", index=at, delta=delta) for delta in deltas]
        return b"".join((*frames, _frame("content_block_stop", index=at)))

    def _block_start(self, item: OutputItem) -> bytes:
        if use_of(item) is not None:
            self._calls[item.id] = item
            return self._use(item) if item.type in AT_ONCE else b""
        block = block_of(item, self._thoughts)
        if block is None:
            return b""
        return _frame("content_block_start", index=self._place(item.id), content_block=block)

    def _block_stop(self, item: OutputItem) -> bytes:
        index = self._blocks[item.id]
        stop = _frame("content_block_stop", index=index)
        if not isinstance(item, OutputReasoning):
            return stop
        delta = {"type": "signature_delta", "signature": signature_of(item)}
        return _frame("content_block_delta", index=index, delta=delta) + stop


def _ended(response: Response, stop: str | None) -> bytes:
    delta, usage = ending_of(response, stop)
    last = _frame("message_delta", delta=delta, usage=usage)
    return last + _frame("message_stop")


def _frame(type: str, **fields: Any) -> bytes:
    body = orjson.dumps({"type": type} | fields)
    return b"event: %b\ndata: %b\n\n" % (type.encode(), body)
