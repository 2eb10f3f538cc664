"""Messages in tests: what a client of Anthropic's SDK has of a stream's events."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from anthropic.types.beta import BetaRawMessageStreamEvent

Json = dict[str, Any]


@cache
def event_type() -> TypeAdapter[BetaRawMessageStreamEvent]:
    from anthropic.types.beta import BetaRawMessageStreamEvent

    return TypeAdapter(BetaRawMessageStreamEvent)


def events_of(body: bytes) -> list[Any]:
    """The events of a stream, each of the SDK's type and named by it."""
    *frames, rest = body.split(b"\n\n")
    assert rest == b""
    events = []
    for frame in frames:
        name, data = frame.split(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event_type().validate_python(event) if event["type"] != "error" else event)
    return events


def folded(events: list[Any]) -> Json:
    """The message as the SDK's accumulator makes it, of blocks that come one by one."""
    # private: the SDK makes the message with it, behind a client over HTTP
    from anthropic.lib.streaming._beta_messages import accumulate_event
    from httpx2 import Headers

    snapshot, buffers, opened = None, dict[int, bytes](), list[int]()
    for event in events:
        if event.type == "content_block_start":
            assert not opened
            opened.append(event.index)
        elif event.type == "content_block_stop":
            assert opened.pop() == event.index
        snapshot = accumulate_event(
            event=event, current_snapshot=snapshot, json_bufs=buffers, request_headers=Headers()
        )
    assert snapshot is not None
    return snapshot.to_dict()
