"""What spellings of other APIs than Responses share: events and deltas that they do not show."""

from __future__ import annotations

import orjson

from trt_responses.log.entries import Deltas
from trt_responses.wire import events as e
from trt_responses.wire.response import Response

SILENT = frozenset(
    (e.InProgress, e.ContentPartAdded, e.ContentPartDone, e.OutputTextDone, e.ReasoningTextDone)
)
"""Events that each message has, and of which only the Responses API tells."""


class OtherSpelling:
    """A spelling that repeats no state, and writes a snapshot as it is."""

    def repeated(self, response: Response, number: int) -> bytes:
        return b""

    def json_of(self, response: Response) -> bytes:
        return orjson.dumps(response)


class SilentDeltas(Deltas):
    """Deltas of a text that the stream does not show."""

    __slots__ = ()

    def frames(self, start: int) -> list[bytes]:
        return [b""] * (len(self.pieces) - start)
