"""A response as the fold of its log's events, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.frozen import replace
from trt_responses.log.fold import output_after
from trt_responses.wire import events as e

if TYPE_CHECKING:
    from trt_responses.wire.response import Response


def apply(response: Response, event: e.Event) -> Response:
    """The response after the event."""
    match event:
        case (
            e.Created() | e.Queued() | e.InProgress() | e.Completed() | e.Incomplete() | e.Failed()
        ):
            return event.response
        case e.Error():
            return response
        case _:
            return replace(response, output=output_after(response.output, event))
