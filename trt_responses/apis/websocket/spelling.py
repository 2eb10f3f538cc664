"""The events of a run as frames of a WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.log.entries import ResponsesSpelling
from trt_responses.wire.events import Created, Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.events import Event


class SocketSpelling(ResponsesSpelling):
    """The spelling of a WebSocket: each frame is the JSON alone, and names its lane. `told` are the
    headers that a reply over HTTP would have, which stand in the first event."""

    __slots__ = ("_lane", "_told")

    def __init__(self, dialect: Dialect, stream_id: str | None, told: Mapping[str, str]) -> None:
        super().__init__(dialect)
        self._lane = b',"stream_id":%b' % orjson.dumps(stream_id) if stream_id else b""
        self._told = told

    def frame(self, event: Event, number: int) -> bytes:
        if isinstance(event, Error):
            return b""  # there, it is an answer to what made no response
        return super().frame(event, number)

    def _begun(self, name: str, body: bytes) -> bytes:
        tells = bool(self._told) and name == Created.type
        return (
            body[:-1] + self._lane + (b',"headers":%b' % orjson.dumps(self._told) if tells else b"")
        )
