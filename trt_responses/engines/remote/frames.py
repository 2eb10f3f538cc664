"""The frames between a front end and an engine process.

A frame is a head (size and kind) and a body. The engine's output of one step for one front end is
one write: ids as pairs of 32-bit words, and JSON for anything else. Values only: no socket and no
engine.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any

import orjson

from trt_responses.engine import Chunk, GenerateOptions, Guide, Health, Limits, Logprob
from trt_responses.errors import ApiError

Pending = list[tuple[int, Chunk]]

HEAD = struct.Struct("=II")
PAIR = struct.Struct("=II")
WORD = struct.Struct("=I")


class Kind(IntEnum):
    """The kinds of frames."""

    GENERATE = 1
    """To the engine: the request's number, the size of its options, options, prompt ids."""
    ABORT = 2
    """To the engine: the request's number."""
    STATE = 3
    """To a front end: the engine's health and limits."""
    IDS = 4
    """To a front end: number and id of each request with exactly one new id."""
    RUNS = 5
    """To a front end: number, count and ids of each request with only new ids."""
    CHUNKS = 6
    """To a front end: number and whole chunk of each request, as JSON."""


SINGLES = 7  # no frame of its own: frames of one id each that came together, read as `Kind.IDS`
MAX_BODY_BYTES = 256 * 1024 * 1024
"""Maximum body of a frame. A larger size in a head is an error, and would be waited for without
end."""
KINDS = frozenset(Kind)
SINGLE = HEAD.pack(PAIR.size, Kind.IDS)
MANY_SINGLES = re.compile(b"(?:%b.{%d}){2,}" % (re.escape(SINGLE), PAIR.size), re.DOTALL)
UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, struct.error)
"""The errors that reading a frame can raise."""


class Splitter:
    """Splits received bytes into frames. Raises a `ValueError` for an invalid frame."""

    def __init__(self) -> None:
        self._held = bytearray()
        """The beginning of a frame."""
        self._wanted = 0
        """The bytes that it has to have before it is looked at again."""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return
            data = bytes(self._held)
            self._held.clear()
        start, length = 0, len(data)
        while (end := start + HEAD.size) <= length:
            size, kind = HEAD.unpack_from(data, start)
            if kind not in KINDS or size > MAX_BODY_BYTES:
                raise ValueError(f"a frame of kind {kind} and {size} bytes")
            begin, end = end, end + size
            if end > length:
                break
            if kind == Kind.IDS and (singles := MANY_SINGLES.match(data, start)):
                yield SINGLES, memoryview(singles[0]).cast("Q")[1::2].tobytes()
                start = singles.end()
                continue
            yield kind, data[begin:end]
            start = end
        if start < length:
            self._held += memoryview(data)[start:]
            self._wanted = end - start


def frame(kind: Kind, body: bytes) -> bytes:
    """One frame as bytes."""
    return HEAD.pack(len(body), kind) + body


# --- to the engine ----------------------------------------------------------------------------


def generate(number: int, prompt_ids: Sequence[int], options: GenerateOptions) -> bytes:
    """The frame that starts a request."""
    encoded = orjson.dumps(options, default=dict)  # its headers are any mapping
    ids = array("I", prompt_ids).tobytes()
    return frame(Kind.GENERATE, PAIR.pack(number, len(encoded)) + encoded + ids)


def read_generate(body: bytes) -> tuple[int, list[int], GenerateOptions]:
    """A request's number, prompt ids and options, from a frame's body."""
    number, size = PAIR.unpack_from(body)
    end = PAIR.size + size
    fields: dict[str, Any] = orjson.loads(body[PAIR.size : end])
    if fields["guide"] is not None:
        fields["guide"] = Guide(**fields["guide"])
    for name in ("stop_ids", "banned_ids"):
        fields[name] = tuple(fields[name])
    fields["logit_bias"] = tuple(map(tuple, fields["logit_bias"]))
    return number, _words(body[end:]).tolist(), GenerateOptions(**fields)


def abort(number: int) -> bytes:
    """The frame that aborts a request."""
    return frame(Kind.ABORT, WORD.pack(number))


def read_abort(body: bytes) -> int:
    """The number of the request to abort."""
    number: int = WORD.unpack(body)[0]
    return number


# --- to a front end ---------------------------------------------------------------------------


def single_ids(words: Sequence[int]) -> bytes:
    """The frame for requests with exactly one new id: number and id of each."""
    return frame(Kind.IDS, array("I", words).tobytes())


def is_plain(chunk: Chunk) -> bool:
    """Whether a chunk has nothing but ids."""
    return chunk.finish is None and chunk.cached_tokens is None and not chunk.logprobs


def steps(pending: Pending) -> bytes:
    """The frames of chunks, in order. Single ids cost less as `single_ids`."""
    frames: list[bytes] = []
    group: list[Any] = []
    group_kind = Kind.RUNS
    for number, chunk in pending:
        kind = Kind.RUNS if is_plain(chunk) else Kind.CHUNKS
        if kind is not group_kind:
            if group:
                frames.append(_joined(group_kind, group))
            group, group_kind = [], kind
        if kind is Kind.RUNS:
            group += (number, len(chunk.token_ids), *chunk.token_ids)
        else:
            group.append((number, *_chunk_fields(chunk)))
    if group:
        frames.append(_joined(group_kind, group))
    return b"".join(frames)


def read_ids(body: bytes) -> Iterator[tuple[int, int]]:
    """Each number with its id."""
    words = iter(_words(body))
    return zip(words, words, strict=True)


def read_runs(body: bytes) -> Iterator[tuple[int, Sequence[int]]]:
    """Each number with its ids."""
    words, start = _words(body), 0
    while start < len(words):
        number, count = words[start : start + 2]
        start += 2
        ids = words[start : start + count].tolist()
        if len(ids) != count:
            raise ValueError(f"a run of {count} ids with only {len(ids)}")
        yield number, ids
        start += count


def read_chunks(body: bytes) -> Iterator[tuple[int, Chunk]]:
    """Each number with its chunk."""
    for number, ids, logprobs, cached, finish, stop_id, error, refusal, *rest in orjson.loads(body):
        scored = [
            Logprob(token_id, value, tuple((i, v) for i, v in top))
            for token_id, value, top in logprobs
        ]
        refused = None if refusal is None else _refusal(refusal)
        yield number, Chunk(ids, scored, cached, finish, stop_id, error, refused, *rest)


def state(version: str, health: Health, limits: Limits) -> bytes:
    """The frame of an engine's state."""
    guides = {kind: sorted(ends) for kind, ends in limits.guides.items()}
    encoded = {
        "version": version,
        "health": [
            health.alive,
            health.ready,
            health.last_progress_ns,
            health.reason,
            health.cache_use,
            health.queued,
            health.restarts,
        ],
        "limits": [
            limits.context_tokens,
            limits.max_batch,
            guides,
            limits.max_logprobs,
            limits.longest_prompt,
            sorted(limits.ignores),
            limits.adapters,
            sorted(limits.extras),
        ],
    }
    return frame(Kind.STATE, orjson.dumps(encoded))


def read_state(body: bytes) -> tuple[str, Health, Limits]:
    """The version, the health and the limits in a frame's body."""
    encoded = orjson.loads(body)
    context, batch, guides, logprobs, longest, ignores, adapters, extras = encoded["limits"]
    ends = {kind: frozenset(ids) for kind, ids in guides.items()}
    sets = frozenset(ignores), tuple(adapters), frozenset(extras)
    limits = Limits(context, batch, ends, logprobs, longest, *sets)
    return encoded["version"], Health(*encoded["health"]), limits


def _words(body: bytes) -> memoryview[int]:
    return memoryview(body).cast("I")


def _joined(kind: Kind, group: Iterable[Any]) -> bytes:
    if kind is Kind.CHUNKS:
        return frame(kind, orjson.dumps(group, default=tuple))  # logprobs are named tuples
    return frame(kind, array("I", group).tobytes())


def _refusal(fields: dict[str, Any]) -> ApiError:
    error = ApiError(**fields)
    error.code = fields["code"]  # may be None
    return error


def _chunk_fields(chunk: Chunk) -> tuple[object, ...]:
    refusal = chunk.refusal
    encoded = refusal and {
        "message": refusal.message,
        "status": refusal.status,
        "type": refusal.type,
        "code": refusal.code,
        "param": refusal.param,
        "retry_after_s": refusal.retry_after_s,
    }
    return (
        list(chunk.token_ids),
        list(chunk.logprobs),
        chunk.cached_tokens,
        chunk.finish,
        chunk.stop_id,
        chunk.error,
        encoded,
        chunk.lost,
        chunk.metrics,
    )
