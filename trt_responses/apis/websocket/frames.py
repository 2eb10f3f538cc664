"""The frames of a WebSocket at `/v1/responses`: what a client sends, and what it gets. Knows JSON
and events; knows no connection and no run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from trt_responses.errors import ApiError, InvalidRequest, error_body, invalid_value
from trt_responses.log.entries import ResponsesSpelling
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.events import Created, Error, Event
from trt_responses.wire.parse import request_json, summary

CREATE, STEER = "response.create", "response.steer"
STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
BAD_STREAM_ID = InvalidRequest(
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only "
    "contain letters, numbers, underscores, hyphens, and periods.",
    param="stream_id",
    code="invalid_stream_id",
)
NO_RECORD = ("previous_response_not_found", "previous_response_expired")
"""HTTP's error codes for a missing response. WebSocket clients know only the first, with status
400: they reconnect and send the whole conversation."""


class SocketSpelling(ResponsesSpelling):
    """The spelling of a WebSocket: each frame is the JSON alone, and names its lane. `headers` are
    those of a reply over HTTP; they stand in the first event."""

    __slots__ = ("_headers", "_lane")

    def __init__(self, dialect: Dialect, stream_id: str | None, headers: Mapping[str, str]) -> None:
        super().__init__(dialect)
        self._lane = b',"stream_id":%b' % orjson.dumps(stream_id) if stream_id else b""
        self._headers = headers

    def frame(self, event: Event, number: int) -> bytes:
        if isinstance(event, Error):
            return b""  # there, it is an answer to what made no response
        return super().frame(event, number)

    def _around(self, name: str) -> tuple[bytes, bytes]:
        if self._headers and name == Created.type:
            return b"", self._lane + b',"headers":%b' % orjson.dumps(self._headers)
        return b"", self._lane


class ClientEvent(NamedTuple):
    """What a client's frame asks for."""

    fields: dict[str, Any]
    size: int
    """Bytes of the frame."""

    @property
    def stream_id(self) -> str | None:
        """The lane that it names, which may be the nameless one."""
        named = self.fields.get("stream_id")
        if named is None:
            return None
        if not (isinstance(named, str) and STREAM_ID.fullmatch(named)):
            raise BAD_STREAM_ID
        return named


def client_event(frame: bytes) -> ClientEvent:
    """The event in a frame, if it is one that this server knows."""
    fields = request_json(frame)
    if not isinstance(fields, dict):
        raise InvalidRequest(
            "Invalid frame: expected one JSON object with a 'type'.", code="invalid_value"
        )
    kind = fields.get("type")
    if kind is None:
        raise InvalidRequest(
            "Missing required parameter: 'type'.", param="type", code="missing_required_parameter"
        )
    if kind not in (CREATE, STEER):
        raise invalid_value("type", f"expected '{CREATE}', got {summary(kind)}")
    return ClientEvent(fields, len(frame))


def error_frame(error: ApiError, stream_id: str | None) -> str:
    """The error frame for a request that made no response."""
    body: dict[str, Any] = {**error_body(error)}
    status = error.status
    if error.code in NO_RECORD:
        status, body["code"] = 400, NO_RECORD[0]
    if error.headers:
        body["headers"] = error.headers
    return frame_of({"type": "error", "status": status, "error": body}, stream_id)


def frame_of(event: Mapping[str, Any], stream_id: str | None) -> str:
    """The frame of an event that stands in no log."""
    lane = {"stream_id": stream_id} if stream_id else {}
    return orjson.dumps({**event, **lane}).decode()
