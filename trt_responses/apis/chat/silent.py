"""Events and deltas that a stream of an API does not show."""

from __future__ import annotations

from trt_responses.log.entries import Deltas
from trt_responses.wire import events as e

SILENT = frozenset(
    (e.InProgress, e.ContentPartAdded, e.ContentPartDone, e.OutputTextDone, e.ReasoningTextDone)
)
"""Events that each message has, and of which only the Responses API tells."""


class SilentDeltas(Deltas):
    """Deltas of a text that the stream does not show."""

    __slots__ = ()

    def frames(self, start: int) -> list[bytes]:
        return [b""] * (len(self.pieces) - start)
