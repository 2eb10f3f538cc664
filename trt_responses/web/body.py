"""The body of a request: its type, its size, and its values, counted before it is parsed.

Reads in pieces of work that are short enough for the event loop; knows no route.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.tasks import give_way
from trt_responses.web.headers import header
from trt_responses.wire import parse
from trt_responses.wire.base import Options
from trt_responses.wire.limits import RequestLimits

R = TypeVar("R", bound=Options)
T = TypeVar("T")

JSON = "application/json"
LENGTH_DIGITS = 18
"""A length with more digits is too large for any limit, and in the end for `int` itself."""

COUNTED_AT_ONCE = 64 * 1024
"""Bytes whose values are counted between two pauses: 2 ms when all are quotation marks."""


def check_json(request: Request) -> None:
    """Refuse other types: a page can send a form or plain text anywhere without asking, and JSON
    it cannot."""
    sent = (header(request, b"content-type") or "").partition(";")[0].strip().lower()
    if sent != JSON:
        raise InvalidRequest(
            f"The content type must be application/json, got {sent or 'none'!r:.100}.",
            status=415,
            code="unsupported_content_type",
        )


async def read_json(request: Request, limits: RequestLimits) -> bytes:
    """The whole body of a request whose type must be JSON's."""
    if header(request, b"content-type") != JSON:
        check_json(request)
    return await read_body(request, limits)


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """The whole body of JSON, or a refusal as soon as it is known to be too large."""
    body = await read_bytes(request, limits)
    if len(body) > limits.body_values:  # fewer bytes have fewer values
        await check_values(body, limits)
    if len(body) > COUNTED_AT_ONCE:
        await give_way()  # before it is parsed
    return body


async def read_bytes(request: Request, limits: RequestLimits) -> bytes:
    """The whole body, whatever it is."""
    declared = header(request, b"content-length") or ""
    if declared.isdecimal() and (
        len(declared) > LENGTH_DIGITS or int(declared) > limits.body_bytes
    ):
        raise _too_long(limits)
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.body_bytes:
            raise _too_long(limits)
        more = message.get("more_body", False)
    return b"".join(parts)


async def parsed(body: bytes, kind: type[R], limits: RequestLimits) -> R:
    """The request that a body holds; other tasks run while a large one is read."""
    return await in_pieces(parse.steps(body, kind, limits))


async def in_pieces(steps: Generator[None, None, T]) -> T:
    """What the steps return, with a turn for other tasks between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
        await give_way()


async def check_values(body: bytes, limits: RequestLimits) -> None:
    """Refuse a body of too many values. Those of texts count for nothing, but to tell them apart
    takes longer than to count all, which is enough for nearly every body."""
    at_most = limits.body_values
    if len(body) > COUNTED_AT_ONCE:
        await give_way()
    if _separators(body) <= at_most:
        return
    values = Values()
    await give_way()
    for start in range(0, len(body), COUNTED_AT_ONCE):
        values.feed(body[start : start + COUNTED_AT_ONCE])
        if values.count > at_most:
            raise too_large(f"{at_most} values")
        await give_way()


class Values:
    """Counts the values of a JSON text that comes in pieces: at least as many as a parser makes."""

    def __init__(self) -> None:
        self.count = 0
        self._in_string = False
        self._escaped = False

    def feed(self, piece: bytes) -> None:
        """Count one piece, which may begin and end anywhere."""
        if not piece:
            return  # what a backslash before it escapes is still to come
        if self._escaped:
            piece = piece[1:]
        piece = piece.replace(rb"\\", b"")
        self._escaped = piece.endswith(b"\\")
        between = piece.replace(rb"\"", b"").split(b'"')
        self.count += _separators(b"".join(between[self._in_string :: 2]))
        self._in_string ^= len(between) % 2 == 0


def _separators(text: bytes) -> int:
    """What comes before each value of a list or an object, and what begins a list or an object."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _too_long(limits: RequestLimits) -> ApiError:
    return too_large(f"{limits.body_bytes} bytes (TRT_RESPONSES_MAX_BODY_BYTES)")


def too_large(bound: str) -> ApiError:
    """The refusal of a body beyond a bound."""
    return InvalidRequest(
        f"The body is larger than {bound}.",
        status=413,
        code="request_too_large",
    )
