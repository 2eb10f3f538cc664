"""Reads a prompt into the engine's prefix cache, for clients that know the beginning of a
conversation before its first question. Knows the engine's seam; knows no request."""

from __future__ import annotations

from trt_responses.engine import Chunk
from trt_responses.run.ending import End, end_of
from trt_responses.run.generation import Generation
from trt_responses.run.sink import Sink

TOKENS = 1
"""The tokens to generate: an engine reads a prompt in order to write, so the least possible; they
are discarded."""


class PrefillSink(Sink):
    """A sink that drops what the engine writes."""

    def _look(self, chunk: Chunk) -> None:
        if self.verdict is not None:
            return
        self._beginnings.note(chunk)
        if chunk.finish is not None:
            end = end_of(chunk)
            self._end(end if end.status == "failed" else End("completed"))


class Prefill(Generation):
    """A generation that reads its prompt and writes nothing."""

    def close(self, *, stopped: bool) -> None:
        """Do nothing: no item is open."""
