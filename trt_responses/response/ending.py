"""The four ways in which a run ends, each with its last snapshot and its events.

Values only: which end it is, and when it is told, is the run's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass, replace
from trt_responses.wire import events as e
from trt_responses.wire import response as r

if TYPE_CHECKING:
    from trt_responses.engine.base import Chunk
    from trt_responses.harmony.read.reader import Reader
    from trt_responses.response.log.fold import Output


@dataclass(frozen=True, slots=True)
class End:
    """How a run, or one segment of it, ended."""

    status: Literal["completed", "incomplete", "failed", "cancelled"]
    error: ApiError | None = None


def last_snapshot(
    begun: r.Response, output: Output, end: End, now_s: int, used: r.Usage
) -> r.Response:
    """What becomes of a response that ended so."""
    return replace(
        begun,
        output=output,
        status=end.status,
        completed_at=now_s if end.status == "completed" else None,
        error=r.ResponseFault("server_error", end.error.message) if end.error else None,
        incomplete_details=(
            r.IncompleteDetails("max_output_tokens") if end.status == "incomplete" else None
        ),
        usage=used,
    )


def usage(read: int, reader: Reader, output: Output, cached: int | None) -> r.Usage:
    """The tokens of a prompt of so many, and of what was written."""
    written = len(reader.kept)
    told = zip(output, reader.messages, strict=False)
    reasoning = sum(span.content_tokens for item, span in told if item.type == "reasoning")
    return r.Usage(
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        input_tokens_details=r.InputTokensDetails(min(cached or 0, read)),
        output_tokens_details=r.OutputTokensDetails(reasoning),
    )


def ending(last: r.Response, error: ApiError | None) -> tuple[e.Event, ...]:
    """The events that end a log."""
    match last.status:
        case "completed":
            return (e.Completed(last),)
        case "incomplete":
            return (e.Incomplete(last),)
        case "failed":
            message, param = (error.message, error.param) if error else ("", None)
            return (e.Error(error.code if error else None, message, param), e.Failed(last))
        case _:
            return ()


def end_of(chunk: Chunk) -> End:
    match chunk.finish:
        case "length":
            return End("incomplete")
        case "error" if chunk.refusal is not None:
            return End("failed", chunk.refusal)
        case "error":
            reason = chunk.error or "the engine gave no reason"
            return End("failed", ApiError(f"The engine failed: {reason.removesuffix('.')}."))
        case _:
            return End("completed")
