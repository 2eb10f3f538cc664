"""The engine seam: prompt ids in, chunks of output ids out.

Knows no Harmony, no HTTP and no concrete engine. Three rules bind every engine:

1. `Sink.push` is called on the event loop's thread, at most once per engine step and request.
2. Exactly one chunk, the last, carries a `finish`. After `Handle.abort()` has returned, nothing
   more is pushed, not even a chunk with a `finish`.
3. An id that stopped the request is the last of its chunk's ids, and is named by `stop_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, NamedTuple, Protocol

from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass

Finish = Literal["stop", "length", "error"]
GuideKind = Literal["json_schema", "regex", "lark"]
Loss = Literal["died", "exchanged", "moved"]
"""How an engine went away under its requests. "exchanged" and "moved" (the run moved to another
server) are no faults."""

EXTRAS = frozenset({"repetition_penalty", "logit_bias"})
"""Names of `GenerateOptions` that not every engine has."""
CONTINUATION_PRIORITY = 1.0
"""The priority of a run's later requests: they go ahead of new runs, so that no run waits
half-way."""


class Logprob(NamedTuple):
    """The log probability of the chosen id, and of the likeliest ids beside it, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Chunk(NamedTuple):
    """What one engine step gave to one request: zero to many ids.

    A named tuple, not a dataclass: one is made per step and stream, and this is the cheap kind.
    """

    token_ids: Sequence[int] = ()
    logprobs: Sequence[Logprob] = ()
    cached_tokens: int | None = None
    finish: Finish | None = None
    stop_id: int | None = None
    error: str | None = None
    refusal: ApiError | None = None
    """Beside an error: the request could not be accepted, and `generate` would have raised this if
    it had known."""
    lost: Loss | None = None
    """Beside an error: the engine is gone. The request may go on with the next engine, from its
    prompt and the ids it was given, once `health` says `ready`."""
    metrics: Mapping[str, float] | None = None
    """With a finish: what the engine itself measured, by its own names, if requested."""


@dataclass(frozen=True, slots=True)
class Guide:
    """A form that the output must match from its first token on."""

    kind: GuideKind
    source: str


@dataclass(frozen=True)
class GenerateOptions:
    """The options of one engine request, all explicit: no engine's own default ever shows."""

    max_tokens: int
    stop_ids: tuple[int, ...]
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """What is added to the logits of these ids."""
    seed: int | None = None
    logprobs: int | None = None
    guide: Guide | None = None
    banned_ids: tuple[int, ...] = ()
    cache_salt: str | None = None
    """Owner of the cached prompts: they serve no other. Engines key their cache by `salt`."""
    adapter: str | None = None
    """The name of the adapter with which the model answers; None for the model itself."""
    priority: float = 0.5
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    arrival_ns: int = 0
    request_id: str = ""
    metrics: bool = False
    """The last chunk is to bring the engine's own metrics, if it has any."""

    @property
    def salt(self) -> str | None:
        """What a cached prompt must have in common with this request: its owner and its adapter."""
        if self.adapter is None:
            return self.cache_salt
        return f"{self.cache_salt or ''}\n{self.adapter}"


@dataclass(frozen=True, slots=True)
class Health:
    """The health of an engine: while `alive` it can recover by itself, while `ready` it takes
    work."""

    alive: bool
    ready: bool
    last_progress_ns: int
    reason: str | None = None
    cache_use: float | None = None
    """The share of the KV cache that running requests hold, from 0 to 1; None when the engine does
    not say."""
    queued: int | None = None
    """The requests that wait in the engine's own queue; None when it does not say."""
    restarts: int = 0
    """How often it has died and mended itself since its start, so that requests went on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an engine, by which a request is refused before its first token."""

    context_tokens: int
    max_batch: int
    guides: Mapping[GuideKind, frozenset[int]] = field(default_factory=dict)
    """The kinds of guides it has, each with the ids that may end one."""
    max_logprobs: int = 0
    longest_prompt: int | None = None
    """The longest prompt in ids, where a prompt may not fill the context."""
    ignores: frozenset[str] = frozenset()
    """Names of `GenerateOptions` that the engine takes and ignores."""
    adapters: tuple[str, ...] = ()
    """The names of the adapters with which the model can answer."""
    extras: frozenset[str] = frozenset()
    """Names of those of `EXTRAS` that it honours; requests never set another one."""


class Sink(Protocol):
    """The receiver of one request's chunks."""

    def push(self, chunk: Chunk, /) -> None:
        """Take one chunk, on the event loop's thread."""
        ...


class Gathered:
    """A sink that keeps all chunks; `last` is the one that ended the request."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[Logprob] = []
        self.last: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()

    def push(self, chunk: Chunk, /) -> None:
        self.token_ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        if chunk.finish is not None and not self.last.done():
            self.last.set_result(chunk)


class Handle(Protocol):
    """The requester's hold on one request."""

    def abort(self) -> None:
        """Forget the request: synchronous, idempotent, and never raises."""
        ...


class Engine(Protocol):
    """An engine: prompt ids in, chunks of output ids out."""

    async def start(self) -> None:
        """Load the engine. Raises a `StartupError` of one sentence when it cannot be."""
        ...

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        """Begin a request, whose chunks go to the sink. Raises an `ApiError` when it cannot be
        accepted at all."""
        ...

    def health(self) -> Health:
        """The engine's health now."""
        ...

    def limits(self) -> Limits:
        """The engine's limits, once it has started."""
        ...

    async def stop(self, deadline_s: float) -> None:
        """Stop within the deadline. Running requests get a chunk that finishes with an error."""
        ...
