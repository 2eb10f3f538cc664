"""Parses a stream of server-sent events with ids: bytes in, chunks of ids out. No connection and no
clock; each engine reads its own fields.

Ids decide where a request ends: what a server sends after a stop id is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from trt_responses.engine import Chunk, Finish, GenerateOptions, Logprob
from trt_responses.engines.ask import PROBE_IDS
from trt_responses.engines.http_server import message_of
from trt_responses.errors import ApiError, EngineUnavailable, InvalidRequest
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

PREFIX = b"data:"
LAST = b"[DONE]"
FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length"}
BUSY = (429, 503)


ENDS = (CONTROL.return_, CONTROL.call, CONTROL.endoftext)
"""The ids that may end a guide: gpt-oss's end ids, of which each backend takes one or all."""


class ModelIds(NamedTuple):
    """The ids of a model that an engine must know; without others, those of gpt-oss."""

    ends: tuple[int, ...] = ENDS
    """Those that end its turn, and a guide."""
    probe: tuple[int, ...] = PROBE_IDS
    """A prompt for small requests."""
    first_padding: int | None = FIRST_PADDING_ID
    """From here on, ids have no text."""


GPT_OSS = ModelIds()


def stops_of(options: GenerateOptions, ids: ModelIds = GPT_OSS) -> list[int]:
    """The ids that stop a request; under a guide also those that end it."""
    ends = () if options.guide is None else ids.ends
    return list(dict.fromkeys((*options.stop_ids, *ends)))


def biases_of(options: GenerateOptions, ban: float, ids: ModelIds = GPT_OSS) -> dict[str, float]:
    """The biases of ids, with that of banned ones, without padding ids, which have no text: each
    costs time at every step."""
    below = ids.first_padding
    biases = {str(n): bias for n, bias in options.logit_bias}
    return biases | {str(n): ban for n in options.banned_ids if below is None or n < below}


def sampling_of(options: GenerateOptions, ids: ModelIds = GPT_OSS) -> dict[str, Any]:
    """The options that vLLM and SGLang call by the same names."""
    greedy = options.temperature <= 0
    return {
        "temperature": max(options.temperature, 0.0),
        "top_p": 1.0 if greedy else options.top_p,
        "top_k": 0 if greedy else options.top_k,
        "min_p": 0.0 if greedy else options.min_p,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "repetition_penalty": options.repetition_penalty,
        "stop_token_ids": stops_of(options, ids),
    }


def salt_of(options: GenerateOptions) -> str | None:
    """The salt of the cache, in letters and of a length that each server takes."""
    return None if options.salt is None else sha256(options.salt.encode()).hexdigest()


class Part(NamedTuple):
    """The new parts of an event."""

    token_ids: Sequence[int] = ()
    logprobs: Sequence[Logprob] = ()
    cached_tokens: int | None = None
    end: str | None = None
    """Why the request ended, in the server's word; None while it goes on."""
    whole: bool = False
    """Nothing more is expected."""


def refusal_of(status: int, message: str) -> ApiError | None:
    """The error of a request that the server refused; None if the server failed."""
    if status in BUSY:
        return EngineUnavailable(f"The engine is full: {message}", retry_after_s=1)
    if status in (401, 403):
        return EngineUnavailable(f"The engine refused the key: {message}", retry_after_s=60)
    if 400 <= status < 500:
        return InvalidRequest(f"The engine refused the request: {message}")
    return None


def failure(status: int, message: str) -> Chunk:
    """The last chunk of a request that the server refused or failed."""
    refusal = refusal_of(status, message)
    error = refusal.message if refusal else f"The engine failed: {message} (status {status})"
    return Chunk(finish="error", error=error, refusal=refusal)


class Ending:
    """Finds the end of one request in its ids: at most `left` of them, none after a stop id."""

    def __init__(self, options: GenerateOptions, left: int, ids: ModelIds) -> None:
        self.seen = 0
        """The number of ids so far."""
        self._left = left
        self._stops = frozenset(stops_of(options, ids))
        self._cached_sent = False

    def cut(self, part: Part) -> Chunk:
        """The ids of a part up to the end of the request."""
        ids = part.token_ids[: self._left - self.seen]
        finish: Finish | None = None
        error: str | None = None
        stop_id = next((token_id for token_id in ids if token_id in self._stops), None)
        if stop_id is not None:
            ids, finish = ids[: ids.index(stop_id) + 1], "stop"
        self.seen += len(ids)
        if finish is None and self.seen >= self._left:
            finish = "length"
        elif finish is None and part.end is not None:
            finish = FINISHES.get(part.end, "error")
            error = f"The engine ended the request: {part.end}." if finish == "error" else None
        return Chunk(ids, part.logprobs[: len(ids)], None, finish, stop_id, error)

    def with_cached(self, chunk: Chunk, part: Part) -> Chunk:
        """The chunk with the number of cached ids, which is sent once."""
        if self._cached_sent or part.cached_tokens is None:
            return chunk
        self._cached_sent = True
        return chunk._replace(cached_tokens=part.cached_tokens)


class IdEvents:
    """Parses the stream of one request for at most `left` ids; `read` returns an event's part.
    `feed` returns at most one chunk for the new bytes."""

    def __init__(
        self,
        options: GenerateOptions,
        left: int,
        read: Callable[[dict[str, Any], int], Part],
        ids: ModelIds = GPT_OSS,
    ) -> None:
        self.held: Chunk | None = None
        """The last chunk, which waits for the event that the server sends after its end."""
        self._ending = Ending(options, left, ids)
        self._read = read
        self._rest = b""

    def feed(self, data: bytes) -> Chunk | None:
        *events, self._rest = (self._rest + data.replace(b"\r", b"")).split(b"\n\n")
        ids: list[int] = []
        logprobs: list[Logprob] = []
        cached: int | None = None
        for event in events:
            if not event.startswith(PREFIX):
                continue  # a comment, which keeps the connection open
            chunk, whole = self._event(event.removeprefix(PREFIX).strip())
            ids += chunk.token_ids
            logprobs += chunk.logprobs
            cached = chunk.cached_tokens if chunk.cached_tokens is not None else cached
            if chunk.finish is None:
                continue
            last = chunk._replace(token_ids=ids, logprobs=logprobs, cached_tokens=cached)
            if whole or chunk.finish == "error":
                return last
            self.held = last
            ids, logprobs, cached = [], [], None
        return Chunk(ids, logprobs, cached) if ids else None

    def _event(self, content: bytes) -> tuple[Chunk, bool]:
        """The new ids of an event, and whether it is the last."""
        if self.held is not None and content == LAST:
            return self.held, True
        try:
            event = orjson.loads(content)
            if error := event.get("error"):
                code = error.get("code") if isinstance(error, dict) else None
                status = code if isinstance(code, int) else 500
                return failure(status, message_of(content)), True
            part = self._read(event, self._ending.seen)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as fault:
            error = f"The engine sent an event that cannot be read: {content[:100]!r} ({fault!r})."
            return Chunk(finish="error", error=error), True
        if self.held is not None:
            return self._ending.with_cached(self.held, part), part.whole
        chunk = self._ending.cut(part)
        if chunk.finish == "stop" and chunk.stop_id is None and chunk.token_ids:
            chunk = chunk._replace(stop_id=chunk.token_ids[-1])  # at an end of the server's own
        return self._ending.with_cached(chunk, part), part.whole


def spelled_logprob(
    token_id: int, logprob: float, top: Sequence[tuple[int, float]], options: GenerateOptions
) -> Logprob:
    """A log probability with its alternatives sorted, and no more of them than requested."""
    best = sorted(top, key=lambda entry: -entry[1])[: options.logprobs or 0]
    return Logprob(token_id, logprob, tuple(best))
