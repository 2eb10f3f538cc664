"""Chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from responses_conformance.checks.base import check, expect
from responses_conformance.checks.errors import shaped
from responses_conformance.checks.kit import (
    ABOUT,
    CALL,
    CITY,
    FACTS,
    LONG,
    PLACE,
    PLAIN,
    Kit,
    Recorded,
)
from responses_conformance.checks.output import MARKS
from responses_conformance.checks.types import fault_of
from responses_conformance.client import Exchange, Json
from responses_conformance.schema import departure

CHAT = "API reference, Chat completions"
CHUNKS = f"{CHAT}: The chat completion chunk object"
PATH = "/chat/completions"
TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": ABOUT["get_weather"],
        "parameters": CITY,
        "strict": True,
    },
}
SAMPLES: dict[str, Json] = {
    "text": {"question": PLAIN},
    "call": {"question": CALL, "tools": [TOOL], "tool_choice": "required"},
    "cut": {"question": LONG, "max_completion_tokens": 24},
}
FINISH = {"text": "stop", "call": "tool_calls", "cut": "length"}


def _body(kit: Kit, question: str = PLAIN, **fields: Any) -> Json:
    messages = [{"role": "user", "content": question}]
    return {"model": kit.server.model, "messages": messages} | fields


def _post(kit: Kit, **fields: Any) -> Exchange:
    return kit.server.call("POST", PATH, _body(kit, **fields))


def _create(kit: Kit, *features: str, **fields: Any) -> Json:
    return kit.ok(_post(kit, **fields), *features)


class Chunks(Recorded):
    """The stream of a completion."""

    @property
    def deltas(self) -> list[Json]:
        return [chunk["choices"][0]["delta"] for chunk in self.events if chunk["choices"]]

    def text(self) -> str:
        return "".join(delta.get("content") or "" for delta in self.deltas)


def _recorded(kit: Kit, name: str, **fields: Any) -> Chunks:
    body = _body(kit, stream=True, **SAMPLES[name], **fields)
    return kit.record(Chunks, name, PATH, body, "tool_choice", *fields)


def _streams(kit: Kit) -> Iterator[Chunks]:
    return kit.each("chat", lambda: [_recorded(kit, name) for name in SAMPLES])


@check("chat.object", f"{CHAT}: The chat completion object")
def whole(kit: Kit) -> None:
    """A completion is the SDK's type, and stops with the reason of its request."""
    for name, fields in SAMPLES.items():
        found = _create(kit, "tool_choice", **fields)
        fault = fault_of("chat.completion", found)
        expect(fault is None, str(fault))
        [choice] = found["choices"]
        reason = choice["finish_reason"]
        expect(reason == FINISH[name], f"`finish_reason` is {reason}, expected {FINISH[name]}")
        expect(choice["message"]["role"] == "assistant", "its role is not assistant")


@check("chat.usage", f"{CHAT}: usage")
def usage(kit: Kit) -> None:
    """Total tokens are those of prompt and completion, and details are parts of them."""
    found = _create(kit)["usage"]
    total = found["prompt_tokens"] + found["completion_tokens"]
    expect(found["total_tokens"] == total, f"total {found['total_tokens']}, sum {total}")
    thought = (found.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    expect(thought <= found["completion_tokens"], "more reasoning than completion tokens")


@check("chat.stream.chunks", CHUNKS)
def chunks(kit: Kit) -> None:
    """Chunks are the SDK's type, share one id, and `[DONE]` follows the last."""
    for stream in _streams(kit):
        ends = stream.exchange.reply.rstrip().endswith(b"data: [DONE]")
        stream.expect(ends, "`[DONE]` is not the last line")
        for chunk in stream.events:
            fault = fault_of("chat.completion.chunk", chunk)
            stream.expect(fault is None, str(fault), chunk)
        for name in ("id", "model", "created"):
            found = {chunk[name] for chunk in stream.events}
            stream.expect(len(found) == 1, f"its chunks have {len(found)} values of `{name}`")


@check("chat.stream.role", f"{CHUNKS}: delta.role")
def role(kit: Kit) -> None:
    """`role` comes once, in the first chunk."""
    for stream in _streams(kit):
        roles = [delta["role"] for delta in stream.deltas if delta.get("role")]
        stream.expect(roles == ["assistant"], f"its roles are {roles}", stream.events[0])


@check("chat.stream.finish", f"{CHUNKS}: finish_reason")
def finish(kit: Kit) -> None:
    """One chunk has a `finish_reason`, and no delta follows it."""
    for stream in _streams(kit):
        found = [c for c in stream.events if c["choices"] and c["choices"][0]["finish_reason"]]
        count = len(found)
        stream.expect(count == 1, f"{count} chunks have a `finish_reason`", stream.events[-1])
        last = [chunk for chunk in stream.events if chunk["choices"]][-1]
        stream.expect(last is found[0], "chunks follow the `finish_reason`", last)
        reason, right = last["choices"][0]["finish_reason"], FINISH[stream.name]
        stream.expect(reason == right, f"`finish_reason` is {reason}, expected {right}", last)


@check("chat.stream.usage", f"{CHAT}: stream_options.include_usage")
def include_usage(kit: Kit) -> None:
    """`include_usage` adds one last chunk without choices; without it no chunk has usage."""
    for stream in _streams(kit):
        found = [chunk for chunk in stream.events if chunk.get("usage")]
        shown = found[-1] if found else None
        stream.expect(not found, "a chunk has usage that was not requested", shown)
    stream = _recorded(kit, "text", stream_options={"include_usage": True})
    *others, last = stream.events
    stream.expect(last["choices"] == [] and last.get("usage"), "the last chunk has no usage", last)
    stream.expect(not any(chunk.get("usage") for chunk in others), "another chunk has usage")
    total = last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
    stream.expect(last["usage"]["total_tokens"] == total, "the total is not the sum", last)
    if kit.exact:
        same = {name: _create(kit)["usage"][name] for name in ("prompt_tokens", "total_tokens")}
        stream.expect(same.items() <= last["usage"].items(), "a plain reply has other usage", last)


@check("chat.stream.calls", f"{CHUNKS}: delta.tool_calls")
def calls(kit: Kit) -> None:
    """A call has its index, id, type and name once, and its arguments, joined, follow the
    schema."""
    stream = next(each for each in _streams(kit) if each.name == "call")
    found: list[str] = []
    for delta in stream.deltas:
        for call in delta.get("tool_calls") or ():
            if call.get("id"):
                right = call["index"] == len(found) and call.get("type") == "function"
                stream.expect(right, f"call {len(found)} begins otherwise", call)
                stream.expect(call["function"].get("name"), "a call has no name", call)
                found.append("")
            else:
                stream.expect(not call["function"].get("name"), "a name comes twice", call)
            stream.expect(call["index"] == len(found) - 1, "a call goes on out of turn", call)
            found[-1] += call["function"].get("arguments") or ""
    stream.expect(found, "it has no call")
    for arguments in found:
        why = departure(json.loads(arguments), CITY)
        stream.expect(why is None, f"its arguments depart from the schema: {why}")


@check("chat.stream.plain", f"{CHAT}: stream")
def plain(kit: Kit) -> None:
    """The deltas, joined, are the message of the plain reply (exact where the model is
    scripted)."""
    kit.only("scripted")
    for stream in _streams(kit):
        message = _create(kit, **SAMPLES[stream.name])["choices"][0]["message"]
        right = stream.text() == (message.get("content") or "")
        stream.expect(right, "a plain reply has another text")
        for name in ("reasoning", "reasoning_content"):
            thought = "".join(delta.get(name) or "" for delta in stream.deltas)
            right = thought == (message.get(name) or "")
            stream.expect(right, f"a plain reply has another `{name}`")


@check("chat.reasoning", "gpt-oss, Harmony response format: channels")
def reasoning(kit: Kit) -> None:
    """Reasoning and the marks of the model's format are not in `content`."""
    for stream in _streams(kit):
        marks = [mark for mark in MARKS if mark in stream.text()]
        stream.expect(not marks, f"`content` has {', '.join(marks)}")
        if kit.exact:
            stream.expect("Quiet kit" not in stream.text(), "`content` has the script's reasoning")


@check("chat.format", "Guide, Structured outputs: schema adherence", by_model=True)
def schema(kit: Kit) -> None:
    """With a strict `json_schema` the content is JSON that follows it."""
    described = {"name": "place", "schema": PLACE, "strict": True}
    form = {"type": "json_schema", "json_schema": described}
    found = _create(kit, "response_format", "json_schema", question=FACTS, response_format=form)
    why = departure(json.loads(found["choices"][0]["message"]["content"]), PLACE)
    expect(why is None, f"it departs from the schema: {why}")


@check("chat.tools", "Guide, Function calling: The tool calling flow")
def tools(kit: Kit) -> None:
    """A call's result is answered, and `tool_choice: none` gives no call."""
    first = _create(kit, "tool_choice", **SAMPLES["call"])["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "12 °C"}
        for call in first["tool_calls"]
    ]
    sent = [{"role": "user", "content": CALL}, first, *results]
    found = _create(kit, "tool_choice", messages=sent, tools=[TOOL], tool_choice="none")
    message = found["choices"][0]["message"]
    expect(message.get("content"), "there is no text behind the result")
    expect(not message.get("tool_calls"), "it calls a tool with `tool_choice: none`")


@check("chat.errors", "Guide, Error codes")
def errors(kit: Kit) -> None:
    """An invalid value and a body that is no JSON are a 400 in the API's shape."""
    kit.ok(_post(kit))
    shaped(_post(kit, temperature=9), 400, param="temperature")
    shaped(_post(kit, temperature=9, stream=True), 400, param="temperature")
    shaped(_post(kit, messages=[{"role": "stranger", "content": "Hello"}]), 400, param="messages")
    shaped(kit.server.call("POST", PATH, b'{"model": '), 400)


@check("chat.hang_up", f"{CHAT}: stream")
def hang_up(kit: Kit) -> None:
    """A client that hangs up does not stop the server from answering the next one."""
    kit.ok(_post(kit))
    with kit.server.stream("POST", PATH, _body(kit, LONG, stream=True)) as stream:
        next(iter(stream))
        stream.hang_up()
    _create(kit)
