"""One request in the batch: its ids, its progress in its slot, and its sampling. Also its handle.

The event loop sets `over`; the batch only reads it and drops the request. Everything else belongs
to the batch's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trt_responses.engine import Chunk, GenerateOptions, Loss, Sink
from trt_responses.engines.slots import Slot
from trt_responses.engines.tensorrt.guides import ENDS, Following, GuideFault
from trt_responses.engines.tensorrt.sampler import NothingAllowed, Row, Sampler, scored
from trt_responses.tokens.control import CONTROL

STOPS_BY_ITSELF = frozenset({CONTROL.endoftext})
"""The ids that always end a request, as on the other engines."""


class Request:
    """One request in the batch. Also its handle."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        left: int,
        sampler: Sampler,
        sink: Sink,
        on_over: Callable[[Request], None],
    ) -> None:
        self.options = options
        self.over = False
        self.ids = list(prompt_ids)
        """The ids of the prompt and the sampled ids."""
        self.written = 0
        """The number of these ids in the slot."""
        self.cached_tokens: int | None = None
        """The number of ids that were in the slot before; sent once."""
        self.slot: Slot | None = None
        self.following: Following | None = None
        self._left = left
        self._sampler = sampler
        self._sink = sink
        self._on_over = on_over
        self._stops = STOPS_BY_ITSELF.union(options.stop_ids)
        if options.guide is not None:
            self._stops |= ENDS

    @property
    def pending(self) -> int:
        """The number of ids to write before the next can be sampled."""
        return len(self.ids) - self.written

    def sample(self, row: Row) -> Chunk:
        """Sample the next id from its row. Returns its chunk."""
        try:
            token_id = self._next(row)
        except (GuideFault, NothingAllowed) as fault:
            return Chunk(finish="error", error=str(fault))
        self.ids.append(token_id)
        self._left -= 1
        cached, self.cached_tokens = self.cached_tokens, None
        count = self.options.logprobs
        logprobs = () if count is None else (scored(row, token_id, count),)
        if token_id in self._stops:
            return Chunk((token_id,), logprobs, cached, "stop", token_id)
        return Chunk((token_id,), logprobs, cached, None if self._left else "length")

    def _next(self, row: Row) -> int:
        if self.following is None:
            return self._sampler.pick(row)
        token_id = self._sampler.pick(row, self.following.allowed())
        self.following.take(token_id)
        return token_id

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def fail(self, reason: str, lost: Loss | None = None) -> None:
        self.emit(Chunk(finish="error", error=reason, lost=lost))

    def emit(self, chunk: Chunk) -> None:
        """Push a chunk, unless the request is over."""
        if self.over:
            return
        if chunk.finish is not None:
            self._leave()
        self._sink.push(chunk)

    def _leave(self) -> None:
        self.over = True
        self._on_over(self)
