"""Laws of the events of a streamed response."""

from __future__ import annotations

from collections import defaultdict

from responses_conformance.checks.base import check, expect
from responses_conformance.checks.kit import ENDS, Kit, Run, outline
from responses_conformance.checks.types import fault_of
from responses_conformance.client import Json

EVENTS = "API reference, Responses, Streaming events"
TEXTS = {
    "response.output_text": "text",
    "response.reasoning_text": "text",
    "response.reasoning_summary_text": "text",
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
"""Kinds of events that come as deltas, and the key of their `done`."""
DELTAS = tuple(f"{kind}.delta" for kind in TEXTS)
DONES = tuple(f"{kind}.done" for kind in TEXTS)
ADDED, DONE = "response.output_item.added", "response.output_item.done"
PART_ADDED, PART_DONE = "response.content_part.added", "response.content_part.done"


def _place(event: Json) -> tuple[object, object]:
    """The item of an event, and its part."""
    return event["item_id"], event.get("content_index", event.get("summary_index"))


def _text(event: Json) -> object:
    """The text of a `done`."""
    return event[TEXTS[event["type"].removesuffix(".done")]]


@check("responses.stream.frames", f"{EVENTS}; HTML Living Standard, Server-sent events")
def frames(kit: Kit) -> None:
    """The reply is `text/event-stream`, and the field `event` of each frame is the type in its
    data."""
    for run in kit.runs():
        found = run.exchange.headers.get("content-type", "")
        expect(found.startswith("text/event-stream"), f"content-type {found}", run.exchange)
        for name, event in run.frames:
            run.expect(name == event["type"], f"`event: {name}` has type {event['type']}", event)


@check("responses.stream.types", f"{EVENTS}; the types of OpenAI's Python SDK")
def types(kit: Kit) -> None:
    """Each event, with the items in it, is one of the SDK's types."""
    for run in kit.runs():
        for event in run.events:
            if ":" not in event["type"]:  # an extension's own events have a prefix
                fault = fault_of("event", event)
                run.expect(fault is None, f"{event['type']}: {fault}", event)


@check("responses.stream.begins", f"{EVENTS}: response.created")
def begins(kit: Kit) -> None:
    """The first event is `response.created` (or queued), with this response's id and no output."""
    for run in kit.runs():
        first = run.events[0]
        right = first["type"] in ("response.created", "response.queued")
        run.expect(right, f"the first event is {first['type']}", first)
        run.expect(first["response"]["output"] == [], "it has output already", first)
        ids = {event["response"]["id"] for event in run.events if "response" in event}
        run.expect(len(ids) == 1, f"one response has {len(ids)} ids", first)


@check(
    "responses.stream.one_end",
    f"{EVENTS}: response.completed, response.incomplete, response.failed",
)
def one_end(kit: Kit) -> None:
    """A stream has one terminal event, and it is the last."""
    for run in kit.runs():
        ends = run.of(*ENDS)
        run.expect(len(ends) == 1, f"{len(ends)} terminal events", ends[-1] if ends else None)
        run.expect(run.events[-1] is ends[0], "events follow the terminal one", run.events[-1])
        status = ends[0]["response"]["status"]
        run.expect(status != "failed", "a valid request fails", ends[0])
        right = ends[0]["type"] == f"response.{status}"
        run.expect(right, f"{ends[0]['type']} has status {status}", ends[0])


@check("responses.stream.sequence", f"{EVENTS}: sequence_number")
def sequence(kit: Kit) -> None:
    """Sequence numbers rise by one."""
    for run in kit.runs():
        for before, event in zip(run.events, run.events[1:], strict=False):
            found, last = event["sequence_number"], before["sequence_number"]
            run.expect(found == last + 1, f"{found} follows {last}", event)


@check("responses.stream.output_index", f"{EVENTS}: output_index")
def output_index(kit: Kit) -> None:
    """Items have the output indexes 0, 1, 2 …, and each event that of its item."""
    for run in kit.runs():
        places: dict[str, int] = {}
        for event in run.events:
            if event["type"] == ADDED:
                right = event["output_index"] == len(places)
                run.expect(right, f"item {len(places)} has index {event['output_index']}", event)
                run.expect(event["item"]["id"] not in places, "an item's id comes twice", event)
                places[event["item"]["id"]] = event["output_index"]
            elif "output_index" in event:
                name = event.get("item_id") or event["item"]["id"]
                right = places.get(name) == event["output_index"]
                run.expect(right, f"{event['type']}: {name} has another index", event)


@check("responses.stream.content_index", f"{EVENTS}: content_index")
def content_index(kit: Kit) -> None:
    """Parts have the content indexes 0, 1, 2 … within their item."""
    for run in kit.runs():
        counts: dict[str, int] = defaultdict(int)
        for event in run.of(PART_ADDED):
            found, right = event["content_index"], counts[event["item_id"]]
            run.expect(found == right, f"part {right} has index {found}", event)
            counts[event["item_id"]] += 1


@check(
    "responses.stream.nesting",
    f"{EVENTS}: response.output_item.added, response.content_part.added, and their `done`",
)
def nesting(kit: Kit) -> None:
    """Items and parts are added before their deltas, and done, once, before the response is."""
    for run in kit.runs():
        items: set[object] = set()
        parts: set[object] = set()
        for event in run.events:
            kind = event["type"]
            if kind == ADDED:
                items.add(event["item"]["id"])
            elif kind == DONE:
                run.expect(event["item"]["id"] in items, "an item is done that is not open", event)
                items.discard(event["item"]["id"])
                left = [part for part in parts if part[0] == event["item"]["id"]]  # type: ignore[index]
                run.expect(not left, "an item is done before its part", event)
            elif kind == PART_ADDED:
                run.expect(event["item_id"] in items, "a part is added to no open item", event)
                parts.add(_place(event))
            elif kind == PART_DONE:
                run.expect(_place(event) in parts, "a part is done that is not open", event)
                parts.discard(_place(event))
            elif kind in DELTAS + DONES:
                run.expect(event["item_id"] in items, f"{kind} belongs to no open item", event)
                if kind.startswith(("response.output_text", "response.reasoning_text")):
                    run.expect(_place(event) in parts, f"{kind} belongs to no open part", event)
            elif kind in ENDS:
                run.expect(not items and not parts, "the response ends with open items", event)


@check(
    "responses.stream.joined",
    f"{EVENTS}: response.output_text.delta and .done, response.function_call_arguments.delta",
)
def joined(kit: Kit) -> None:
    """The deltas of a text or of arguments, joined, are what its `done` says, and its part."""
    for run in kit.runs():
        texts: dict[tuple[object, object], str] = defaultdict(str)
        for event in run.events:
            if event["type"] in DELTAS:
                texts[_place(event)] += event["delta"]
            elif event["type"] in DONES:
                right = texts[_place(event)] == _text(event)
                run.expect(right, f"{event['type']} differs from its deltas", event)
            elif event["type"] == PART_DONE and "text" in event["part"]:
                right = texts[_place(event)] == event["part"]["text"]
                run.expect(right, "a part differs from its deltas", event)
        for event in run.of(DONE):
            found = [texts[event["item"]["id"], at] for at in _indexes(event["item"])]
            run.expect(found == _texts(event["item"]), "an item differs from its deltas", event)


def _texts(item: Json) -> list[object]:
    if item["type"] == "function_call":
        return [item["arguments"]]
    return [part["text"] for part in item.get("content") or () if "text" in part]


def _indexes(item: Json) -> list[int | None]:
    if item["type"] == "function_call":
        return [None]
    parts = item.get("content") or ()
    return [index for index, part in enumerate(parts) if "text" in part]


@check("responses.stream.fold", f"{EVENTS}: response.output_item.done, response.completed")
def fold(kit: Kit) -> None:
    """The items that were done, in their order, are the output of the response at the end."""
    for run in kit.runs():
        done = [event["item"] for event in run.of(DONE)]
        end = run.of(*ENDS)[-1]
        run.expect(done == run.last["output"], "its output is not what was streamed", end)


@check("responses.stream.ids", "API reference, Responses: the unique ID of the item")
def ids(kit: Kit) -> None:
    """Ids of items and calls occur once, over all responses."""
    seen: set[str] = set()
    for run in kit.runs():
        for item in run.last["output"]:
            for name in ("id", "call_id"):
                if found := item.get(name):
                    run.expect(found not in seen, f"{name} {found} comes again")
                    seen.add(found)
        run.expect(run.last["id"] not in seen, "the response's id comes again")
        seen.add(run.last["id"])


@check("responses.stream.stored", "API reference, Responses: Get a model response")
def stored(kit: Kit) -> None:
    """A streamed response, read again, is the one of the terminal event, usage included."""
    kit.stored()
    for run in kit.runs():
        found = kit.ok(kit.server.call("GET", f"/responses/{run.last['id']}"))
        for name in ("status", "output", "usage", "incomplete_details"):
            same = found[name] == run.last[name]
            expect(same, f"`{name}` differs from the stream's (sample `{run.name}`)")


@check("responses.stream.plain", "API reference, Responses: Create a model response, stream")
def plain(kit: Kit) -> None:
    """The same request without `stream` gives the same items (exact where the model is
    scripted)."""
    kit.only("scripted")
    for run in kit.runs():
        found = kit.create(**_without_stream(run))
        same = outline(found) == outline(run.last)
        expect(same, f"a plain reply has other items than the stream (sample `{run.name}`)")
        usage = {name: found["usage"][name] for name in ("input_tokens", "output_tokens")}
        expect(usage.items() <= run.last["usage"].items(), "usage differs from the stream's")


def _without_stream(run: Run) -> Json:
    return {**run.fields, "stream": None}
