"""`/v1/containers/{id}/files`: files where code runs, for their owner to bring and fetch."""

from __future__ import annotations

import asyncio
import os
from email.message import Message
from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response, StreamingResponse

from trt_responses.errors import InvalidRequest, unsupported_value
from trt_responses.features.containers.bodies import file_body
from trt_responses.features.listing.listing import Order, Page, page_of
from trt_responses.features.listing.query import Limit  # likewise
from trt_responses.web.body import read_bytes
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from trt_responses.tools.containers import ContainerStore, FileFacts
    from trt_responses.web.shared import Shared

READ_BYTES = 256 * 1024
MOST_PARTS = 8
"""Of a form, that are looked at for the file."""
HEAD_BYTES = 1024
"""Of a part's head, and of a form's content type: their parser takes the square of a length."""
BOUNDARY_CHARACTERS = 70
"""As many as RFC 2046 allows."""
NO_FORM = InvalidRequest(
    "The content type must be multipart/form-data with a boundary.",
    status=415,
    code="unsupported_content_type",
)


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
        body = await read_bytes(request, self._limits)
        name, data = uploaded(header(request, b"content-type") or "", body)
        facts = await self._containers.files.add(owner, container_id, name, data)
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
        found = [_body(container_id, one) for one in files]
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
        return json_reply(orjson.dumps(_body(container_id, facts)), self._headers(request))


def _body(container_id: str, facts: FileFacts) -> dict[str, object]:
    file_id, path, size_bytes, created_at, is_users = facts
    return file_body(container_id, file_id, path, size_bytes, created_at, is_users=is_users)


async def _read(opened: int) -> AsyncIterator[bytes]:
    try:
        while part := await asyncio.to_thread(os.read, opened, READ_BYTES):
            yield part
    finally:
        os.close(opened)


def uploaded(content_type: str, body: bytes) -> tuple[str, bytes]:
    """The name and the bytes of the part `file` of a form."""
    if len(content_type) > HEAD_BYTES:
        raise NO_FORM
    head = Message()
    head["content-type"] = content_type
    if head.get_content_type() == "application/json":
        raise unsupported_value(
            "file_id",
            "there are no files here to put into a container. Send the file itself, as the part "
            "'file' of a form",
        )
    boundary = head.get_param("boundary")
    if head.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise NO_FORM
    if len(boundary) > BOUNDARY_CHARACTERS:
        raise NO_FORM  # no client writes it, and to look for it takes long
    for about, data in _parts(b"\r\n" + body, b"\r\n--" + boundary.encode()):
        named = _disposition(about)
        if named.get_param("name", header="content-disposition") == "file":
            return str(named.get_filename("")), data
    raise InvalidRequest(
        "Missing required parameter: 'file'.", param="file", code="missing_required_parameter"
    )


def _parts(body: bytes, mark: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The head and the content of each part, a mark before it and behind it."""
    begun = body.find(mark)
    for _ in range(MOST_PARTS):
        end = body.find(mark, begun + len(mark))
        if min(begun, end) < 0:
            return
        about, _, data = body[begun + len(mark) : end].partition(b"\r\n\r\n")
        if len(about) > HEAD_BYTES:
            raise InvalidRequest(
                f"A part of the form has a head of more than {HEAD_BYTES} bytes.",
                param="file",
                code="invalid_value",
            )
        yield about, data
        begun = end


def _disposition(about: bytes) -> Message:
    """The header of a part that says its name."""
    header = Message()
    for line in about.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            header["content-disposition"] = value.decode("utf-8", "replace").strip()
            break
    return header
