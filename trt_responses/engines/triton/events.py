"""Parses Triton's event stream: bytes in, chunks of ids out. No connection, no clock.

A tensor of one element arrives as a bare value, an error has status 200, and no event marks the
end: the last one has a `finish_reason`.
"""

from __future__ import annotations

from typing import Any

import orjson

from trt_responses.engine import Chunk, Logprob, Loss
from trt_responses.engines.triton.fields import LOST, logprobs_of

PREFIX = b"data:"


class Events:
    """Parses the stream of one request. `feed` returns at most one chunk for the new bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Chunk | None:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        ids: list[int] = []
        logprobs: list[Logprob] = []
        merged: dict[str, Any] = {}
        for event in events:
            if not event.startswith(PREFIX):
                continue
            values = orjson.loads(event[len(PREFIX) :])
            ids += _row(values.pop("output_ids", []))
            logprobs += logprobs_of(values["logprobs"]) if values.get("logprobs") else []
            merged |= values
        if "error" in merged:
            error = str(merged["error"])
            lost: Loss | None = "died" if LOST in error else None
            return Chunk(ids, logprobs, finish="error", error=f"Triton: {error}", lost=lost)
        if not merged and not ids:
            return None
        cached = merged.get("cached_tokens")
        return Chunk(ids, logprobs, cached, merged.get("finish_reason"), merged.get("stop_id"))


def _row(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


def fault(body: bytes, status: int) -> str:
    """The message of a refusal, as one sentence."""
    try:
        message = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = f"status {status}"
    return f"Triton refused the request: {message}"
