"""Our server with one fault at a time, each under a path of its own: `/FAULT/v1/responses`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Json = dict[str, Any]
DONE: Json = {"type": "[DONE]"}
ENDS = ("response.completed", "response.incomplete")


@dataclass(frozen=True)
class Answer:
    """A reply with which a fault stands for the server."""

    status: int
    body: Json


@dataclass(frozen=True)
class Fault:
    """How a server departs from the rules, and the check that has to find it."""

    found_by: str
    events: Callable[[list[Json]], list[Json]] = lambda events: events
    reply: Callable[[str, Answer], Answer] = lambda path, answer: answer
    request: Callable[[str, str, Json], Json | Answer] = lambda method, path, body: body
    deaf: bool = False
    """The server does not learn that a client has left."""


def changed(
    kind: str, change: Callable[[Json], object], at: int = 0
) -> Callable[[list[Json]], list[Json]]:
    """Events of which one of a kind is changed in its place."""

    def apply(events: list[Json]) -> list[Json]:
        found = [event for event in events if event["type"].endswith(kind)]
        if found and -len(found) <= at < len(found):
            change(found[at])
        return events

    return apply


def without(kind: str) -> Callable[[list[Json]], list[Json]]:
    """Events without the first of a kind."""

    def apply(events: list[Json]) -> list[Json]:
        first = next((event for event in events if event["type"].endswith(kind)), None)
        return [event for event in events if event is not first]

    return apply


def ended_twice(events: list[Json]) -> list[Json]:
    last = events[-2]
    return [*events[:-1], {**last, "sequence_number": last["sequence_number"] + 1}, DONE]


def told_ok(path: str, answer: Answer) -> Answer:
    return Answer(200, answer.body)


def server_error(path: str, answer: Answer) -> Answer:
    return Answer(500, answer.body) if answer.status == 400 else answer


def nameless(path: str, answer: Answer) -> Answer:
    if "error" in answer.body and answer.status == 400:
        answer.body["error"]["param"] = None
    return answer


def framework_shape(path: str, answer: Answer) -> Answer:
    return Answer(422, {"detail": "bad"}) if answer.status == 400 else answer


def in_response(change: Callable[[Json], object]) -> Callable[[str, Answer], Answer]:
    """Plain responses, changed in their place."""

    def apply(path: str, answer: Answer) -> Answer:
        if answer.body.get("object") == "response":
            change(answer.body)
        return answer

    return apply


def at_end(change: Callable[[Json], object]) -> Callable[[list[Json]], list[Json]]:
    """Streams whose response in the terminal event is changed in its place."""

    def apply(events: list[Json]) -> list[Json]:
        for event in events:
            if event["type"] in ENDS:
                change(event["response"])
        return events

    return apply


def no_deletion(method: str, path: str, body: Json) -> Json | Answer:
    if method == "DELETE":
        return Answer(200, {"id": path.rpartition("/")[2], "deleted": True})
    return body


def no_cancelling(method: str, path: str, body: Json) -> Json | Answer:
    return Answer(200, {"status": "cancelled"}) if path.endswith("/cancel") else body


class Late:
    """An id is known from its second reading on."""

    def __init__(self) -> None:
        self._read: set[str] = set()

    def __call__(self, method: str, path: str, body: Json) -> Json | Answer:
        if method == "GET" and "/responses/" in path and path not in self._read:
            self._read.add(path)
            error = {"message": "unknown", "type": "invalid_request_error"}
            return Answer(404, {"error": error})
        return body


def ignoring(*names: str) -> Callable[[str, str, Json], Json]:
    """Requests without these fields."""
    return lambda method, path, body: {k: v for k, v in body.items() if k not in names}


def without_reasoning(method: str, path: str, body: Json) -> Json:
    if isinstance(sent := body.get("input"), list):
        body["input"] = [item for item in sent if item.get("type") != "reasoning"]
    return body


class Inherited:
    """Instructions of the first request stay."""

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, method: str, path: str, body: Json) -> Json:
        self._last = body.get("instructions") or self._last
        return {**body, "instructions": self._last} if self._last and body else body


def thought_as_text(events: list[Json]) -> list[Json]:
    def show(response: Json) -> None:
        thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
        for item in response["output"]:
            if item["type"] == "message" and thoughts:
                item["content"][0]["text"] = thoughts[0]["content"][0]["text"]

    return at_end(show)(events)


def thought_in_content(events: list[Json]) -> list[Json]:
    for event in events:
        for choice in event.get("choices", ()):
            if "reasoning" in choice["delta"]:
                choice["delta"] = {"content": choice["delta"]["reasoning"]}
    return events


def off_schema(events: list[Json]) -> list[Json]:
    def rewrite(response: Json) -> None:
        for item in response["output"]:
            if item["type"] == "message" and item["content"][0]["text"].startswith("{"):
                item["content"][0]["text"] = '{"name": "Bern", "kind": "planet"}'

    return at_end(rewrite)(events)


def in_chunk(change: Callable[[Json], object]) -> Callable[[list[Json]], list[Json]]:
    """Chunks of chat, each choice changed in its place."""

    def apply(events: list[Json]) -> list[Json]:
        for event in events:
            for choice in event.get("choices", ()):
                change(choice)
        return events

    return apply


def repeat_name(choice: Json) -> None:
    for call in choice["delta"].get("tool_calls", ()):
        call["function"]["name"] = "get_weather"


def same_ids(response: Json) -> None:
    for item in response["output"]:
        item["id"] = f"{item['type']}_1234"


def two_calls(response: Json) -> None:
    for item in list(response["output"]):
        if item["type"] == "function_call":
            response["output"].append(dict(item))


def last_tool(response: Json) -> None:
    for item in response["output"]:
        if item["type"] == "function_call":
            item["name"] = "get_weather"


def shift(events: list[Json]) -> list[Json]:
    return events[1:] if "response.created" not in events[0]["type"] else events


def as_completed(response: Json) -> None:
    response["status"], response["incomplete_details"] = "completed", None


def ascending(path: str, answer: Answer) -> Answer:
    if "input_items" in path:
        answer.body["data"].reverse()
    return answer


def miscount(path: str, answer: Answer) -> Answer:
    if "input_tokens" in path or "count_tokens" in path:
        answer.body["input_tokens"] += 3
    return answer


FAULTS = {
    "a_delta_is_lost": Fault("responses.stream.joined", without("output_text.delta")),
    "an_event_is_lost": Fault("responses.stream.sequence", without("content_part.done")),
    "ended_twice": Fault("responses.stream.one_end", ended_twice),
    "never_ended": Fault("responses.stream.one_end", without("response.completed")),
    "other_output_index": Fault(
        "responses.stream.output_index", changed("text.delta", lambda e: e.update(output_index=7))
    ),
    "other_content_index": Fault(
        "responses.stream.content_index",
        changed("content_part.added", lambda e: e.update(content_index=1)),
    ),
    "a_gap_in_numbers": Fault(
        "responses.stream.sequence",
        changed("item.done", lambda e: e.update(sequence_number=10_000)),
    ),
    "done_differs": Fault(
        "responses.stream.joined", changed("text.done", lambda e: e.update(text="other"))
    ),
    "part_not_added": Fault("responses.stream.nesting", without("content_part.added")),
    "item_not_done": Fault("responses.stream.nesting", without("output_item.done")),
    "other_name_of_an_event": Fault(
        "responses.stream.frames", changed("text.delta", lambda e: e.update(_event="delta"))
    ),
    "no_logprobs": Fault(
        "responses.stream.types", changed("output_text.delta", lambda e: e.pop("logprobs"))
    ),
    "other_output_at_the_end": Fault("responses.stream.fold", at_end(lambda r: r["output"].pop())),
    "constant_ids": Fault("responses.stream.ids", at_end(same_ids)),
    "begins_without_created": Fault("responses.stream.begins", without("response.created")),
    "a_sum_that_is_none": Fault(
        "responses.usage", at_end(lambda r: r["usage"].update(total_tokens=1))
    ),
    "reasoning_not_counted": Fault(
        "responses.usage",
        at_end(lambda r: r["usage"]["output_tokens_details"].update(reasoning_tokens=0)),
    ),
    "a_cut_as_completed": Fault("responses.limit", at_end(as_completed)),
    "thought_as_text": Fault("responses.reasoning.apart", thought_as_text),
    "schema_violated": Fault("responses.format.schema", off_schema),
    "an_error_as_200": Fault("responses.errors.value", reply=told_ok),
    "an_error_without_param": Fault("responses.errors.value", reply=nameless),
    "an_error_of_the_framework": Fault("responses.errors.json", reply=framework_shape),
    "a_500_for_bad_json": Fault("responses.errors.json", reply=server_error),
    "id_not_usable_yet": Fault("responses.state.at_once", request=Late()),
    "not_deleted": Fault("responses.state.delete", request=no_deletion),
    "chain_ignored": Fault("responses.state.chain", request=ignoring("previous_response_id")),
    "unknown_id_ignored": Fault(
        "responses.state.unknown", request=ignoring("previous_response_id")
    ),
    "store_ignored": Fault("responses.state.unstored", request=ignoring("store")),
    "instructions_inherited": Fault("responses.state.instructions", request=Inherited()),
    "items_oldest_first": Fault("responses.state.input_items", reply=ascending),
    "another_count": Fault("responses.state.input_tokens", reply=miscount),
    "tool_choice_ignored": Fault("responses.tools.named", request=ignoring("tool_choice")),
    "none_ignored": Fault("responses.tools.none", request=ignoring("tool_choice")),
    "another_tool": Fault("responses.tools.allowed", reply=in_response(last_tool)),
    "two_calls_for_one": Fault("responses.tools.one", reply=in_response(two_calls)),
    "reasoning_dropped": Fault("responses.reasoning.encrypted", request=without_reasoning),
    "effort_forgotten": Fault("responses.reasoning.effort", request=ignoring("reasoning")),
    "settings_forgotten": Fault("responses.echo", request=ignoring("temperature")),
    "cancelled_and_running": Fault("responses.background.cancel", request=no_cancelling),
    "goes_on_alone": Fault("responses.hang_up", deaf=True),
    "resumed_too_late": Fault("responses.background.resume", shift),
    "no_finish_reason": Fault(
        "chat.stream.finish", in_chunk(lambda choice: choice.update(finish_reason=None))
    ),
    "role_in_each_chunk": Fault(
        "chat.stream.role", in_chunk(lambda choice: choice["delta"].update(role="assistant"))
    ),
    "name_in_each_chunk": Fault("chat.stream.calls", in_chunk(repeat_name)),
    "thought_in_content": Fault("chat.reasoning", thought_in_content),
    "no_usage_chunk": Fault("chat.stream.usage", request=ignoring("stream_options")),
    "chat_error_without_param": Fault("chat.errors", reply=nameless),
    "other_block_index": Fault(
        "messages.stream.order", changed("block_delta", lambda e: e.update(index=5))
    ),
    "a_block_not_stopped": Fault("messages.stream.order", without("block_stop")),
    "always_end_turn": Fault(
        "messages.stream.stop",
        changed("message_delta", lambda e: e["delta"].update(stop_reason="end_turn")),
    ),
    "a_part_not_added_over_websocket": Fault(
        "responses.websocket.events", without("content_part.added")
    ),
    "a_chain_ignored_over_websocket": Fault(
        "responses.websocket.chain", request=ignoring("previous_response_id")
    ),
    "an_error_without_message_over_websocket": Fault(
        "responses.websocket.errors", changed("error", lambda e: e["error"].pop("message"))
    ),
    "a_later_response_first": Fault(
        "responses.websocket.order",
        changed("response.created", lambda e: e["response"].update(id="resp_1")),
    ),
    "another_count_of_messages": Fault("messages.count", reply=miscount),
}


class Planted:
    """An ASGI layer that plants the fault which the path names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, _, rest = scope.get("path", "").removeprefix("/").partition("/")
        if name not in FAULTS:
            await self._app(scope, receive, send)
            return
        fault, path = FAULTS[name], f"/{rest}"
        if scope["type"] == "websocket":
            await self._app({**scope, "path": path}, _hearing(fault, receive), _saying(fault, send))
            return
        body = await _read(receive)
        if fault.deaf:
            await self._app(_at(scope, path, body), _given(body), send)
            return
        try:
            asked = fault.request(scope["method"], path, json.loads(body)) if body else {}
            asked = asked or fault.request(scope["method"], path, {})
            sent = asked if isinstance(asked, Answer) else json.dumps(asked).encode()
        except ValueError:
            sent = body
        if isinstance(sent, Answer):
            await _answer(send, sent.status, json.dumps(sent.body).encode())
            return
        status, headers, reply = await self._reply(scope, path, sent if body else b"")
        if b"event-stream" in headers.get(b"content-type", b""):
            reply = _frames(fault.events(_events(reply)))
        elif reply.startswith(b"{"):
            answer = fault.reply(path, Answer(status, json.loads(reply)))
            status, reply = answer.status, json.dumps(answer.body).encode()
        await _answer(send, status, reply, headers.get(b"content-type", b"application/json"))

    async def _reply(
        self, scope: Scope, path: str, body: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        got: list[Message] = []

        async def send(message: Message) -> None:
            got.append(message)

        await self._app(_at(scope, path, body), _given(body), send)
        start = next(each for each in got if each["type"] == "http.response.start")
        return start["status"], dict(start["headers"]), b"".join(m.get("body", b"") for m in got)


def _hearing(fault: Fault, receive: Receive) -> Receive:
    async def hear() -> Message:
        message = await receive()
        with suppress(ValueError):  # what is no JSON stays so
            if text := message.get("text"):
                body = fault.request("WEBSOCKET", "/responses", json.loads(text))
                message["text"] = json.dumps(body)
        return message

    return hear


def _saying(fault: Fault, send: Send) -> Send:
    async def say(message: Message) -> None:
        if "text" not in message:
            await send(message)
            return
        for event in fault.events([json.loads(message["text"])]):
            await send({**message, "text": json.dumps(event)})

    return say


def _at(scope: Scope, path: str, body: bytes) -> Scope:
    headers = [(k, v) for k, v in scope["headers"] if k != b"content-length"]
    headers.append((b"content-length", b"%d" % len(body)))
    return {**scope, "path": path, "raw_path": path.encode(), "headers": headers}


def _given(body: bytes) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return first.pop() if first else await asyncio.Future()  # the client stays

    return receive


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _answer(send: Send, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _events(reply: bytes) -> list[Json]:
    found = []
    for frame in reply.decode().split("\n\n"):
        data = "".join(line[5:].strip() for line in frame.split("\n") if line.startswith("data:"))
        if data:
            found.append(DONE if data == "[DONE]" else {"type": "", **json.loads(data)})
    return found


def _frames(events: list[Json]) -> bytes:
    text = ""
    for event in events:
        name = event.pop("_event", event["type"])
        if event is DONE:
            text += "data: [DONE]\n\n"
        else:
            shown = event if event["type"] else {k: v for k, v in event.items() if k != "type"}
            text += (f"event: {name}\n" if name else "") + f"data: {json.dumps(shown)}\n\n"
    return text.encode()
