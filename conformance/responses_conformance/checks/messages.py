"""Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from responses_conformance.checks.base import check, expect
from responses_conformance.checks.kit import ABOUT, CALL, CITY, LONG, PLAIN, Kit, Recorded
from responses_conformance.client import Exchange, Json
from responses_conformance.schema import departure

MESSAGES = "Anthropic API reference, Messages"
STREAMING = "Anthropic, Streaming messages"
PATH = "/messages"
TOOL = {
    "name": "get_weather",
    "description": ABOUT["get_weather"],
    "input_schema": CITY,
}
SAMPLES: dict[str, Json] = {
    "text": {"question": PLAIN},
    "call": {"question": CALL, "tools": [TOOL], "tool_choice": {"type": "any"}},
    "cut": {"question": LONG, "max_tokens": 24},
}
STOPS = {"text": "end_turn", "call": "tool_use", "cut": "max_tokens"}
DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _body(kit: Kit, question: str = PLAIN, **fields: Any) -> Json:
    messages = [{"role": "user", "content": question}]
    return {"model": kit.server.model, "messages": messages, "max_tokens": 2048} | fields


def _post(kit: Kit, **fields: Any) -> Exchange:
    return kit.server.call("POST", PATH, _body(kit, **fields))


class Blocks(Recorded):
    """The stream of a message."""

    def blocks(self) -> list[Json]:
        """The content blocks, their deltas joined."""
        found: list[Json] = []
        for event in self.events:
            if event["type"] == "content_block_start":
                found.append({**event["content_block"], "partial_json": ""})
            elif event["type"] == "content_block_delta":
                key = DELTAS[event["delta"]["type"]]
                found[event["index"]][key] = (
                    found[event["index"]].get(key, "") + event["delta"][key]
                )
        return found


def _recorded(kit: Kit, name: str) -> Blocks:
    body = _body(kit, stream=True, **SAMPLES[name])
    found = kit.record(Blocks, name, PATH, body, "tool_choice")
    found.frames[:] = [frame for frame in found.frames if frame[1]["type"] != "ping"]
    return found


def _streams(kit: Kit) -> Iterator[Blocks]:
    return kit.each("messages", lambda: [_recorded(kit, name) for name in SAMPLES])


@check("messages.object", f"{MESSAGES}: Create a message")
def whole(kit: Kit) -> None:
    """A message has its keys, content blocks, usage, and the stop reason of its request."""
    for name, fields in SAMPLES.items():
        found = kit.ok(_post(kit, **fields), "tool_choice")
        for key, value in {"type": "message", "role": "assistant"}.items():
            expect(found[key] == value, f"`{key}` is {found[key]}")
        for key in ("id", "model", "content", "stop_sequence", "usage"):
            expect(key in found, f"it has no `{key}`")
        reason = found["stop_reason"]
        expect(reason == STOPS[name], f"`stop_reason` is {reason}, expected {STOPS[name]}")
        known = ("text", "thinking", "redacted_thinking", "tool_use")
        kinds = {block["type"] for block in found["content"]}
        expect(kinds <= set(known), f"it has blocks of {kinds}")
        expect(found["usage"]["output_tokens"] > 0, "it has no output tokens")


@check("messages.stream.order", f"{STREAMING}: Event types")
def order(kit: Kit) -> None:
    """A stream is message_start, blocks one after the other, message_delta, message_stop."""
    for stream in _streams(kit):
        kinds = [event["type"] for event in stream.events]
        stream.expect(kinds[0] == "message_start", f"it begins with {kinds[0]}", stream.events[0])
        right = kinds[-2:] == ["message_delta", "message_stop"]
        stream.expect(right, f"it ends with {kinds[-2:]}", stream.events[-1])
        for once in ("message_start", "message_stop"):
            stream.expect(kinds.count(once) == 1, f"it has {kinds.count(once)} {once}")
        place, is_open = -1, False
        for event in stream.events[1:-2]:
            begins = event["type"] == "content_block_start"
            stream.expect(begins != is_open, f"{event['type']} is out of its order", event)
            place, is_open = place + begins, event["type"] != "content_block_stop"
            stream.expect(event["index"] == place, f"index {event['index']} of {place}", event)
        stream.expect(not is_open, "a block is left open")


@check("messages.stream.names", f"{STREAMING}: Event types")
def names(kit: Kit) -> None:
    """The field `event` of each frame is the type in its data."""
    for stream in _streams(kit):
        for name, event in stream.frames:
            stream.expect(name == event["type"], f"`event: {name}` has {event['type']}", event)


@check("messages.stream.start", f"{STREAMING}: message_start")
def start(kit: Kit) -> None:
    """`message_start` has a whole message without content."""
    for stream in _streams(kit):
        first = stream.events[0]["message"]
        expected: Json = {
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
        }
        for key, value in expected.items():
            stream.expect(first.get(key, "") == value, f"its `{key}` is {first.get(key)}", first)
        stream.expect("input_tokens" in first["usage"], "it has no input tokens", first)


@check("messages.stream.stop", f"{STREAMING}: message_delta; Handling stop reasons")
def stop(kit: Kit) -> None:
    """`message_delta` has the stop reason of the request, and the output tokens."""
    for stream in _streams(kit):
        event = stream.events[-2]
        reason, right = event["delta"]["stop_reason"], STOPS[stream.name]
        stream.expect(reason == right, f"`stop_reason` is {reason}, expected {right}", event)
        stream.expect(event["usage"]["output_tokens"] > 0, "it has no output tokens", event)


@check("messages.stream.input", f"{STREAMING}: Input JSON delta")
def input_json(kit: Kit) -> None:
    """A `tool_use` block begins with an empty input, and its JSON, joined, follows the schema."""
    stream = next(each for each in _streams(kit) if each.name == "call")
    used = [block for block in stream.blocks() if block["type"] == "tool_use"]
    stream.expect(used, "it has no `tool_use` block")
    for block in used:
        stream.expect(block["input"] == {}, "its input is not empty at first", block)
        why = departure(json.loads(block["partial_json"]), CITY)
        stream.expect(why is None, f"its input departs from the schema: {why}", block)


@check("messages.stream.plain", f"{STREAMING}: Content block delta types")
def plain(kit: Kit) -> None:
    """The blocks of a stream are those of the plain reply (exact where the model is scripted)."""
    kit.only("scripted")
    for stream in _streams(kit):
        found = kit.ok(_post(kit, **SAMPLES[stream.name]))["content"]
        for key in ("type", "text", "thinking", "name"):
            right = [b.get(key) for b in stream.blocks()] == [b.get(key) for b in found]
            stream.expect(right, f"a plain reply has other blocks: `{key}` differs")


@check("messages.tools", "Anthropic, Tool use: Handle tool use and tool result content blocks")
def tools(kit: Kit) -> None:
    """A `tool_result` is answered, with the blocks of the turn sent back as they came."""
    first = kit.ok(_post(kit, **SAMPLES["call"]), "tool_choice")
    used = [block for block in first["content"] if block["type"] == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "12 °C"} for block in used
    ]
    sent = [
        {"role": "user", "content": CALL},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": results},
    ]
    found = kit.ok(_post(kit, messages=sent, tools=[TOOL], tool_choice={"type": "none"}))
    texts = [block["text"] for block in found["content"] if block["type"] == "text"]
    expect("".join(texts), "there is no text behind the result")
    expect(found["stop_reason"] == "end_turn", f"`stop_reason` is {found['stop_reason']}")


@check("messages.count", f"{MESSAGES}: Count tokens in a message")
def count(kit: Kit) -> None:
    """`count_tokens` counts what `usage` of the same request says."""
    body = _body(kit)
    del body["max_tokens"]
    counted = kit.server.call("POST", f"{PATH}/count_tokens", body)
    found = kit.ok(counted, "count_tokens")["input_tokens"]
    used = kit.ok(_post(kit))["usage"]
    total = sum(used.get(f"{kind}input_tokens") or 0 for kind in ("", "cache_read_"))
    total += used.get("cache_creation_input_tokens") or 0
    expect(found == total, f"{found} were counted, {total} were used", counted)


@check("messages.errors", "Anthropic API reference, Errors")
def errors(kit: Kit) -> None:
    """Errors have the shape `{type: error, error: {type, message}}` and their status."""
    kit.ok(_post(kit))
    bad: list[Json | bytes] = [_body(kit, temperature=9), _body(kit, messages=[]), b'{"model": ']
    for body in bad:
        found = kit.server.call("POST", PATH, body)
        expect(found.status == 400, f"status {found.status}, expected 400", found)
        expect(found.json["type"] == "error", "its `type` is not error", found)
        kind = found.error.get("type")
        expect(kind == "invalid_request_error", f"`error.type` is {kind}", found)
        expect(isinstance(found.error.get("message"), str), "it has no message", found)
