"""`/v1/conversations`: conversations and their items made, read, changed and deleted.

Knows no store: what a conversation is, `features/conversations/conversations.py` says.
"""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.features.conversations.bodies import (
    ConversationChange,
    NewConversation,
    NewItems,
)
from trt_responses.features.conversations.conversations import Conversations, no_item
from trt_responses.features.conversations.settings import ConversationNumbers
from trt_responses.features.listing.listing import Order, Page, page_of
from trt_responses.features.listing.query import Limit
from trt_responses.web.body import parsed, read_json
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import ignored_header
from trt_responses.web.shared import Shared
from trt_responses.wire.base import Options

R = TypeVar("R", bound=Options)

REFUSED = (400, 401, 403, 404, 413, 415, 503)


class ConversationRoutes:
    """The endpoints of conversations."""

    def __init__(self, shared: Shared) -> None:
        most_items = ConversationNumbers.of(shared.settings).conversation_items
        self._conversations = Conversations(shared.parts, most_items=most_items)
        self._headers = shared.headers
        self._limits = shared.limits

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, prefix="/v1/conversations")
        one, items, item = "/{conversation_id}", "/{conversation_id}/items", "/{item_id}"
        for method, path, summary, answer in (
            ("POST", "", "Begin a conversation", self.create),
            ("GET", one, "Get a conversation", self.retrieve),
            ("POST", one, "Replace a conversation's metadata", self.update),
            ("DELETE", one, "Delete a conversation", self.delete),
            ("POST", items, "Add items to a conversation", self.add_items),
            ("GET", items, "List a conversation's items", self.list_items),
            ("GET", items + item, "Get an item of a conversation", self.item),
            ("DELETE", items + item, "Delete an item of a conversation", self.delete_item),
        ):
            router.add_api_route(
                path, answer, methods=[method], summary=summary, responses=replies(*REFUSED)
            )
        return router

    async def create(self, request: Request, owner: Owner) -> Response:
        wanted = await self._read(request, NewConversation, may_be_empty=True)
        metadata = wanted.metadata or {}
        made = await self._conversations.create(wanted.items, metadata, owner)
        return self._reply(request, made, wanted)

    async def retrieve(self, request: Request, conversation_id: str, owner: Owner) -> Response:
        return self._reply(request, await self._conversations.get(conversation_id, owner))

    async def update(self, request: Request, conversation_id: str, owner: Owner) -> Response:
        wanted = await self._read(request, ConversationChange)
        metadata = wanted.metadata or {}
        changed = await self._conversations.update(conversation_id, metadata, owner)
        return self._reply(request, changed, wanted)

    async def delete(self, request: Request, conversation_id: str, owner: Owner) -> Response:
        await self._conversations.delete(conversation_id, owner)
        gone = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
        return self._reply(request, gone)

    async def add_items(self, request: Request, conversation_id: str, owner: Owner) -> Response:
        wanted = await self._read(request, NewItems)
        added = await self._conversations.add(conversation_id, wanted.items, owner)
        page = page_of(added, Page("asc", len(added)))
        return self._reply(request, page, wanted)

    async def list_items(
        self,
        request: Request,
        conversation_id: str,
        owner: Owner,
        after: str | None = None,
        limit: Limit = 20,
        order: Order = "desc",
    ) -> Response:
        items = await self._conversations.items(conversation_id, owner)
        return self._reply(request, page_of(items, Page(order, limit, after)))

    async def item(
        self, request: Request, conversation_id: str, item_id: str, owner: Owner
    ) -> Response:
        items = await self._conversations.items(conversation_id, owner)
        found = next((item for item in items if item["id"] == item_id), None)
        if found is None:
            raise no_item(item_id)
        return self._reply(request, found)

    async def delete_item(
        self, request: Request, conversation_id: str, item_id: str, owner: Owner
    ) -> Response:
        left = await self._conversations.remove(conversation_id, item_id, owner)
        return self._reply(request, left)

    async def _read(self, request: Request, kind: type[R], *, may_be_empty: bool = False) -> R:
        body = await read_json(request, self._limits)
        return await parsed(body or b"{}" if may_be_empty else body, kind, self._limits)

    def _reply(self, request: Request, body: Any, wanted: Options | None = None) -> Response:
        unknown = sorted(wanted.model_extra or ()) if wanted is not None else []
        headers = self._headers(request) | ignored_header(unknown, request)
        return json_reply(orjson.dumps(body), headers)
