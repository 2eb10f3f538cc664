"""Reads a background stream back: the frames that a store keeps, and those that come meanwhile.

Knows frames and the store's seam; knows no HTTP and no log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import orjson

from trt_responses.errors import ApiError, InvalidRequest, NotFound, StoreUnavailable, invalid_value
from trt_responses.log.entries import ResponsesSpelling
from trt_responses.store import Job, Record
from trt_responses.stores.whole import WholeStore
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.events import Error

Pause = Callable[[Callable[[], bytes]], Awaitable[object]]
T = TypeVar("T")

QUEUED = 1
"""The number of the event that says that a background response waits."""
LOST = (
    "The server that was making this response stopped, or was cut off, before the response was "
    "done: send the request again."
)


async def frames_of(
    store: WholeStore,
    response_id: str,
    owner: str,
    after: int,
    dialect: Dialect,
    pause: Pause,
) -> AsyncIterator[bytes]:
    """Frames with greater numbers, as they come to be kept, to the response's end.

    A `NotFound` when some of them are no longer there, an `InvalidRequest` when the response has
    ended before. `pause` is awaited between two askings, and may ask for a frame that tells nothing
    new. The `dialect` is for the end of a stream whose server did not write it. Once a frame was
    given, it waits for a store that is unavailable.
    """
    last, ended = after, False

    async def patiently(read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await read()
            except StoreUnavailable:
                if last == after:
                    raise
            await pause(bytes)

    while True:
        kept = await patiently(partial(store.frames_after, response_id, owner, last))
        if kept is not None and kept.count:
            last = kept.first + kept.count - 1
            yield kept.data
        elif kept is not None and kept.ended and last >= kept.first:
            raise beyond(last, kept.first)
        if ended or (kept is not None and kept.ended):
            if kept is None:
                raise _gone(response_id)
            return
        match await patiently(partial(store.get, response_id, owner)):
            case Job(lost=True) as job:
                number = last + 1 if kept is None else kept.first + kept.count
                if last > number + 1:
                    raise beyond(last, number + 2)
                yield _lost(job, last, number, dialect)
                return
            case Job() as job:
                await pause(partial(_repeated, job, last))
            case Record():
                ended = True  # it may have ended since the frames were read
            case _:
                return  # deleted while it was read


async def followed(
    store: WholeStore, response_id: str, owner: str, after: int, dialect: Dialect, pause: Pause
) -> AsyncIterator[bytes]:
    """The same of a response that runs: the reply has begun, and a refusal is its last frame."""
    try:
        async for frames in frames_of(store, response_id, owner, after, dialect, pause):
            yield frames
    except InvalidRequest as fault:
        yield fault_frame(fault, after + 1, dialect)


def fault_frame(fault: ApiError, number: int, dialect: Dialect) -> bytes:
    """The event of a fault."""
    event = Error(fault.code, fault.message, fault.param)
    return ResponsesSpelling(dialect).frame(event, number)


def lost_snapshot(body: bytes) -> bytes:
    """The snapshot of a response in progress, ended as a lost server's: open items are
    incomplete."""
    last = orjson.loads(body)
    last |= {"status": "failed", "error": {"code": "server_error", "message": LOST}}
    for item in last["output"]:
        if item.get("status") == "in_progress":
            item["status"] = "incomplete"
    return orjson.dumps(last)


def _lost(job: Job, after: int, number: int, dialect: Dialect) -> bytes:
    """The end of a stream whose server died. It is always the same, since that server never comes
    back."""
    failed = {"type": "response.failed", "response": orjson.loads(lost_snapshot(job.body))}
    events = (
        dialect.spelled(Error("server_error", LOST)),
        ("response.failed", orjson.dumps(failed)),
    )
    return b"".join(
        b'event: %b\ndata: %b,"sequence_number":%d}\n\n' % (name.encode(), body[:-1], at)
        for at, (name, body) in enumerate(events, number)
        if at > after
    )


def _repeated(job: Job, last: int) -> bytes:
    """An event that repeats that the response is in progress, with the number of the last one, so
    that a reader who resumes behind it misses nothing. Empty while there was none."""
    if last < 0:
        return b""
    snapshot: dict[str, Any] = orjson.loads(job.body)
    if last > QUEUED or not snapshot["background"]:  # the snapshot is older than the frames
        snapshot["status"] = "in_progress"
    name = f"response.{snapshot['status']}"
    body = orjson.dumps({"type": name, "response": snapshot, "sequence_number": last})
    return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


def _gone(response_id: str) -> ApiError:
    return NotFound(
        f"The events of response '{response_id}' are no longer kept: get it without `stream`.",
        param="stream",
        code="events_expired",
    )


def beyond(after: int, events: int) -> InvalidRequest:
    """The refusal of a reader who begins behind the last event."""
    return invalid_value(
        "starting_after",
        f"the response has ended, and its last event has the number {events - 1}, got {after}",
    )
