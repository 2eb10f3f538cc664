"""The engine seam: prompt ids in, chunks of output ids out.

Knows no Harmony, no HTTP and no concrete engine. Three rules bind every engine:

1. `Sink.push` is called on the event loop's thread, at most once per engine step and request.
2. Exactly one chunk, the last, carries a `finish`. After `Handle.abort()` has returned, nothing
   more is pushed, not even a chunk with a `finish`.
3. An id that stopped the request is the last of its chunk's ids, and is named by `stop_id`.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.errors import ApiError

Finish = Literal["stop", "length", "error"]
GuideKind = Literal["json_schema", "regex", "lark"]
Loss = Literal["died", "exchanged", "moved"]
"""How an engine went away under its requests: for one that was exchanged, or whose run moved to
another server, nobody is to blame."""

CONTINUATION_PRIORITY = 1.0
"""Later requests of a run go ahead of new ones: a run is never left waiting half-way."""


class Logprob(NamedTuple):
    """The chosen id, and the likeliest ids beside it, best first."""

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
    """With an error: the request could not be taken, and this is what `generate` would have raised
    if it had known."""
    lost: Loss | None = None
    """With an error: the engine is gone, and the request may go on with the next one, from its
    prompt and what it was given, once `health` says that the engine is ready."""


@dataclass(frozen=True, slots=True)
class Guide:
    """What the output must match from its first token on."""

    kind: GuideKind
    source: str


@dataclass(frozen=True)
class GenerateOptions:
    """One engine request, everything explicit: no engine's own default ever shows."""

    max_tokens: int
    stop_ids: tuple[int, ...]
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    guide: Guide | None = None
    banned_ids: tuple[int, ...] = ()
    cache_salt: str | None = None
    priority: float = 0.5
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    arrival_ns: int = 0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """`alive`: the engine can still recover by itself. `ready`: it takes work now."""

    alive: bool
    ready: bool
    last_progress_ns: int
    reason: str | None = None
    cache_use: float | None = None
    """The share of the KV cache that running requests hold, from 0 to 1; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can do, so that a request is refused before a token, not after."""

    context_tokens: int
    max_batch: int
    guides: Mapping[GuideKind, frozenset[int]] = field(default_factory=dict)
    """The guides it has, each with the ids that may end one."""
    max_logprobs: int = 0
    longest_prompt: int | None = None
    """Where a prompt may not fill the context."""
    ignores: frozenset[str] = frozenset()
    """Names of `GenerateOptions` that it takes and does nothing with."""


class Sink(Protocol):
    def push(self, chunk: Chunk, /) -> None: ...


class Gathered:
    """A sink that keeps what comes; `last` is the chunk that ended the request."""

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
    def abort(self) -> None:
        """Forget the request: synchronous, idempotent, and never raises."""
        ...


class Engine(Protocol):
    async def start(self) -> None:
        """Be ready, or raise `StartupError` with one sentence."""
        ...

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        """Begin. Raises an `ApiError` when the request cannot be taken at all."""
        ...

    def health(self) -> Health: ...

    def limits(self) -> Limits: ...

    async def stop(self, deadline_s: float) -> None:
        """End within the deadline; running requests get a chunk that finishes with an error."""
        ...
