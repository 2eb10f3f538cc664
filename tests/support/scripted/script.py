"""The scripts of a scripted engine, as values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from trt_responses.engine import Chunk, Logprob


@dataclass(frozen=True, slots=True)
class Scored:
    """One step's ids with their logprobs, which are reported on request."""

    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Stall:
    """A step after which the request gets nothing; it keeps its place in the batch until
    aborted."""


@dataclass(frozen=True, slots=True)
class Die:
    """A step that ends the request with this error; the engine stays alive."""

    message: str


Step = tuple[int, ...] | Scored | Stall | Die


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of one request, and its finish if no id stops it before."""

    steps: tuple[Step, ...] = ()
    finish: Literal["stop", "length"] = "stop"
    cached_tokens: int | None = None
    metrics: Mapping[str, float] | None = None
    """The engine's metrics, for requests that want them."""
    chunks: tuple[Chunk | None, ...] = field(init=False, repr=False, compare=False)
    """The chunks of plain steps, shared by all requests."""
    ids_before: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The number of ids in plain steps before each step."""
    _leads: dict[frozenset[int], int] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        chunks = [Chunk(step) if isinstance(step, tuple) else None for step in self.steps]
        sizes = (len(chunk.token_ids) if chunk else 0 for chunk in chunks)
        object.__setattr__(self, "chunks", tuple(chunks))
        object.__setattr__(self, "ids_before", tuple(accumulate(sizes, initial=0)))

    def plain_steps(self, stops: frozenset[int], room: int) -> int:
        """The number of steps before the first that ends the request or is not plain ids."""
        if (lead := self._leads.get(stops)) is None:
            lead = self._leads[stops] = self._lead(stops)
        return min(lead, max(0, bisect_left(self.ids_before, room) - 1))

    def _lead(self, stops: frozenset[int]) -> int:
        last = max(0, len(self.steps) - 1)
        for place, chunk in enumerate(self.chunks[:last]):
            if chunk is None or not stops.isdisjoint(chunk.token_ids):
                return place
        return last
