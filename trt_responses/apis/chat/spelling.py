"""How a log is written as the chunks of a chat completion.

A client's accumulator joins the strings of all deltas, so a role, a call's id and its name are
written exactly once. Knows events and entries; knows no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from trt_responses.apis.chat.output import (
    annotations_of,
    call_of,
    chat_id,
    executed,
    finish_of,
    logprobs_of,
    usage_of,
)
from trt_responses.apis.chat.silent import SILENT, OtherSpelling, SilentDeltas
from trt_responses.log.entries import Deltas, ScoredDeltas, unnumbered
from trt_responses.wire import events as e
from trt_responses.wire.events import Delta, Event
from trt_responses.wire.response import Response

END = b"]}\n\n"


TEXT_TAIL, CALL_TAIL = b'"}}' + END, b'"}}]}}' + END
TEXT_TAILS, CALL_TAILS = unnumbered(TEXT_TAIL), unnumbered(CALL_TAIL)


class ChatSpelling(OtherSpelling):
    """The chunks of one completion. With `usage`, the last chunk has it and all others have a null;
    with `logprobs`, chunks without any have a null. A thought stands in the fields `thought`."""

    def __init__(
        self, response: Response, *, usage: bool, thought: Sequence[str], logprobs: bool = False
    ) -> None:
        self._usage = usage
        self._thought = thought
        self._logprobs = logprobs
        self._calls: dict[str, int] = {}
        """The number of each call among the calls, by its item's id."""
        self._executed = 0
        shared = {
            "id": chat_id(response),
            "object": "chat.completion.chunk",
            "created": response.created_at,
            "model": response.model,
        }
        self._shared = b"data: " + orjson.dumps(shared)[:-1]
        self._head = self._shared + (b',"usage":null' if usage else b"") + b',"choices":['

    def frame(self, event: Event, number: int) -> bytes:
        if type(event) in SILENT:
            return b""
        match event:
            case e.Created():
                return self._chunk({"role": "assistant", "content": ""})
            case e.OutputItemAdded(item=item) if (call := call_of(item)) is not None:
                return self._chunk({"tool_calls": [{"index": self._place(item.id)} | call]})
            case e.OutputItemDone(item=item) if (tool := executed(item)) is not None:
                at, self._executed = self._executed, self._executed + 1
                return self._chunk({"executed_tools": [{"index": at, **tool}]})
            case e.Error():
                error = {"message": event.message, "type": "server_error", "param": event.param}
                return b"data: %b\n\n" % orjson.dumps({"error": error | {"code": event.code}})
            case e.Completed() | e.Incomplete():
                cited = annotations_of(event.response.output)  # numbered for the accumulators
                notes = [{"index": at, **one} for at, one in enumerate(cited)]
                delta = {"annotations": notes} if notes else {}
                last = self._chunk(delta, finish_of(event.response))
                return last + self._usage_chunk(event.response) if self._usage else last
            case _:
                return b""

    def deltas(self, first: int, template: Delta, *, scored: bool) -> Deltas:
        if isinstance(template, e.OutputTextDelta):
            head = self._delta_head(b'{"content":"', scored=scored)
            if scored:
                return _ScoredChunks(first, template, head)
            return Deltas(first, template, head, TEXT_TAILS, lambda _: TEXT_TAIL)
        if isinstance(template, e.ReasoningTextDelta):
            kind = (SilentDeltas, Deltas, _ThoughtChunks)[len(self._thought)]
            name = self._thought[0] if self._thought else ""
            head = self._delta_head(b'{"%b":"' % name.encode())
            return kind(first, template, head, TEXT_TAILS, lambda _: TEXT_TAIL)
        custom = template.type == "response.custom_tool_call_input.delta"
        if isinstance(template, e.FolderDelta) and not custom:  # of a call that the server runs
            return SilentDeltas(first, template, b"")
        key = b'"custom":{"input' if custom else b'"function":{"arguments'
        head = self._delta_head(
            b'{"tool_calls":[{"index":%d,%b":"' % (self._place(template.item_id), key)
        )
        return Deltas(first, template, head, CALL_TAILS, lambda _: CALL_TAIL)

    def _place(self, item_id: str) -> int:
        return self._calls.setdefault(item_id, len(self._calls))

    def _delta_head(self, begun: bytes, *, scored: bool = False) -> bytes:
        """The part of a chunk before the text of its delta."""
        null = b'"logprobs":null,' if self._logprobs and not scored else b""
        return self._head + b'{"index":0,"finish_reason":null,%b"delta":%b' % (null, begun)

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        null = {"logprobs": None} if self._logprobs else {}
        return self._head + orjson.dumps(choice | null) + END

    def _usage_chunk(self, response: Response) -> bytes:
        usage = orjson.dumps(usage_of(response.usage))
        return self._shared + b',"usage":%b,"choices":[' % usage + END


class _ThoughtChunks(Deltas):
    """Chunks of a thought, under both of the names that clients read, since no one of them serves
    all."""

    __slots__ = ()

    def frames(self, start: int) -> list[bytes]:
        between = b'","reasoning_content":"'
        return [self.head + piece + between + piece + TEXT_TAIL for piece in self.pieces[start:]]


class _ScoredChunks(ScoredDeltas):
    """Chunks of text with the log probabilities of their tokens."""

    __slots__ = ()

    def frames(self, start: int) -> list[bytes]:
        scored = zip(self.pieces[start:], self.logprobs[start:], strict=True)
        return [
            b'%b%b"},"logprobs":%b}%b'
            % (self.head, piece, orjson.dumps(logprobs_of(of_token)), END)
            for piece, of_token in scored
        ]
