"""What crosses the socket between a front end and an engine process: frames of bytes.

A frame is a head (size and kind) and a body. What the engine says at one step to one front end is
one write: ids as pairs of 32-bit words, and JSON only for what is more than ids. Knows values;
knows no socket and no engine.
"""

from __future__ import annotations

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
    """To a front end: a number and an id for each request that got one id and nothing else."""
    RUNS = 5
    """To a front end: a number, a count and so many ids, for each that got ids and nothing else."""
    CHUNKS = 6
    """To a front end: a number and a whole chunk each, as JSON."""


MAX_BODY_BYTES = 256 * 1024 * 1024
"""The largest body of a frame. A head that claims more is broken, and would be waited for without
end."""
KINDS = frozenset(Kind)
UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, struct.error)
"""The errors that reading a frame can raise."""


class Splitter:
    """Cuts bytes, as they come, into frames. Raises a `ValueError` at bytes that are no frame."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        held = self._held
        held += data
        start = 0
        while len(held) - start >= HEAD.size:
            size, kind = HEAD.unpack_from(held, start)
            if kind not in KINDS or size > MAX_BODY_BYTES:
                raise ValueError(f"a frame of kind {kind} and {size} bytes")
            end = start + HEAD.size + size
            if len(held) < end:
                break
            yield kind, bytes(memoryview(held)[start + HEAD.size : end])
            start = end
        del held[:start]


def frame(kind: Kind, body: bytes) -> bytes:
    """One frame as bytes."""
    return HEAD.pack(len(body), kind) + body


# --- to the engine ----------------------------------------------------------------------------


def generate(number: int, prompt_ids: Sequence[int], options: GenerateOptions) -> bytes:
    """The frame that begins a request."""
    said = orjson.dumps(options, default=dict)  # its headers are any mapping
    ids = array("I", prompt_ids).tobytes()
    return frame(Kind.GENERATE, PAIR.pack(number, len(said)) + said + ids)


def read_generate(body: bytes) -> tuple[int, list[int], GenerateOptions]:
    """A request's number, prompt ids and options, from a frame's body."""
    number, size = PAIR.unpack_from(body)
    end = PAIR.size + size
    fields: dict[str, Any] = orjson.loads(body[PAIR.size : end])
    if fields["guide"] is not None:
        fields["guide"] = Guide(**fields["guide"])
    for name in ("stop_ids", "banned_ids"):
        fields[name] = tuple(fields[name])
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
    """The frame of requests that got one id and nothing else: the number and the id of each."""
    return frame(Kind.IDS, array("I", words).tobytes())


def steps(pending: Pending) -> bytes:
    """The frames of chunks, in their order. Those of one id alone cost less as `single_ids`."""
    made: list[bytes] = []
    held: list[Any] = []
    held_kind = Kind.RUNS
    for number, chunk in pending:
        plain = chunk.finish is None and chunk.cached_tokens is None and not chunk.logprobs
        kind = Kind.RUNS if plain else Kind.CHUNKS
        if kind is not held_kind:
            if held:
                made.append(_joined(held_kind, held))
            held, held_kind = [], kind
        if kind is Kind.RUNS:
            held += (number, len(chunk.token_ids), *chunk.token_ids)
        else:
            held.append((number, *_chunk_fields(chunk)))
    if held:
        made.append(_joined(held_kind, held))
    return b"".join(made)


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
            raise ValueError(f"a run of {count} ids that has {len(ids)}")
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
    said = {
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
        ],
    }
    return frame(Kind.STATE, orjson.dumps(said))


def read_state(body: bytes) -> tuple[str, Health, Limits]:
    """The version, the health and the limits in a frame's body."""
    said = orjson.loads(body)
    context, batch, guides, logprobs, longest, ignores, adapters = said["limits"]
    ends = {kind: frozenset(ids) for kind, ids in guides.items()}
    limits = Limits(context, batch, ends, logprobs, longest, frozenset(ignores), tuple(adapters))
    return said["version"], Health(*said["health"]), limits


def _words(body: bytes) -> memoryview[int]:
    return memoryview(body).cast("I")


def _joined(kind: Kind, held: Iterable[Any]) -> bytes:
    if kind is Kind.CHUNKS:
        return frame(kind, orjson.dumps(held, default=tuple))  # logprobs are named tuples
    return frame(kind, array("I", held).tobytes())


def _refusal(fields: dict[str, Any]) -> ApiError:
    error = ApiError(**fields)
    error.code = fields["code"]  # None is a code, too
    return error


def _chunk_fields(chunk: Chunk) -> tuple[object, ...]:
    refusal = chunk.refusal
    said = refusal and {
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
        said,
        chunk.lost,
        chunk.metrics,
    )
