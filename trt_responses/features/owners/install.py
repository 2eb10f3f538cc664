"""`/admin/owners/{owner}`: what the store and the tools keep of an owner, exported and erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing
from typing import Protocol, runtime_checkable

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response, StreamingResponse

from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.endpoint import note
from trt_responses.features.listing.listing import whole
from trt_responses.features.listing.pieces import in_threads
from trt_responses.setup.server import Server
from trt_responses.store import Job, Record
from trt_responses.stores.whole import whole_store
from trt_responses.tools.containers import containers_of
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Admin, ColdRoute, replies
from trt_responses.web.shared import Shared

LINES = "application/x-ndjson"


def install(server: Server) -> None:
    server.add_routes(77, lambda shared: [OwnerActs(shared)])


@runtime_checkable
class KeepsForOwners(Protocol):
    """A part that keeps more of owners than the store does. Its methods block, and belong in a
    thread."""

    kept: str
    """What it keeps, in the plural."""

    def exported(self, owner: str) -> Generator[bytes]: ...

    def erase(self, owner: str) -> int: ...


class OwnerActs:
    """Each act is noted in the audit file first; one that cannot be noted is not done."""

    def __init__(self, shared: Shared) -> None:
        self._store = whole_store(shared.parts.store)
        self._on_delete = shared.on_delete
        self._audit = shared.of(Audit)
        self._headers = shared.headers
        self._keeping = [x for x in shared.by_class.values() if isinstance(x, KeepsForOwners)]
        self._containers = containers_of(shared.parts.tools.values())

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/admin/owners")
        refused = replies(401, 403, 500, 503)
        router.get("/{owner}/export", summary="All that is kept of an owner", responses=refused)(
            self.export
        )
        router.delete("/{owner}", summary="Erase an owner", responses=refused)(self.erase)
        return router

    async def export(self, request: Request, owner: str, admin: Admin) -> Response:
        """One JSON object a line. A reply that breaks off has no last chunk, as HTTP has it."""
        await note(self._audit, "owner.export", admin, owner=owner)
        names = await self._store.ids_of(owner)
        return StreamingResponse(
            self._lines(names, owner), headers=self._headers(request), media_type=LINES
        )

    async def _lines(self, names: list[str], owner: str) -> AsyncIterator[bytes]:
        for name in names:
            found = await self._store.get(name, owner)
            if isinstance(found, Record | Job):
                yield exported(found)
        for one in self._keeping:
            async with aclosing(in_threads(one.exported(owner))) as lines:
                async for line in lines:
                    yield line

    async def erase(self, request: Request, owner: str, admin: Admin) -> Response:
        """Erase what is kept now. What still runs may be stored after it: revoke the owner's keys,
        and erase again when nothing runs."""
        await note(self._audit, "owner.erase", admin, owner=owner)
        records = containers = 0
        for name in await self._store.ids_of(owner):
            records += await self._store.delete(name, owner)
            for hears in self._on_delete:
                hears(name, owner)
        if self._containers is not None:
            for facts in self._containers.facts_of(owner):
                await self._containers.delete(owner, facts.id)
                containers += 1
        erased = {"records": records, "containers": containers}
        for one in self._keeping:
            erased[one.kept] = await asyncio.to_thread(one.erase, owner)
        return json_reply(
            orjson.dumps({"owner": owner, "object": "owner.erased", "erased": erased}),
            self._headers(request),
        )


def exported(found: Record | Job) -> bytes:
    """One line: the object as the API gives it, and the input items that it was made from."""
    items = None
    if isinstance(found, Record):
        sent = found.blocks if found.version else found.blocks[found.prior_count : found.own_from]
        items = [whole(orjson.loads(block.item)) for block in sent]
    return b'{"object":%b,"input":%b}\n' % (found.body, orjson.dumps(items))
