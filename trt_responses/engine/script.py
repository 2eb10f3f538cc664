"""What a scripted engine replays: values, and nothing that runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trt_responses.engine.base import Chunk, Logprob


@dataclass(frozen=True, slots=True)
class Scored:
    """One step's ids, each with the logprobs to report when they are asked for."""

    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Stall:
    """From here the request never goes on; it keeps its place in the batch until aborted."""


@dataclass(frozen=True, slots=True)
class Die:
    """The request finishes with this error; the engine lives."""

    message: str


Step = tuple[int, ...] | Scored | Stall | Die


@dataclass(frozen=True, slots=True)
class Script:
    """What one request gets, step by step, and how it ends when no id stopped it before."""

    steps: tuple[Step, ...] = ()
    finish: Literal["stop", "length"] = "stop"
    cached_tokens: int | None = None
    chunks: tuple[Chunk | None, ...] = field(init=False, repr=False, compare=False)
    """What a step pushes when nothing is special about it: made once, not once per request."""

    def __post_init__(self) -> None:
        chunks = (Chunk(step) if isinstance(step, tuple) else None for step in self.steps)
        object.__setattr__(self, "chunks", tuple(chunks))
