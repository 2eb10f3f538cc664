"""A generation for those who asked how likely each token was. Nobody else's knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.errors import Unsupported
from trt_responses.response.generation import Generation

if TYPE_CHECKING:
    from trt_responses.engine.base import Chunk, Limits
    from trt_responses.harmony.read.logprobs import ScoredReader
    from trt_responses.wire.request import Request

WANTED = "message.output_text.logprobs"


class ScoredGeneration(Generation):
    """Tells its reader what the engine says of each id."""

    def __init__(self, *, reader: ScoredReader, **parts: Any) -> None:
        super().__init__(reader=reader, **parts)
        self._hear = reader.hear

    def push(self, chunk: Chunk) -> None:
        self._hear(chunk.logprobs)
        super().push(chunk)


def wanted_logprobs(request: Request, limits: Limits) -> int | None:
    """How many likely tokens are told beside each; None when nothing is."""
    if WANTED not in (request.include or ()):
        return None
    count = request.top_logprobs or 0
    if limits.max_logprobs < 1:
        raise Unsupported(
            f"Unsupported value for 'include': this engine does not tell '{WANTED}'.",
            param="include",
        )
    if count > limits.max_logprobs:
        raise Unsupported(
            f"Unsupported value for 'top_logprobs': this engine tells {limits.max_logprobs} at "
            f"most, got {count}.",
            param="top_logprobs",
        )
    return count
