"""Frames of background streams: compressed, cut by their numbers, kept under a bound of their own.

A frame ends with an empty line and holds none, for its data is JSON. Knows no store and no event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from trt_responses.store import Frames
from trt_responses.stores.at_rest.compress import gently, squeeze, stretch

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
    """Frames as they are kept."""
    return replace(frames, data=await gently(squeeze, frames.data))


async def stretched(pieces: Sequence[Frames], number: int) -> Frames:
    """The frames beyond a number, of pieces as they are kept."""
    return joined([replace(p, data=await gently(stretch, p.data)) for p in pieces], number)


def joined(pieces: Sequence[Frames], number: int) -> Frames:
    """The frames of consecutive pieces beyond a number; there must be at least one."""
    last = pieces[-1]
    wanted = [piece for piece in pieces if piece.first + piece.count > number + 1]
    if not wanted:
        return Frames(last.first + last.count, 0, b"", last.ended)
    first = after(wanted[0], number)
    data = b"".join((first.data, *(piece.data for piece in wanted[1:])))
    count = first.count + sum(piece.count for piece in wanted[1:])
    return Frames(first.first, count, data, last.ended)


class FrameShelf:
    """Frames by response in memory, compressed; the responses that came first leave first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: OrderedDict[str, list[Frames]] = OrderedDict()
        self.size_bytes = 0

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._pieces

    def append(self, response_id: str, squeezed: Frames) -> None:
        """Keep more frames. Those whose beginning has left are of no use to anybody, and are not
        kept."""
        pieces = self._pieces.get(response_id, [])
        if squeezed.first != (pieces[-1].first + pieces[-1].count if pieces else 0):
            return
        self._pieces.setdefault(response_id, pieces).append(squeezed)
        self.size_bytes += len(squeezed.data)
        while self.size_bytes > self._max_bytes and len(self._pieces) > 1:
            self.drop(next(iter(self._pieces)))

    def beyond(self, response_id: str, number: int) -> list[Frames] | None:
        """The pieces that hold greater numbers, and the last in any case."""
        pieces = self._pieces.get(response_id)
        if not pieces:
            return None
        wanted = [piece for piece in pieces if piece.first + piece.count > number + 1]
        return wanted or pieces[-1:]

    def drop(self, response_id: str) -> None:
        for piece in self._pieces.pop(response_id, ()):
            self.size_bytes -= len(piece.data)

    def clear(self) -> None:
        self._pieces.clear()
        self.size_bytes = 0
