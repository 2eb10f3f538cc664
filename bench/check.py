"""Checks that a stream is right before any time is shown: a fast wrong answer has no speed.

Reads a stream as a client does, by the text of its events; knows nothing of how it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from bench.script import Script

DONE = b"data: [DONE]"


class Wrong(Exception):
    """A contender did not answer with the script; its times mean nothing."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one stream was: its bytes, its events, and the deltas among them."""

    size_bytes: int
    events: int
    deltas: int
    delta_bytes: int


def seen(stream: bytes, script: Script, *, whole: bool) -> Seen:
    """The stream's facts, or `Wrong`. `whole` asks for every event, not for the deltas alone."""
    blocks = stream.split(b"\n\n")
    if blocks[-2:] != [DONE, b""]:
        raise Wrong(f"the stream ends with {stream[-40:]!r}, not with [DONE]")
    events = [(_event(block), len(block) + 2) for block in blocks[:-2]]
    deltas = [(event, size) for event, size in events if event["type"].endswith(".delta")]
    for kind, text in (("reasoning", script.reasoning), ("output", script.answer)):
        name = f"response.{kind}_text.delta"
        _same(f"{kind} deltas", "".join(e["delta"] for e, _ in deltas if e["type"] == name), text)
    if whole:
        _check_whole([event for event, _ in events], script)
    return Seen(len(stream), len(events), len(deltas), sum(size for _, size in deltas))


def check_chat(stream: bytes, script: Script) -> None:
    """`Wrong`, unless the chunks of a chat completion say what the script says."""
    blocks = stream.split(b"\n\n")
    if blocks[-2:] != [DONE, b""]:
        raise Wrong(f"the chat ends with {stream[-40:]!r}, not with [DONE]")
    chunks = [orjson.loads(block.removeprefix(b"data: ")) for block in blocks[:-2]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    for name, text in (("reasoning_content", script.reasoning), ("content", script.answer)):
        _same(f"{name} of the chat", "".join(delta.get(name) or "" for delta in deltas), text)
    _same("tokens of the chat", chunks[-1]["usage"]["completion_tokens"], len(script))


def _event(block: bytes) -> dict[str, Any]:
    name, _, data = block.partition(b"\ndata: ")
    event: dict[str, Any] = orjson.loads(data)
    _same("event name", name.decode(), f"event: {event['type']}")
    return event


def _check_whole(events: list[dict[str, Any]], script: Script) -> None:
    _same("numbers", [e["sequence_number"] for e in events], list(range(len(events))))
    ends = ("response.created", "response.completed")
    _same("first and last event", (events[0]["type"], events[-1]["type"]), ends)
    added = [e["item"]["type"] for e in events if e["type"] == "response.output_item.added"]
    _same("items in order", added, ["reasoning", "message"])
    response = events[-1]["response"]
    texts = [item["content"][0]["text"] for item in response["output"]]
    _same("final texts", texts, [script.reasoning, script.answer])
    _same("output tokens", response["usage"]["output_tokens"], len(script))


def _same(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise Wrong(f"{what}: got {_short(got)}, expected {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:60]}… ({len(text)} characters)"
