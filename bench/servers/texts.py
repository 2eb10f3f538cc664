"""What a client reads of each server's stream, whatever its frames are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from bench.check import Wrong
from bench.servers.load import FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.script import Script


@dataclass(frozen=True, slots=True)
class Reply:
    """One checked reply: its frames, its size, and what it left out."""

    frames: int
    size_bytes: int
    thought: bool
    """Whether the thought was streamed."""
    reasoning_tokens: int | None


def checked(stream: bytes, script: Script) -> Reply:
    """The reply, if its answer is the script's, letter for letter, and its thought that or none;
    else `Wrong`."""
    events = list(_events(stream))
    answer = "".join(_delta(event, "answer") for event in events)
    thought = "".join(_delta(event, "thought") for event in events)
    _same("answer", answer, script.answer)
    if thought:
        _same("thought", thought, script.reasoning)
    usage = _usage(events)
    written = usage.get("completion_tokens", usage.get("output_tokens"))
    _same("tokens", str(written), str(len(script)))
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return Reply(
        (b"\n" + stream).count(FRAME), len(stream), bool(thought), details.get("reasoning_tokens")
    )


def _events(stream: bytes) -> Iterator[dict[str, Any]]:
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            yield orjson.loads(line.removeprefix(b"data: "))


def _delta(event: dict[str, Any], what: str) -> str:
    """What an event adds to the answer or to the thought."""
    if "choices" in event:
        names = ("content",) if what == "answer" else ("reasoning", "reasoning_content")
        deltas = [choice["delta"] for choice in event["choices"]]
        return "".join(next((d[n] for n in names if d.get(n)), "") for d in deltas)
    name = "output" if what == "answer" else "reasoning"
    return str(event["delta"]) if event.get("type") == f"response.{name}_text.delta" else ""


def _usage(events: list[dict[str, Any]]) -> dict[str, Any]:
    holders = [event.get("response") or event for event in events]
    return next((h["usage"] for h in reversed(holders) if h.get("usage")), {})


def _same(what: str, got: str, expected: str) -> None:
    if got != expected:
        at = next((n for n, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), "end")
        raise Wrong(f"its {what} has {len(got)} letters, the script {len(expected)}; from {at} on")
