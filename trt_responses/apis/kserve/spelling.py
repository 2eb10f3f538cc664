"""Writes a log as the events of `generate_stream`: the answer's text, and an error.

The last event is not in the log: the endpoint writes it. Knows events and entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.apis.chat.silent import OtherSpelling, SilentDeltas
from trt_responses.log.entries import Deltas, unnumbered
from trt_responses.wire import events as e

if TYPE_CHECKING:
    from trt_responses.wire.events import Delta, Event

TAIL = b'"}\n\n'
TAILS = unnumbered(TAIL)


class KServeSpelling(OtherSpelling):
    """The events of one stream. `shared` is a JSON object whose keys stand in each of them."""

    def __init__(self, shared: bytes) -> None:
        self._head = b'data: %b,"text_output":"' % shared[:-1]

    def frame(self, event: Event, number: int) -> bytes:
        if isinstance(event, e.Error):
            return b"data: %b\n\n" % orjson.dumps({"error": event.message})
        return b""

    def deltas(self, first: int, template: Delta, *, scored: bool) -> Deltas:
        kind = Deltas if isinstance(template, e.OutputTextDelta) else SilentDeltas
        return kind(first, template, self._head, TAILS, lambda _: TAIL)
