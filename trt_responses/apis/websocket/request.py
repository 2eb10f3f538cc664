"""What creates a response over a WebSocket: the fields that `POST /v1/responses` has not, or that
mean something else there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.wire.fields import FIELDS
from trt_responses.wire.fields import Field as Row
from trt_responses.wire.judge import column_of
from trt_responses.wire.request import OptionalInput, Request

SOCKET: tuple[Row, ...] = (
    Row("type", "honoured", "`response.create`"),
    Row("stream_id", "honoured", "the lane; see websocket.md"),
    Row("generate", "honoured", "false: read the prompt and generate nothing"),
    Row("stream", "honoured", "events are always streamed"),
    Row("background", "refused", "responses end with their connection"),
)
COLUMN = column_of(*FIELDS, *SOCKET)


class SocketRequest(Request):
    """What creates a response over a WebSocket. Without an input it goes on from what it names."""

    type: Literal["response.create"]
    input: OptionalInput = Field(default_factory=list)
    generate: bool | None = None
    stream_id: str | None = None
