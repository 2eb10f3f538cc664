"""Responses over a WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from responses_conformance.checks import stream
from responses_conformance.checks.base import Failure, NotOffered, check, expect
from responses_conformance.checks.kit import PLAIN, Kit, Run
from responses_conformance.checks.state import NEXT
from responses_conformance.client import Json
from responses_conformance.sockets import Socket, connected

GUIDE = "Guide, WebSocket mode"
LAWS = (
    *(stream.types, stream.begins, stream.one_end, stream.sequence, stream.output_index),
    *(stream.content_index, stream.nesting, stream.joined, stream.fold, stream.ids, stream.stored),
)
UNKNOWN = "resp_000000000000000000000000"


@contextmanager
def _socket(kit: Kit) -> Iterator[Socket]:
    with connected(kit.server) as socket:
        status = socket.exchange.status
        if status >= 500:
            raise Failure(f"status {status} for an upgrade", socket.exchange)
        if status != 101:
            raise NotOffered(f"{status} for an upgrade of GET /responses")
        yield socket


class Socketed(Kit):
    """Records streams over a WebSocket."""

    def recorded(self, name: str, **fields: Any) -> Run:
        body = self.body(**fields)
        with _socket(self) as socket:
            events = _made(socket, body)
        return Run(name, socket.exchange, [(event["type"], event) for event in events], body)


def _made(socket: Socket, body: Json) -> list[Json]:
    """The events of a valid request."""
    events = socket.create(body)
    refused = events[-1]["type"] == "error"
    expect(not refused, f"a valid request is refused: {events[-1].get('error')}", socket.exchange)
    return events


def _refused(socket: Socket, frame: Json | bytes, what: str, code: str = "") -> None:
    """An error frame, and nothing else, is the answer."""
    socket.send(frame)
    [event] = socket.events()
    expect(event["type"] == "error", f"{what} is answered with {event['type']}", socket.exchange)
    error = event.get("error") or {}
    right = isinstance(error.get("message"), str) and 400 <= event.get("status", 0) < 500
    expect(right, f"{what}: the error frame has no status or message", socket.exchange)
    found = error.get("code")
    expect(
        code in ("", found), f"{what}: `error.code` is {found}, expected {code}", socket.exchange
    )


@check("responses.websocket.events", f"{GUIDE}: server events are those of streaming")
def events(kit: Kit) -> None:
    """The events over a WebSocket obey the laws of a stream, from their types to what is stored."""
    over = kit.once("websocket", lambda: Socketed(kit.server, kit.profile))
    for law in LAWS:
        law(over)
    if kit.exact:
        stream.plain(over)


@check("responses.websocket.chain", f"{GUIDE}: continue with previous_response_id; store: false")
def chain(kit: Kit) -> None:
    """A connection continues its last response though it is not stored; another one cannot."""
    body = kit.body(store=False)
    with _socket(kit) as socket:
        alone = _made(socket, body | {"input": NEXT})
        first = _made(socket, body)
        follows = body | {"input": NEXT, "previous_response_id": first[-1]["response"]["id"]}
        child = _made(socket, follows)
    grown = _input_tokens(child) > _input_tokens(alone)
    expect(grown, "the prompt of a continuation is no longer than its input's", socket.exchange)
    with _socket(kit) as other:
        frame = {"type": "response.create", **follows}
        _refused(other, frame, "an unstored response elsewhere", "previous_response_not_found")


def _input_tokens(events: list[Json]) -> int:
    found: int = events[-1]["response"]["usage"]["input_tokens"]
    return found


@check("responses.websocket.errors", f"{GUIDE}: error events")
def errors(kit: Kit) -> None:
    """A bad frame or request is answered with one error frame, and the connection goes on."""
    create: Json = {"type": "response.create", **kit.body(store=False)}
    with _socket(kit) as socket:
        _refused(socket, b'{"type": ', "what is no JSON")
        _refused(socket, {"type": "response.nothing"}, "an unknown type")
        _refused(socket, create | {"temperature": 9}, "a temperature of 9")
        unknown = create | {"previous_response_id": UNKNOWN}
        _refused(socket, unknown, "an unknown id", "previous_response_not_found")
        _made(socket, kit.body(store=False))


@check("responses.websocket.order", f"{GUIDE}: one response at a time")
def order(kit: Kit) -> None:
    """A second request on a connection waits for the first, or is refused: they do not mix."""
    with _socket(kit) as socket:
        for question in (PLAIN, NEXT):
            socket.send({"type": "response.create", **kit.body(input=question, store=False)})
        for _ in range(2):
            found = list(socket.events())
            ids = {event["response"]["id"] for event in found if "response" in event}
            whole = len(ids) == 1 and found[0]["type"] == "response.created"
            right = whole or found[-1]["type"] == "error"
            expect(right, f"the events of {len(ids)} responses mix", socket.exchange)
