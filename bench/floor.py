"""The floor: a raw ASGI app that does nothing but send frames made before the clock started.

The frames have our server's bytes (`frames`), one send for each engine step, and its engine is
`sleep(0)` for each step. What a server costs above this is what it does for its client.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import orjson

from bench.script import pieces
from trt_responses.run.parts import ID_LETTERS, NUMBER_CHARS
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

KINDS = (("response.reasoning_text.delta", "rs", ()), ("response.output_text.delta", "msg", None))
"""Of the two messages in a script: the event, the prefix of its item's id, its logprobs."""

FIRST_NUMBER = 4
"""Events that ours tells before the first delta: created, in progress, item, part."""


def floor(vocabulary: Vocabulary, script: Script, chunk: int) -> ASGIApp:
    """The app that sends this script's deltas."""
    bodies = frames(vocabulary, script, chunk)
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for body in _engine(bodies):
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    return app


def frames(vocabulary: Vocabulary, script: Script, chunk: int) -> tuple[bytes, ...]:
    """For each engine step, the frames of its deltas, joined."""
    made = list(_frames(vocabulary, script.token_ids))
    return tuple(b"".join(made[at : at + chunk]) for at in range(0, len(made), chunk))


async def _engine(bodies: Sequence[bytes]) -> AsyncIterator[bytes]:
    for body in bodies:
        await asyncio.sleep(0)
        yield body


async def _live(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})


def _frames(vocabulary: Vocabulary, token_ids: Sequence[int]) -> list[bytes]:
    """A frame for each id of a text, nothing for the ids of headers and for part characters."""
    made = [b""] * len(token_ids)
    numbers = itertools.count(FIRST_NUMBER)
    at = 0
    for kind, prefix, logprobs in KINDS:
        start = token_ids.index(CONTROL.message, at) + 1
        end = next(i for i in range(start, len(token_ids)) if token_ids[i] >= FIRST_CONTROL_ID)
        shape: dict[str, object] = {
            "item_id": f"{prefix}_{'0' * (ID_LETTERS + NUMBER_CHARS)}",
            "output_index": int(prefix == "msg"),
            "content_index": 0,
        }
        if logprobs is None:
            shape["logprobs"] = []
        for place, piece in enumerate(pieces(vocabulary, token_ids[start:end]), start):
            if piece:
                made[place] = _frame(kind, shape | {"delta": piece}, next(numbers))
        at = end
    return made


def _frame(kind: str, shape: dict[str, object], number: int) -> bytes:
    body = orjson.dumps(shape | {"type": kind, "sequence_number": number})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)
