"""The four ways in which a run ends, each with its last snapshot and its events.

Values only: the run decides which end it is, and when it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trt_responses.engine import Chunk, Loss
from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass, replace
from trt_responses.language.reader import Reader
from trt_responses.log.fold import Output
from trt_responses.wire import events as e
from trt_responses.wire import response as r
from trt_responses.wire.output import written


@dataclass(frozen=True, slots=True)
class End:
    """How a run, or one segment of it, ended."""

    status: Literal["completed", "incomplete", "failed", "cancelled"]
    error: ApiError | None = None
    stop: str | None = None
    """The client's text at which it stopped."""
    lost: Loss | None = None
    """The way in which the engine went away under a segment."""
    reason: Literal["max_output_tokens", "steered"] = "max_output_tokens"
    """Why it is incomplete."""


def last_snapshot(
    begun: r.Response, output: Output, end: End, now_s: int, used: r.Usage
) -> r.Response:
    """The last snapshot of a response that ended so."""
    return replace(
        begun,
        output=output,
        status=end.status,
        completed_at=now_s if end.status == "completed" else None,
        error=r.ResponseFault("server_error", end.error.message) if end.error else None,
        incomplete_details=(
            r.IncompleteDetails(end.reason) if end.status == "incomplete" else None
        ),
        usage=used,
    )


def usage(read: int, reader: Reader, output: Output, cached: Sequence[int | None]) -> r.Usage:
    """Token usage of a prompt and what was written behind it.

    Each id counts once, however many engine requests read it. `cached` is the engine's count at the
    beginning of each turn.
    """
    spans = zip(written(output), reader.messages, strict=False)
    reasoning = sum([span.content_tokens for item, span in spans if item.type == "reasoning"])
    into = r.InputTokensDetails(min((cached[0] if cached else 0) or 0, read))
    wrote = len(reader.kept)
    return r.Usage(read, wrote, read + wrote, into, r.OutputTokensDetails(reasoning))


def ending(
    last: r.Response, error: ApiError | None, stop: str | None = None
) -> tuple[e.Event, ...]:
    """The events that end a log."""
    match last.status:
        case "completed":
            return (e.Completed(last, stop=stop),)
        case "incomplete":
            return (e.Incomplete(last),)
        case "failed":
            message, param = (error.message, error.param) if error else ("", None)
            return (e.Error(error.code if error else None, message, param), e.Failed(last))
        case _:
            return ()


def end_of(chunk: Chunk) -> End:
    """The end that a segment's last chunk stands for."""
    match chunk.finish:
        case "length":
            return End("incomplete")
        case "error" if chunk.refusal is not None:
            return End("failed", chunk.refusal)
        case "error":
            reason = chunk.error or "the engine gave no reason"
            error = ApiError(f"The engine failed: {reason.removesuffix('.')}.")
            return End("failed", error, lost=chunk.lost)
        case _:
            return End("completed")
