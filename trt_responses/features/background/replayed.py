"""A run made again from the ids that another server's engine generated, and then resumed.

The whole way from ids to events is repeated, with an engine that replays the known ids and then
goes away: what follows is what follows any lost engine. Knows the engine's seam; knows no store and
no event.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Callable, Sequence

from trt_responses.engine import Chunk, Engine, GenerateOptions, Handle, Sink

AT_ONCE = 512
"""The ids that are read again in one turn of the loop: half a millisecond."""


def digest_of(prompt_ids: Sequence[int]) -> str:
    """A digest of a prompt."""
    return hashlib.blake2b(array("I", prompt_ids).tobytes(), digest_size=16).hexdigest()


class Replayed:
    """The engine of one run: it gives the ids that are known, and then is the engine itself.
    `on_over` is called when the last of them was read."""

    def __init__(
        self, engine: Engine, prompt_tokens: int, ids: Sequence[int], on_over: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._prompt_tokens = prompt_tokens
        self._ids = ids
        self._on_over = on_over
        self.health, self.limits = engine.health, engine.limits
        self.start, self.stop = engine.start, engine.stop

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        known = len(prompt_ids) - self._prompt_tokens
        if known >= len(self._ids):
            return self._engine.generate(prompt_ids, options, sink)
        return _Saying(self._ids, known, options, sink, self._on_over)


class _Saying:
    """One request: one id in each chunk, to one that ends it, or to the last. It is also the
    handle."""

    def __init__(
        self,
        ids: Sequence[int],
        place: int,
        options: GenerateOptions,
        sink: Sink,
        on_over: Callable[[], None],
    ) -> None:
        self._ids = ids
        self._place = place
        self._stops = frozenset(options.stop_ids)
        self._sink = sink
        self._on_over = on_over
        self._aborted = False
        asyncio.get_running_loop().call_soon(self._say)

    def abort(self) -> None:
        self._aborted = True

    def _say(self) -> None:
        for token_id in self._ids[self._place : self._place + AT_ONCE]:
            if self._aborted:
                return
            self._place += 1
            stops = token_id in self._stops
            last = self._place == len(self._ids)
            if stops:
                self._sink.push(Chunk((token_id,), finish="stop", stop_id=token_id))
            else:
                self._sink.push(Chunk((token_id,)))
            if last:
                self._on_over()
            if stops:
                return
        if self._aborted:
            return
        if self._place == len(self._ids):
            self._sink.push(Chunk(finish="error", error="The server stopped.", lost="moved"))
        else:
            asyncio.get_running_loop().call_soon(self._say)
