"""Chat completions in tests: a request, and what a client has of the chunks that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from openai.types.chat import ChatCompletionChunk

if TYPE_CHECKING:
    from tests.support.served import Served

Json = dict[str, Any]

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


async def create(s: Served, **fields: object) -> Any:
    body = {"model": "demo", "messages": HELLO} | fields
    return await s.client.send("POST", PATH, orjson.dumps(body))


def chunks_of(body: bytes) -> list[Json]:
    """The chunks of a stream that ended as it should, each of the SDK's type."""
    *frames, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    chunks = [orjson.loads(frame.removeprefix(b"data: ")) for frame in frames]
    for chunk in chunks:
        if "error" not in chunk:
            ChatCompletionChunk.model_validate(chunk, strict=True)
    return chunks


def folded(chunks: list[Json]) -> Json:
    """The message as the SDK's accumulator makes it: strings are joined, calls by their index."""
    message: Json = {}
    calls: list[Json] = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            for key, value in choice["delta"].items():
                if key != "tool_calls":
                    message[key] = message.get(key, "") + value
                    continue
                for call in value:
                    assert call["index"] in (len(calls), len(calls) - 1)
                    if call["index"] == len(calls):
                        calls.append({"id": call["id"], "type": call["type"]})
                    kind = calls[call["index"]]["type"]
                    whole = calls[call["index"]].setdefault(kind, {})
                    for name, text in call[kind].items():
                        whole[name] = whole.get(name, "") + text
    return message | ({"tool_calls": calls} if calls else {})


def finishes(chunks: list[Json]) -> list[str]:
    found = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    return [finish for finish in found if finish]
