"""`/v1/files`: uploaded files, for their owner to send, list, fetch and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import orjson
from fastapi import APIRouter
from pydantic import BeforeValidator, Field
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response, StreamingResponse

from trt_responses.errors import ApiError, StoreUnavailable, invalid_value, unsupported_value
from trt_responses.features.files.files import LONGEST_S, SHORTEST_S, Facts, Files, Incoming
from trt_responses.features.forms.form import Form, malformed, missing
from trt_responses.features.listing.listing import Order, Page, page_of
from trt_responses.features.listing.pieces import in_threads
from trt_responses.features.listing.query import whole_number
from trt_responses.files import reason
from trt_responses.web.body import LENGTH_DIGITS, too_large
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import header, ignored_header
from trt_responses.web.shared import Shared

PURPOSES = ("user_data", "assistants", "batch")
FIELD_BYTES = 256
FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
FORM_BYTES = 64 * 1024
"""Of a form, besides its file."""
MAX_LIMIT = 10_000
RETRY_AFTER_S = 60

ListLimit = Annotated[
    int,
    Field(ge=1, le=MAX_LIMIT),
    BeforeValidator(lambda value: whole_number(value, 1, MAX_LIMIT)),
]


class FileRoutes:
    """The endpoints of files."""

    def __init__(self, shared: Shared, files: Files) -> None:
        self._files = files
        self._headers = shared.headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/files")
        found = replies(401, 403, 404)
        router.post("", summary="Upload a file", responses=replies(400, 401, 403, 413, 415))(
            self.create
        )
        router.get("", summary="List one's files", responses=replies(400, 401, 403))(self.list)
        router.get("/{file_id}", summary="One file", responses=found)(self.retrieve)
        router.get("/{file_id}/content", summary="What is in a file", responses=found)(self.content)
        router.delete("/{file_id}", summary="Delete a file", responses=found)(self.delete)
        return router

    async def create(self, request: Request, owner: Owner) -> Response:
        form = Form(header(request, b"content-type") or "")
        declared = header(request, b"content-length") or ""
        if declared.isdecimal() and (len(declared) > LENGTH_DIGITS or int(declared) > self._most):
            raise self._too_large()
        try:
            kept, fields = await self._stored(request, form, owner)
        except OSError as error:
            raise StoreUnavailable(
                f"The file could not be stored: {reason(error)}.", retry_after_s=RETRY_AFTER_S
            ) from error
        ignored = ignored_header(sorted(fields.keys() - set(FIELDS)), request)
        return self._reply(request, kept, ignored)

    async def _stored(
        self, request: Request, form: Form, owner: str
    ) -> tuple[Facts, dict[str, str]]:
        """The form's file, once it is kept, and its other fields."""
        incoming = await asyncio.to_thread(self._files.new, owner)
        try:
            name, fields = await self._read(request, form, incoming)
            purpose, age_s = _purpose(fields.get("purpose")), _age_s(fields)
            return await asyncio.to_thread(incoming.keep, name, purpose, age_s), fields
        finally:
            await asyncio.shield(asyncio.to_thread(incoming.drop))

    @property
    def _most(self) -> int:
        return self._files.bounds.owner_bytes + FORM_BYTES

    def _too_large(self) -> ApiError:
        return too_large(f"{self._most} bytes (TRT_RESPONSES_FILES_BYTES)")

    async def _read(
        self, request: Request, form: Form, incoming: Incoming
    ) -> tuple[str, dict[str, str]]:
        """Write the form's file as it arrives. Its name, and the other fields."""
        fields: dict[str, bytes] = {}
        whole: str | None = None
        size = 0
        async for data in request.stream():
            if (size := size + len(data)) > self._most:
                raise self._too_large()
            for part, piece in form.feed(data):
                if part.name == "file":
                    if whole is not None:
                        raise malformed("it has two parts 'file'")
                    await asyncio.to_thread(incoming.write, piece)
                    whole = part.filename if part.whole else None
                elif len(value := fields.get(part.name, b"") + piece) <= FIELD_BYTES:
                    fields[part.name] = value
                else:
                    raise malformed(f"the field '{part.name:.100}' is too long")
        if whole is None:
            raise missing("file")
        return whole, {name: value.decode("utf-8", "replace") for name, value in fields.items()}

    async def list(
        self,
        request: Request,
        owner: Owner,
        limit: ListLimit = MAX_LIMIT,
        after: str | None = None,
        order: Order = "desc",
        purpose: str | None = None,
    ) -> Response:
        found = await asyncio.to_thread(self._files.of, owner)
        wanted = [each for each in found if purpose in (None, each["purpose"])]
        return self._reply(request, page_of(wanted, Page(order, limit, after)))

    async def retrieve(self, request: Request, file_id: str, owner: Owner) -> Response:
        return self._reply(request, await asyncio.to_thread(self._files.facts, owner, file_id))

    async def content(self, request: Request, file_id: str, owner: Owner) -> Response:
        """What is in a file, as bytes of no kind, which no browser shows."""
        pieces = await asyncio.to_thread(self._files.content, owner, file_id)
        headers = {**self._headers(request), "content-disposition": "attachment"}
        return StreamingResponse(
            in_threads(pieces), headers=headers, media_type="application/octet-stream"
        )

    async def delete(self, request: Request, file_id: str, owner: Owner) -> Response:
        await asyncio.to_thread(self._files.delete, owner, file_id)
        return self._reply(request, {"id": file_id, "object": "file", "deleted": True})

    def _reply(
        self, request: Request, body: Facts, headers: Mapping[str, str] | None = None
    ) -> Response:
        return json_reply(orjson.dumps(body), {**self._headers(request), **(headers or {})})


def _purpose(given: str | None) -> str:
    if given is None:
        raise missing("purpose")
    if given not in PURPOSES:
        raise unsupported_value("purpose", f"this server serves {', '.join(PURPOSES)}")
    return given


def _age_s(fields: Mapping[str, str]) -> int | None:
    """Seconds after which the client wants the file to expire."""
    _, anchor, seconds = FIELDS
    if anchor not in fields and seconds not in fields:
        return None
    if fields.get(anchor) != "created_at":
        raise invalid_value(anchor, "it must be 'created_at'")
    try:
        return whole_number(fields.get(seconds, ""), SHORTEST_S, LONGEST_S)
    except ValueError as error:
        raise invalid_value(seconds, str(error)) from None
