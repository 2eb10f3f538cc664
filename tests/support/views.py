"""One script through every view of a run: a tool loop of two turns, as a client of each has it.

Each view gets a server of its own, whose engine writes the same ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tests.support.asgi import events_of
from tests.support.served import KEYED, Served, served
from tests.support.sockets import connected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Json = dict[str, Any]

CALL = (
    "<|channel|>analysis<|message|>I need the weather.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Bern"}<|call|>'
)
"""As models write it, and as it is rendered for a client that brings the call back: continuing and
sending again give the same ids."""
ANSWER = (
    "<|channel|>analysis<|message|>It rains.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Take an umbrella.<|return|>"
)
QUESTION, RESULT = "Do I need an umbrella in Bern?", "Rain."
HELLO = {"role": "user", "content": QUESTION}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


class Said(NamedTuple):
    """What a client has got of one turn, whichever words its API has for it."""

    thought: str
    text: str
    calls: tuple[tuple[str, str], ...]
    """Names, and arguments as JSON without spaces."""
    usage: tuple[int, int, int, int]
    """Tokens: of the prompt, of those from a cache, written, and of them thought."""


class Turn(NamedTuple):
    ids: tuple[tuple[int, ...], ...]
    """What the engine was shown, request by request."""
    said: Said


async def through(view: Callable[[Served], Awaitable[list[Said]]]) -> list[Turn]:
    """Both turns, seen so."""
    async with served(CALL, ANSWER, **KEYED) as s:
        said = await view(s)
        shown = [tuple(request.prompt_ids) for request in s.engine.requests]
    assert len(shown) == len(said)
    return [Turn((ids,), told) for ids, told in zip(shown, said, strict=True)]


async def posted(s: Served, path: str, body: Json) -> Any:
    reply = await s.client.send("POST", path, orjson.dumps({"model": "demo"} | body))
    assert reply.status == 200, reply.body
    return reply


# --- the Responses API ---------------------------------------------------------------------------

TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA}


def of_response(response: Json) -> Said:
    output, usage = response["output"], response["usage"]
    return Said(
        thought=_texts(output, "reasoning"),
        text=_texts(output, "message"),
        calls=tuple(
            (item["name"], _compact(item["arguments"]))
            for item in output
            if item["type"] == "function_call"
        ),
        usage=(
            usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["output_tokens"],
            usage["output_tokens_details"]["reasoning_tokens"],
        ),
    )


def _texts(output: list[Json], kind: str) -> str:
    return "".join(p["text"] for item in output if item["type"] == kind for p in item["content"])


def _compact(arguments: str) -> str:
    return orjson.dumps(orjson.loads(arguments)).decode()


def _result(response: Json) -> Json:
    call = next(item for item in response["output"] if item["type"] == "function_call")
    return {"type": "function_call_output", "call_id": call["call_id"], "output": RESULT}


async def responses(s: Served) -> list[Said]:
    """The client sends all items again."""
    body = {"input": [HELLO], "tools": [TOOL], "store": False}
    first = (await posted(s, "/v1/responses", body)).json()
    body["input"] = [HELLO, *first["output"], _result(first)]
    return [of_response(first), of_response((await posted(s, "/v1/responses", body)).json())]


async def responses_streamed(s: Served) -> list[Said]:
    """The client continues what is stored."""
    body: Json = {"input": [HELLO], "tools": [TOOL], "stream": True}
    first = (await posted(s, "/v1/responses", body)).events[-1]["response"]
    body |= {"input": [_result(first)], "previous_response_id": first["id"]}
    last = (await posted(s, "/v1/responses", body)).events[-1]["response"]
    return [of_response(first), of_response(last)]


async def background(s: Served) -> list[Said]:
    """The server owns the runs; the client follows them, and reads what is stored."""
    body: Json = {"input": [HELLO], "tools": [TOOL], "background": True, "stream": True}
    told = []
    for _ in range(2):
        response_id = (await posted(s, "/v1/responses", body)).events[0]["response"]["id"]
        stored = (await s.client.get(f"/v1/responses/{response_id}")).json()
        told.append(of_response(stored))
        if len(told) == 1:
            body |= {"input": [_result(stored)], "previous_response_id": response_id}
    return told


async def websocket(s: Served) -> list[Said]:
    """One connection, which goes on from what is not stored."""
    async with connected(s.app) as socket:
        body: Json = {"tools": [TOOL], "store": False}
        first = (await socket.answer(input=[HELLO], **body))[-1]["response"]
        body |= {"input": [_result(first)], "previous_response_id": first["id"]}
        last = (await socket.answer(**body))[-1]["response"]
    return [of_response(first), of_response(last)]


# --- chat completions ----------------------------------------------------------------------------

CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def of_completion(message: Json, usage: Json) -> Said:
    return Said(
        thought=message.get("reasoning_content") or "",
        text=message.get("content") or "",
        calls=tuple(
            (call["function"]["name"], _compact(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ),
        usage=(
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["completion_tokens"],
            usage["completion_tokens_details"]["reasoning_tokens"],
        ),
    )


async def chat(s: Served) -> list[Said]:
    async def ask(messages: list[Json]) -> tuple[Json, Json]:
        body = {"messages": messages, "tools": [CHAT_TOOL]}
        completion = (await posted(s, "/v1/chat/completions", body)).json()
        return completion["choices"][0]["message"], completion["usage"]

    return await _chatted(ask)


async def chat_streamed(s: Served) -> list[Said]:
    async def ask(messages: list[Json]) -> tuple[Json, Json]:
        body = {"messages": messages, "tools": [CHAT_TOOL], "stream": True}
        body["stream_options"] = {"include_usage": True}
        return _folded((await posted(s, "/v1/chat/completions", body)).body)

    return await _chatted(ask)


async def _chatted(ask: Callable[[list[Json]], Awaitable[tuple[Json, Json]]]) -> list[Said]:
    first, used = await ask([HELLO])
    call_id = first["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": RESULT}
    last, used_last = await ask([HELLO, first, result])
    return [of_completion(first, used), of_completion(last, used_last)]


def _folded(body: bytes) -> tuple[Json, Json]:
    """The message and the usage that the chunks of a completion make."""
    *frames, _, _ = body.split(b"\n\n")
    chunks = [orjson.loads(frame.removeprefix(b"data: ")) for frame in frames]
    message: Json = {}
    for delta in [choice["delta"] for chunk in chunks for choice in chunk["choices"]]:
        for key, value in delta.items():
            if key != "tool_calls":
                message[key] = message.get(key, "") + value
            elif "id" in value[0]:
                message.setdefault(key, []).append(value[0])
            else:
                call = message[key][value[0]["index"]]["function"]
                call["arguments"] += value[0]["function"]["arguments"]
    return message, chunks[-1]["usage"]


# --- Anthropic's Messages ------------------------------------------------------------------------

MESSAGES_TOOL = {"name": "weather", "input_schema": SCHEMA}


def of_message(message: Json) -> Said:
    usage, blocks = message["usage"], message["content"]
    cached = usage["cache_read_input_tokens"]
    return Said(
        thought="".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
        text="".join(b["text"] for b in blocks if b["type"] == "text"),
        calls=tuple(
            (block["name"], orjson.dumps(block["input"]).decode())
            for block in blocks
            if block["type"] == "tool_use"
        ),
        usage=(
            usage["input_tokens"] + cached,
            cached,
            usage["output_tokens"],
            usage["output_tokens_details"]["thinking_tokens"],
        ),
    )


async def messages(s: Served) -> list[Said]:
    async def ask(body: Json) -> Json:
        message: Json = (await posted(s, "/v1/messages", body)).json()
        return message

    return await _messaged(ask)


async def messages_streamed(s: Served) -> list[Said]:
    async def ask(body: Json) -> Json:
        return _gathered(events_of((await posted(s, "/v1/messages", body | {"stream": True})).body))

    return await _messaged(ask)


async def _messaged(ask: Callable[[Json], Awaitable[Json]]) -> list[Said]:
    body: Json = {"max_tokens": 1000, "tools": [MESSAGES_TOOL], "thinking": {"type": "adaptive"}}
    first = await ask(body | {"messages": [HELLO]})
    call_id = first["content"][-1]["id"]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": RESULT}
    written = {"role": "assistant", "content": first["content"]}
    again = [HELLO, written, {"role": "user", "content": [result]}]
    return [of_message(first), of_message(await ask(body | {"messages": again}))]


def _gathered(events: list[Json]) -> Json:
    """The message that the events of a stream make."""
    blocks: list[Json] = []
    usage: Json = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                blocks.append(event["content_block"] | {"partial_json": ""})
            case "content_block_delta":
                delta = dict(event["delta"])
                delta.pop("type")
                for key, text in delta.items():
                    blocks[event["index"]][key] += text
            case "message_delta":
                usage = event["usage"]
    for block in blocks:
        if partial := block.pop("partial_json"):
            block["input"] = orjson.loads(partial)
    return {"content": blocks, "usage": usage}


VIEWS: dict[str, Callable[[Served], Awaitable[list[Said]]]] = {
    "Responses": responses,
    "Responses, streamed and continued": responses_streamed,
    "background": background,
    "WebSocket": websocket,
    "chat": chat,
    "chat, streamed": chat_streamed,
    "Messages": messages,
    "Messages, streamed": messages_streamed,
}
