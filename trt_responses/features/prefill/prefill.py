"""Reads a prompt into the engine's prefix cache, for clients that know the beginning of a
conversation before its first question. Knows the engine's seam; knows no request."""

from __future__ import annotations

from trt_responses.engine import Chunk
from trt_responses.run.ending import End, end_of
from trt_responses.run.generation import Generation

TOKENS = 1
"""The tokens to generate: an engine reads a prompt in order to write, so the least possible; they
are discarded."""


class Prefill(Generation):
    """A generation that reads its prompt and writes nothing."""

    def _look(self, chunk: Chunk) -> None:
        if self._verdict is not None:
            return
        self._first_chunk(chunk)
        if chunk.finish is not None:
            end = end_of(chunk)
            self._finish_segment(end if end.status == "failed" else End("completed"))

    def close(self, *, stopped: bool) -> None:
        """Do nothing: no item is open."""
