"""Triton's stream of events as chunks of ids. Bytes in, chunks out; no connection, no clock.

A tensor of one element comes as a bare value, an error comes under status 200, and no event says
that the stream is over: the last one has a `finish_reason`.
"""

from __future__ import annotations

from typing import Any

import orjson

from trt_responses.engine import Chunk, Logprob, Loss
from trt_responses.engines.triton.fields import LOST, logprobs_of

PREFIX = b"data:"


class Events:
    """Reads the stream of one request. `feed` gives at most one chunk for the bytes that have
    come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Chunk | None:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        ids: list[int] = []
        logprobs: list[Logprob] = []
        told: dict[str, Any] = {}
        for event in events:
            if not event.startswith(PREFIX):
                continue
            values = orjson.loads(event[len(PREFIX) :])
            ids += _row(values.pop("output_ids", []))
            logprobs += logprobs_of(values["logprobs"]) if values.get("logprobs") else []
            told |= values
        if "error" in told:
            error = str(told["error"])
            lost: Loss | None = "died" if LOST in error else None
            return Chunk(ids, logprobs, finish="error", error=f"Triton: {error}", lost=lost)
        if not told and not ids:
            return None
        cached = told.get("cached_tokens")
        return Chunk(ids, logprobs, cached, told.get("finish_reason"), told.get("stop_id"))


def _row(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


def fault(body: bytes, status: int) -> str:
    """The message of a refusal, in one sentence."""
    try:
        message = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = f"status {status}"
    return f"Triton refused the request: {message}"
