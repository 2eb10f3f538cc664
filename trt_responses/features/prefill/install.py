"""Prompts that are read for a later request, which goes on from them.

A prompt is read into the engine's prefix cache, for clients that know the beginning of a
conversation before its first question.
"""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.engine import Chunk
from trt_responses.feature import Step
from trt_responses.run.draft import Draft
from trt_responses.run.ending import End, end_of
from trt_responses.run.generation import Generation
from trt_responses.run.sink import Sink
from trt_responses.setup.server import Server

TOKENS = 1
"""The tokens to generate: an engine reads a prompt in order to write, so the least possible; they
are discarded."""


def install(server: Server) -> None:
    server.features.append(Prefills())


class Prefills:
    """Reads a prompt into the engine's cache, and writes nothing."""

    reads = ("generates",)

    def accept(self, accepted: Accepted) -> Step | None:
        return None if accepted.generates else PrefillStep()


class PrefillStep(Step):
    """Has one run read its prompt, and no more."""

    async def prompted(self, draft: Draft) -> None:
        if draft.answers:
            draft.answers, draft.writes_tokens = False, TOKENS
            draft.generation, draft.sink = Prefill, PrefillSink


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
