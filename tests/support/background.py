"""Background responses: started, read, cancelled, and two servers over one store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from openai.types.responses import Response

from tests.support.served import served
from tests.support.ticks import Ticks
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.asgi import Call
    from tests.support.served import Served

AT_ONCE: dict[str, Any] = {"drain_s": 0}
"""A stalled run would else be waited for at the end of its app."""


class Two:
    """Two servers over one store. The store's clock is the time of both; each sleeps by its own,
    so that one of them can stand still while time passes."""

    def __init__(self, store: MemoryStore, one: Served, other: Served, ticks: list[Ticks]) -> None:
        self.store = store
        self.one = one
        self.other = other
        self._ticks = ticks

    async def pass_(self, seconds: float, *, dead: int | None = None) -> None:
        for _ in range(int(seconds)):
            for place, ticks in enumerate(self._ticks):
                if place != dead:
                    await ticks.pass_(1)


@asynccontextmanager
async def two(
    *written: Any, manual: bool = True, store_type: type[MemoryStore] = MemoryStore
) -> AsyncIterator[Two]:
    ticks = [Ticks(), Ticks(), Ticks()]
    store = store_type(Bounds(lease_s=30), clock_s=ticks[-1])
    async with (
        served(*written, store=store, manual=manual, sleep=ticks[0].sleep, **AT_ONCE) as one,
        served(*written, store=store, manual=manual, sleep=ticks[1].sleep, **AT_ONCE) as other,
    ):
        yield Two(store, one, other, ticks)


async def started(s: Served, **more: Any) -> dict[str, Any]:
    call = await s.client.create(background=True, **more)
    assert call.status == 200, call.body
    body: dict[str, Any] = call.json()
    return body


async def got(s: Served, response_id: str) -> dict[str, Any]:
    call = await s.client.get(f"/v1/responses/{response_id}")
    assert call.status == 200, call.body
    body: dict[str, Any] = call.json()
    Response.model_validate_json(call.body)
    return body


async def cancelled(s: Served, response_id: str) -> Call:
    return await s.client.send("POST", f"/v1/responses/{response_id}/cancel")


async def ended(s: Served, response_id: str) -> dict[str, Any]:
    while (body := await got(s, response_id))["status"] in ("queued", "in_progress"):
        await s.clock.step()
    return body


def replay(s: Served, response_id: str, after: int | None = None, **query: str) -> Call:
    fields = {"stream": "true"} | query
    if after is not None:
        fields["starting_after"] = str(after)
    text = "&".join(f"{name}={value}" for name, value in fields.items())
    return s.client.open("GET", f"/v1/responses/{response_id}?{text}")


def frames(body: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]
