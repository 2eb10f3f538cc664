"""`/v1/containers/{id}/files`: files where code runs, for their owner to bring and fetch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response, StreamingResponse

from trt_responses.features.containers.bodies import SentFile, file_body
from trt_responses.features.forms.form import Form, malformed, missing
from trt_responses.features.listing.listing import Order, Page, page_of
from trt_responses.features.listing.query import Limit  # likewise
from trt_responses.tools.containers import ContainerStore, FileFacts
from trt_responses.web.body import JSON, parsed, read_bytes, read_json
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import header
from trt_responses.web.shared import Shared

READ_BYTES = 256 * 1024


class ContainerFileRoutes:
    """The endpoints of the files of one tool's containers."""

    def __init__(self, containers: ContainerStore, shared: Shared) -> None:
        self._containers = containers
        self._headers = shared.headers
        self._limits = shared.limits

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/containers/{container_id}/files")
        found = replies(401, 403, 404)
        router.post(
            "", summary="Put a file into a container", responses=replies(400, 401, 403, 404, 413)
        )(self.create)
        router.get("", summary="A container's files", responses=replies(400, 401, 403, 404))(
            self.list
        )
        router.get("/{file_id}", summary="One file of a container", responses=found)(self.retrieve)
        router.get("/{file_id}/content", summary="What is in a file", responses=found)(self.content)
        router.delete("/{file_id}", summary="Remove a file", responses=found)(self.delete)
        return router

    async def create(self, request: Request, container_id: str, owner: Owner) -> Response:
        self._containers.facts(owner, container_id)  # before a body of any size is read
        kind, files = header(request, b"content-type") or "", self._containers.files
        if kind.partition(";")[0].strip().lower() == JSON:
            body = await read_json(request, self._limits)
            sent = (await parsed(body, SentFile, self._limits)).file_id
            await files.check(owner, [sent], "file_id")
            facts = await files.copy(owner, container_id, sent)
        else:
            body = await read_bytes(request, self._limits)
            name, data = uploaded(kind, body)
            facts = await files.add(owner, container_id, name, data)
        return self._body(request, container_id, facts)

    async def list(
        self,
        request: Request,
        container_id: str,
        owner: Owner,
        limit: Limit = 20,
        after: str | None = None,
        order: Order = "desc",
    ) -> Response:
        files = await self._containers.files.of(owner, container_id)
        found = [file_body(container_id, one) for one in files]
        page = page_of(found, Page(order, limit, after))
        return json_reply(orjson.dumps(page), self._headers(request))

    async def retrieve(
        self, request: Request, container_id: str, file_id: str, owner: Owner
    ) -> Response:
        facts = await self._containers.files.facts(owner, container_id, file_id)
        return self._body(request, container_id, facts)

    async def content(
        self, request: Request, container_id: str, file_id: str, owner: Owner
    ) -> Response:
        """What is in a file, as bytes of no kind, which no browser shows."""
        opened = await self._containers.files.open(owner, container_id, file_id)
        headers = {**self._headers(request), "content-disposition": "attachment"}
        return StreamingResponse(
            _read(opened), headers=headers, media_type="application/octet-stream"
        )

    async def delete(
        self, request: Request, container_id: str, file_id: str, owner: Owner
    ) -> Response:
        await self._containers.files.delete(owner, container_id, file_id)
        gone = {"id": file_id, "object": "container.file.deleted", "deleted": True}
        return json_reply(orjson.dumps(gone), self._headers(request))

    def _body(self, request: Request, container_id: str, facts: FileFacts) -> Response:
        return json_reply(orjson.dumps(file_body(container_id, facts)), self._headers(request))


async def _read(opened: int) -> AsyncIterator[bytes]:
    try:
        while part := await asyncio.to_thread(os.read, opened, READ_BYTES):
            yield part
    finally:
        os.close(opened)


def uploaded(content_type: str, body: bytes) -> tuple[str, bytes]:
    """The name and the bytes of the part `file` of a form."""
    data, whole = b"", None
    for part, piece in Form(content_type).feed(body):
        if part.name == "file":
            if whole is not None:
                raise malformed("it has two parts 'file'")
            data += piece
            whole = part.filename if part.whole else None
    if whole is None:
        raise missing("file")
    return whole, data
