"""Deltas that a stream of an API does not show."""

from __future__ import annotations

from trt_responses.log.entries import Deltas


class SilentDeltas(Deltas):
    """Deltas of a text that the stream does not show."""

    __slots__ = ()

    def frames(self, start: int) -> list[bytes]:
        return [b""] * (len(self.pieces) - start)
