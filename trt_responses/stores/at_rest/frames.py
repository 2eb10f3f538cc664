"""Stored frames of background streams: compressed, selected by number, with a size limit.

A frame ends with an empty line and contains none, since its data is JSON. No store and no events
here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from trt_responses.stores.at_rest.compress import gently, squeeze, stretch
from trt_responses.stores.whole import Frames

END = b"\n\n"


def after(kept: Frames, number: int) -> Frames:
    """The frames with greater numbers."""
    skip = number + 1 - kept.first
    if skip <= 0:
        return kept
    if skip >= kept.count:
        return Frames(kept.first + kept.count, 0, b"", kept.ended)
    data = b"".join(frame + END for frame in kept.data.split(END)[skip:-1])
    return Frames(kept.first + skip, kept.count - skip, data, kept.ended)


async def squeezed(frames: Frames) -> Frames:
    """Frames in compressed form."""
    return replace(frames, data=await gently(squeeze, frames.data))


async def stretched(pieces: Sequence[Frames], number: int) -> Frames:
    """The frames after a number, from consecutive compressed pieces: those with such frames, or the
    last piece."""
    first, *rest = [replace(p, data=await gently(stretch, p.data)) for p in pieces]
    first = after(first, number)
    data = b"".join((first.data, *(piece.data for piece in rest)))
    count = first.count + sum(piece.count for piece in rest)
    return Frames(first.first, count, data, pieces[-1].ended)


class FrameShelf:
    """Compressed frames in memory by response; drops the oldest responses above its limit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: OrderedDict[str, list[Frames]] = OrderedDict()
        self.size_bytes = 0

    def append(self, response_id: str, squeezed: Frames) -> None:
        """Append frames. Frames whose beginning was dropped are useless and are ignored."""
        pieces = self._pieces.get(response_id, [])
        if squeezed.first != (pieces[-1].first + pieces[-1].count if pieces else 0):
            return
        self._pieces.setdefault(response_id, pieces).append(squeezed)
        self.size_bytes += len(squeezed.data)
        while self.size_bytes > self._max_bytes and len(self._pieces) > 1:
            self.drop(next(iter(self._pieces)))

    def beyond(self, response_id: str, number: int) -> list[Frames] | None:
        """The pieces with greater numbers, or else the last piece."""
        pieces = self._pieces.get(response_id)
        if not pieces:
            return None
        later = [piece for piece in pieces if piece.first + piece.count > number + 1]
        return later or pieces[-1:]

    def drop(self, response_id: str) -> None:
        for piece in self._pieces.pop(response_id, ()):
            self.size_bytes -= len(piece.data)

    def clear(self) -> None:
        self._pieces.clear()
        self.size_bytes = 0
