"""The laws of a transcript: what a client reads of a reply, and what is wrong with it.

A user sees nothing that is not meant for users, no answer and no call is lost, arguments arrive as
written, nothing a model writes is an error, and a stream says what the plain reply says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from responses_conformance.transcripts import Transcript

Json = dict[str, Any]

LAWS = {
    "error": "no error for what a model wrote",
    "leak": "a user sees no thought, mark or header",
    "text": "no part of the answer is lost",
    "call": "no call is lost, none is made up, and their order holds",
    "arguments": "arguments reach the client as the model wrote them",
    "finish": "a cut reply says so, and a reply with calls too",
    "stream": "the stream and the plain reply say the same",
}


@dataclass
class Read:
    """What a client reads of one reply."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""
    """`stop`, `tool_calls` or `length`; Responses: by status."""
    error: str = ""


# --- reading ------------------------------------------------------------------------------------


def chat(reply: Json) -> Read:
    choice = reply["choices"][0]
    message = choice["message"]
    calls = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return Read(message.get("content") or "", calls, choice.get("finish_reason") or "")


def chat_stream(events: Iterable[Json]) -> Read:
    seen, calls = Read(), dict[int, list[str]]()
    for event in events:
        if event.get("error"):
            seen.error = json.dumps(event["error"], ensure_ascii=False)
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            seen.text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                parts = calls.setdefault(call["index"], ["", ""])
                parts[0] += function.get("name") or ""
                parts[1] += function.get("arguments") or ""
            seen.finish = choice.get("finish_reason") or seen.finish
    seen.calls = [(name, arguments) for _, (name, arguments) in sorted(calls.items())]
    if not seen.finish and not seen.error:
        seen.error = "the stream ended without a finish_reason"
    return seen


def responses(reply: Json) -> Read:
    seen, status = Read(), reply.get("status")
    for item in reply.get("output") or ():
        if item["type"] == "message":
            parts = (p for p in item["content"] if p["type"] == "output_text")
            seen.text += "".join(part["text"] for part in parts)
        elif item["type"] == "function_call":
            seen.calls.append((item["name"], item["arguments"]))
    if status == "incomplete":
        seen.finish = "length"
    elif status == "completed":
        seen.finish = "tool_calls" if seen.calls else "stop"
    else:
        seen.error = f"status {status}: {json.dumps(reply.get('error'), ensure_ascii=False)}"
    return seen


def responses_stream(events: Iterable[Json]) -> Read:
    """By the deltas, calls by their last event; the stream's last event gives the end."""
    text, calls = "", dict[int, list[str]]()
    seen = Read(error="the stream has no terminal event")
    for event in events:
        match event.get("type"):
            case "response.output_text.delta":
                text += event["delta"]
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                calls[event["output_index"]] = [event["item"]["name"], ""]
            case "response.function_call_arguments.delta":
                calls.setdefault(event["output_index"], ["", ""])[1] += event["delta"]
            case "response.output_item.done" if event["item"]["type"] == "function_call":
                calls[event["output_index"]] = [event["item"][n] for n in ("name", "arguments")]
            case "response.completed" | "response.incomplete" | "response.failed":
                seen = responses(event["response"])
            case "error":
                seen.error = json.dumps(event, ensure_ascii=False)
                break
    seen.text, seen.calls = text, [(name, given) for _, (name, given) in sorted(calls.items())]
    return seen


# --- judging ------------------------------------------------------------------------------------


def broken(seen: Read, transcript: Transcript) -> Iterator[tuple[str, str]]:
    """Each law that a reply breaks, and how."""
    if seen.error:
        yield "error", seen.error
        return
    yield from _text(seen.text, transcript)
    yield from _calls(seen.calls, transcript)
    yield from _finish(seen, transcript)


def same(plain: Read, streamed: Read) -> Iterator[tuple[str, str]]:
    """What a stream says otherwise than the plain reply."""
    if plain.error or streamed.error:
        return
    for what in ("text", "calls", "finish"):
        one, other = getattr(plain, what), getattr(streamed, what)
        if one != other:
            yield "stream", f"{what}: plain {_short(one)}, streamed {_short(other)}"


def _text(text: str, transcript: Transcript) -> Iterator[tuple[str, str]]:
    rest = ""
    for piece in transcript.law.text:
        before, found, text_after = text.partition(piece)
        if not found:
            yield "text", f"{_short(piece)} is missing: the user reads {_short(text)}"
            continue
        rest, text = rest + before + "\n", text_after
    rest += text
    for allowed in sorted(transcript.law.may, key=len, reverse=True):
        rest = rest.replace(allowed, "")
    if rest.strip():
        yield "leak", f"the user reads {_short(rest.strip())}"


def _calls(calls: list[tuple[str, str]], transcript: Transcript) -> Iterator[tuple[str, str]]:
    law = transcript.law
    for number, (name, right) in enumerate(law.calls):
        if number >= len(calls) or calls[number][0] != name:
            yield "call", f"{name} is call {number} of {_short([n for n, _ in calls])}: lost"
        elif calls[number][1] not in right:
            yield "arguments", f"{_short(calls[number][1])} for {_short(right[0])}"
    for name, _ in calls[len(law.calls) :]:
        if name not in law.may_call:
            yield "call", f"a call of {_short(name)} that the model did not make"


def _finish(seen: Read, transcript: Transcript) -> Iterator[tuple[str, str]]:
    wanted = "length" if transcript.finish == "length" else "tool_calls"
    if (transcript.finish == "length" or transcript.law.calls) and seen.finish != wanted:
        yield "finish", f"it says {seen.finish}, where {wanted} is right"


def _short(value: object, most: int = 160) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


READERS: Mapping[str, Any] = {
    "chat": ("/chat/completions", chat, chat_stream),
    "responses": ("/responses", responses, responses_stream),
}
"""Of each API its path, and what reads its plain and its streamed replies."""
