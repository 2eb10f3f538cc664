"""Runs that go on without a client, or are to end: background, resuming, cancelling, hanging up."""

from __future__ import annotations

import time
from collections.abc import Callable

from responses_conformance.checks.base import Failure, NotJudged, check, expect
from responses_conformance.checks.kit import ENDS, SLOW, Kit
from responses_conformance.client import Exchange, Json

BACKGROUND = "Guide, Background mode"
OPEN = ("queued", "in_progress")
PAUSE_S = 0.05
SLOW_S = 3.0
"""Longer than the script takes for the slow question."""


def _until(kit: Kit, made: Json, holds: Callable[[Exchange], bool], what: str) -> Exchange:
    """Read a response until it holds."""
    end = time.monotonic() + kit.server.patience_s
    while True:
        found = kit.server.call("GET", f"/responses/{made['id']}")
        if holds(found):
            return found
        del kit.server.trace[-1:]  # of many readings the last one is shown
        if time.monotonic() > end:
            raise Failure(f"{what} within {kit.server.patience_s:g} s", found)
        time.sleep(PAUSE_S)


def _begun(kit: Kit, **fields: object) -> Json:
    """A response in the background."""
    made = kit.create("background", background=True, store=True, **fields)
    if made.get("background") is False:
        raise Failure("`background: true` is answered with `background: false`")
    return made


def _over(found: Exchange) -> bool:
    return found.status == 200 and found.json["status"] not in OPEN


@check("responses.background.poll", f"{BACKGROUND}: Polling background responses")
def poll(kit: Kit) -> None:
    """A background response is answered at once, can be read at once, and completes."""
    made = _begun(kit)
    first = kit.server.call("GET", f"/responses/{made['id']}")
    expect(first.status == 200, f"status {first.status} for an id just answered", first)
    found = _until(kit, made, _over, "it has not ended")
    expect(found.json["status"] == "completed", f"it ends as {found.json['status']}", found)
    expect(found.json["output"], "it is completed without output", found)


@check("responses.background.cancel", f"{BACKGROUND}: Cancelling a background response")
def cancel(kit: Kit) -> None:
    """A cancelled response is `cancelled`, stays so, and may be cancelled twice."""
    made = _begun(kit, input=SLOW)
    place = f"/responses/{made['id']}/cancel"
    ended = kit.server.call("POST", place)
    if ended.status == 200 and ended.json["status"] in ("completed", "incomplete"):
        raise NotJudged("the response had ended before it could be cancelled")
    found = kit.ok(ended)
    expect(found["status"] == "cancelled", f"its status is {found['status']}", ended)
    again = kit.server.call("POST", place)
    expect(again.status == 200, f"status {again.status} for the second time", again)
    first = _read(kit, made)
    time.sleep(4 * PAUSE_S)
    later = _read(kit, made)
    expect(later["output"] == first["output"], "its output grows after it was cancelled")


def _read(kit: Kit, made: Json) -> Json:
    found = kit.ok(kit.server.call("GET", f"/responses/{made['id']}"))
    expect(found["status"] == "cancelled", f"a cancelled response is {found['status']}")
    return found


@check(
    "responses.background.foreground", f"{BACKGROUND}; API reference, Responses: Cancel a response"
)
def foreground(kit: Kit) -> None:
    """A response that was not made in the background cannot be cancelled."""
    _begun(kit)  # or it is not offered
    made = kit.stored()
    found = kit.server.call("POST", f"/responses/{made['id']}/cancel")
    right = found.status in (400, 409) and "message" in found.error
    expect(right, f"status {found.status} for a response of the foreground", found)


@check(
    "responses.background.resume", f"{BACKGROUND}: Streaming a background response; starting_after"
)
def resume(kit: Kit) -> None:
    """A background stream is read again from any number on, with the same events."""
    _begun(kit)
    run = kit.recorded("background", background=True, store=True)
    at = len(run.events) // 2
    number = run.events[at]["sequence_number"]
    place = f"/responses/{run.last['id']}?stream=true&starting_after={number}"
    with kit.server.stream("GET", place) as stream:
        found = [event.json for event in stream if event.data != "[DONE]"]
    kit.refused(stream.exchange, "stream", "starting_after")
    right = found == run.events[at + 1 :]
    expect(right, f"the {len(found)} events after {number} are not those of the stream")


@check("responses.hang_up", f"{BACKGROUND}: to cancel a synchronous response, hang up")
def hang_up(kit: Kit) -> None:
    """A run whose client hangs up ends, and the server answers the next request."""
    with kit.server.stream("POST", "/responses", kit.body(input=SLOW, stream=True)) as stream:
        events = iter(stream)
        made = next(events).json["response"]
        next(event for event in events if ".delta" in event.data)
        before = kit.server.call("GET", f"/responses/{made['id']}")
        if _over(before):
            raise NotJudged("the response had ended before the client could hang up")
        stream.hang_up()
    kit.create()
    if kit.exact:
        _never_completed(kit, made)
    elif kit.server.call("GET", f"/responses/{made['id']}").status == 200:
        _until(kit, made, _over, "it is still running behind a client that left")


def _never_completed(kit: Kit, made: Json) -> None:
    """Wait for longer than the script takes."""
    end = time.monotonic() + SLOW_S
    while time.monotonic() < end:
        time.sleep(PAUSE_S)
        found = kit.server.call("GET", f"/responses/{made['id']}")
        whole = found.status == 200 and found.json["status"] == "completed"
        expect(not whole, "the run went on to its end behind a client that left", found)
        del kit.server.trace[-1:]


@check("responses.concurrent", "API reference, Responses, Streaming events")
def concurrent(kit: Kit) -> None:
    """Streams at once do not mix: each has its own id and ends by itself."""
    server, names = kit.server, set()
    with (
        server.stream("POST", "/responses", kit.body(stream=True)) as one,
        server.stream("POST", "/responses", kit.body(stream=True)) as other,
    ):
        for stream in (other, one):
            events = [event.json for event in stream if event.data != "[DONE]"]
            ids = {event["response"]["id"] for event in events if "response" in event}
            expect(len(ids) == 1, f"one stream has {len(ids)} ids", stream.exchange)
            expect(events[-1]["type"] in ENDS, "a stream does not end", stream.exchange)
            names |= ids
    expect(len(names) == 2, "two streams have one id")
