"""A sink that hands its reader how likely each token was; no other sink knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.errors import unsupported_value
from trt_responses.run.sink import Sink
from trt_responses.wire.judge import LOGPROBS

if TYPE_CHECKING:
    from trt_responses.engine import Chunk, Limits
    from trt_responses.features.logprobs.reader import ScoredReader


class ScoredSink(Sink):
    """A sink that gives its reader the engine's log probabilities."""

    def __init__(self, reader: ScoredReader, *parts: Any) -> None:
        super().__init__(reader, *parts)
        self._take_logprobs = reader.take_logprobs

    def push(self, chunk: Chunk) -> None:
        self._take_logprobs(chunk.logprobs)
        super().push(chunk)


def check_logprobs(count: int | None, limits: Limits) -> None:
    """Refuse a number of likely tokens that the engine does not tell; None asks for none."""
    if count is None:
        return
    if limits.max_logprobs < 1:
        raise unsupported_value("include", f"this engine does not tell '{LOGPROBS}'")
    if count > limits.max_logprobs:
        raise unsupported_value(
            "top_logprobs", f"this engine tells {limits.max_logprobs} at most, got {count}"
        )
