"""Answers from a cassette, and says where a request departs from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trt_responses.errors import InvalidRequest
from trt_responses.features.cassette.exchanges import Exchange, parsed
from trt_responses.features.cassette.layer import Sent, start

if TYPE_CHECKING:
    from starlette.types import Send

PASSED_OVER = ("metadata", "client_metadata", "prompt_cache_key", "safety_identifier", "user")
"""Fields of a body that may differ: clients put ids of their own into them."""
SHOWN = 60
"""Characters of a value that a message shows."""


class Replays:
    """The answers of a server that replays. Each exchange is used once, in order; when all that are
    equal have been used, they are used again."""

    def __init__(self, exchanges: Sequence[Exchange], *, paced: bool) -> None:
        self._exchanges = exchanges
        self._paced = paced
        self._used: set[int] = set()

    async def answer(self, sent: Sent, send: Send) -> None:
        reply = self._find(sent).reply
        await start(send, reply.status, reply.headers)
        now = 0.0
        for at, piece in reply.pieces:
            if self._paced and at > now:
                await asyncio.sleep(at - now)
            now = at
            body = piece.encode("utf-8", "surrogateescape")
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if not reply.ended:
            raise ConnectionAbortedError("cut as it was recorded")
        await send({"type": "http.response.body", "body": b""})

    def _find(self, sent: Sent) -> Exchange:
        cleaner = sent.cleaner()
        path, body = cleaner.path(sent.path), cleaner.value(parsed(sent.text))
        mates = [
            (number, each)
            for number, each in enumerate(self._exchanges)
            if (each.request.method, each.request.path) == (sent.method, path)
        ]
        if not mates:
            raise _departs(f"it holds no {sent.method} {path}")
        equal = [number for number, each in mates if departure(each.request.body, body) is None]
        fresh = [number for number in equal if number not in self._used]
        if equal and not fresh:
            self._used -= {*equal}
            fresh = equal
        if fresh:
            self._used.add(fresh[0])
            return self._exchanges[fresh[0]]
        number, nearest = next((each for each in mates if each[0] not in self._used), mates[-1])
        why = departure(nearest.request.body, body)
        raise _departs(f"exchange {number + 1}: {why}")


def _departs(why: str) -> InvalidRequest:
    return InvalidRequest(f"The request departs from the cassette: {why}.", code="departs")


def departure(recorded: Any, sent: Any, place: str = "") -> str | None:
    """Where two bodies differ first, as the end of a sentence; None if they do not."""
    if isinstance(recorded, Mapping) and isinstance(sent, Mapping):
        for key in {**recorded, **sent}:
            inside = f"{place}.{key}" if place else key
            if not place and key in PASSED_OVER:
                continue
            if key not in sent or key not in recorded:
                return f"`{inside}` is {'missing' if key not in sent else 'new'}"
            if (found := departure(recorded[key], sent[key], inside)) is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(sent, list):
        for number, (one, other) in enumerate(zip(recorded, sent, strict=False)):
            if (found := departure(one, other, f"{place}[{number}]")) is not None:
                return found
        if len(recorded) == len(sent):
            return None
        return f"`{place}` has {len(sent)} entries, recorded {len(recorded)}"
    if recorded == sent and type(recorded) is type(sent):
        return None
    return f"`{place or 'the body'}` differs: recorded {_shown(recorded)}, sent {_shown(sent)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
