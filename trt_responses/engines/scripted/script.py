"""What a scripted engine replays: values, and nothing that runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from trt_responses.engine import Chunk, Logprob


@dataclass(frozen=True, slots=True)
class Scored:
    """One step's ids, each with the logprobs to report when they are asked for."""

    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Stall:
    """A step from which on the request gets nothing; it keeps its place in the batch until it is
    aborted."""


@dataclass(frozen=True, slots=True)
class Die:
    """The request ends with this error; the engine lives."""

    message: str


Step = tuple[int, ...] | Scored | Stall | Die


@dataclass(frozen=True, slots=True)
class Script:
    """What one request gets, step by step, and how it ends when no id stopped it before."""

    steps: tuple[Step, ...] = ()
    finish: Literal["stop", "length"] = "stop"
    cached_tokens: int | None = None
    metrics: Mapping[str, float] | None = None
    """What the engine says that it measured, to those who ask."""
    chunks: tuple[Chunk | None, ...] = field(init=False, repr=False, compare=False)
    """The chunks of the steps without anything special, made once and not for each request."""
    told: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The number of ids before each step, as far as nothing special was among them."""
    _leads: dict[frozenset[int], int] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        chunks = [Chunk(step) if isinstance(step, tuple) else None for step in self.steps]
        sizes = (len(chunk.token_ids) if chunk else 0 for chunk in chunks)
        object.__setattr__(self, "chunks", tuple(chunks))
        object.__setattr__(self, "told", tuple(accumulate(sizes, initial=0)))

    def plain_steps(self, stops: frozenset[int], room: int) -> int:
        """How many steps come before the first that ends the request, or is more than ids."""
        if (lead := self._leads.get(stops)) is None:
            lead = self._leads[stops] = self._lead(stops)
        return min(lead, max(0, bisect_left(self.told, room) - 1))

    def _lead(self, stops: frozenset[int]) -> int:
        last = max(0, len(self.steps) - 1)
        for place, chunk in enumerate(self.chunks[:last]):
            if chunk is None or not stops.isdisjoint(chunk.token_ids):
                return place
        return last
