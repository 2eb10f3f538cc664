"""Parses llama.cpp's event stream: bytes in, chunks of ids out. No connection, no clock.

Ids decide where a request ends, never text: llama.cpp continues after `<|end|>` and `<|message|>`,
so ids after a stop id may follow and are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import orjson

from trt_responses.engine import Chunk, Finish, GenerateOptions, Logprob
from trt_responses.engines.llamacpp.body import STOPS_BY_ITSELF

FINISHES: dict[str, Finish] = {"eos": "stop", "word": "stop", "limit": "length"}
PREFIX = b"data: "
WITHHELD = (
    "The engine withheld ids that end inside a character: prepare this model again, so that "
    "each id has a whole character."
)


class Top(TypedDict):
    """One of the likeliest tokens, in llama.cpp's form."""

    id: int
    logprob: float


class Probability(Top):
    """The probability of a chosen token, in llama.cpp's form."""

    top_logprobs: list[Top]


class Progress(TypedDict):
    """The progress of a prompt."""

    cache: int


class Fault(TypedDict):
    """An error in the stream."""

    message: str


class Event(TypedDict, total=False):
    """One event of the stream."""

    tokens: list[int]
    tokens_predicted: int
    completion_probabilities: list[Probability]
    prompt_progress: Progress
    stop_type: str
    error: Fault


class Events:
    """Parses the stream of one request. `feed` returns at most one chunk for the new bytes."""

    __slots__ = ("_cached", "_count", "_ids", "_logprobs", "_rest", "_stops", "_top")
    held: Chunk | None = None
    """Not used: the stream of a request ends at once."""

    def __init__(self, options: GenerateOptions, stops: frozenset[int] = STOPS_BY_ITSELF) -> None:
        self._stops = stops.union(options.stop_ids)
        self._top = options.logprobs
        self._rest = b""
        self._count = 0
        self._cached: int | None = None
        self._ids: list[int] = []
        self._logprobs: list[Logprob] = []

    def feed(self, data: bytes) -> Chunk | None:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            end = self._read(orjson.loads(event[len(PREFIX) :])) if event else None
            if end is not None:
                return end
        return self._chunk() if self._ids else None

    def _read(self, event: Event) -> Chunk | None:
        """Process one event. Returns a chunk if it is the last."""
        if "error" in event:
            return self._chunk("error", error=event["error"]["message"])
        if "prompt_progress" in event:  # its `tokens` are empty
            if self._count == 0:
                self._cached = event["prompt_progress"]["cache"]
            return None
        stop_id = self._add(event["tokens"], event.get("completion_probabilities", ()))
        if stop_id is not None:
            return self._chunk("stop", stop_id)
        if event["tokens_predicted"] != self._count:
            return self._chunk("error", error=WITHHELD)
        if "stop_type" in event:
            return self._chunk(FINISHES[event["stop_type"]])
        return None

    def _add(self, ids: list[int], probabilities: Sequence[Probability]) -> int | None:
        """Add the ids up to a stop id, and return that."""
        stop_id = next((token_id for token_id in ids if token_id in self._stops), None)
        valid = ids if stop_id is None else ids[: ids.index(stop_id) + 1]
        self._count += len(valid)
        self._ids += valid
        if self._top is not None:
            self._logprobs += (logprob(entry, self._top) for entry in probabilities[: len(valid)])
        return stop_id

    def _chunk(
        self, finish: Finish | None = None, stop_id: int | None = None, error: str | None = None
    ) -> Chunk:
        chunk = Chunk(self._ids, self._logprobs, self._cached, finish, stop_id, error)
        self._ids, self._logprobs, self._cached = [], [], None
        return chunk


def logprob(entry: Probability, count: int) -> Logprob:
    """A token's log probability from llama.cpp's entry."""
    top = tuple((other["id"], other["logprob"]) for other in entry["top_logprobs"][:count])
    return Logprob(entry["id"], entry["logprob"], top)


def fault(body: bytes, status: int) -> str:
    """The message of a refusal, as one sentence."""
    try:
        message = orjson.loads(body)["error"]["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = f"status {status}"
    return f"The engine refused the request: {message}."
