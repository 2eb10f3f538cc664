"""`/v1/responses/{id}`: a response retrieved, replayed, deleted; its input listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise
from starlette.types import ASGIApp

from trt_responses.dialect import Dialect
from trt_responses.errors import IN_PROGRESS_S, InvalidRequest, NotFound, invalid_value
from trt_responses.features.listing.listing import Order, Page, listed, page_of
from trt_responses.features.listing.query import (
    IGNORED,
    Limit,
    ignored_query,
    whole_number,
)
from trt_responses.store import Expired, Found, Job, Record
from trt_responses.web.docs import STREAMED
from trt_responses.web.endpoint import Endpoint, json_reply
from trt_responses.web.framework import ColdRoute, HotRoute, Owner, hot_route, replies
from trt_responses.web.headers import dialect_of
from trt_responses.web.jobs import installed
from trt_responses.web.shared import Shared

PREFIX = "resp_"
"""Of each response's id: the store keeps other records, too, which are deleted elsewhere."""
TRUTHS = {"true": True, "1": True, "false": False, "0": False, "": False}
OUTPUTS = "code_interpreter_call.outputs"
LARGEST = 2**53 - 1
LENGTH = len(str(LARGEST))


class Stored:
    """The endpoints of a response after its creation."""

    def __init__(self, shared: Shared, dialect_of: Callable[[str], Dialect]) -> None:
        """`dialect_of` returns the dialect of a model."""
        self._store = shared.parts.store
        self._dialect_of = dialect_of
        self._jobs = shared.jobs
        self._headers = shared.headers
        self._on_delete = shared.on_delete

    def router(self) -> APIRouter:
        """The routes that write no stream; `retrieve` may, and is mounted as a hot one."""
        router = APIRouter(route_class=ColdRoute, prefix="/v1/responses/{response_id}")
        router.delete("", summary="Delete a stored response", responses=replies(401, 403, 404))(
            self.delete
        )
        router.get(
            "/input_items",
            summary="List the input items of a response",
            responses=replies(400, 401, 403, 404, 409),
        )(self.input_items)
        return router

    async def retrieve(self, request: Request, owner: str) -> ASGIApp:
        found = await self._found(request.path_params["response_id"], owner)
        headers = self._headers(request) | ignored_query(request)
        if _truth(request, "stream"):
            return await self._replay(found, request, owner, headers)
        if "starting_after" in request.query_params:
            raise invalid_value("starting_after", "it goes with `stream=true`")
        if isinstance(found, Job):
            return json_reply(installed(self._jobs).snapshot(found, owner), headers)
        if OUTPUTS not in _included(request):
            return json_reply(found.body, headers)
        headers = self._headers(request) | ignored_query(request, OUTPUTS)
        return json_reply(self._with_outputs(found), headers)

    async def _replay(
        self, found: Record | Job, request: Request, owner: str, headers: dict[str, str]
    ) -> ASGIApp:
        after = _number(request, "starting_after", _last_event(request))
        dialect = dialect_of(request)
        return await installed(self._jobs).replay(found, owner, headers, dialect, after)

    async def delete(self, request: Request, response_id: str, owner: Owner) -> Response:
        is_response = response_id.startswith(PREFIX)
        if not is_response or not await self._store.delete(response_id, owner):
            raise unknown(response_id)
        for hears in self._on_delete:
            hears(response_id, owner)
        gone = {"id": response_id, "object": "response", "deleted": True}
        return json_reply(orjson.dumps(gone), self._headers(request))

    async def input_items(
        self,
        request: Request,
        response_id: str,
        owner: Owner,
        after: str | None = None,
        limit: Limit = 20,
        order: Order = "desc",
    ) -> Response:
        found = await self._found(response_id, owner)
        if isinstance(found, Job):
            raise InvalidRequest(
                f"Response '{found.id}' has not ended, and its items are kept at its end.",
                status=409 if not found.lost else 404,
                param="response_id",
                code="response_in_progress" if not found.lost else "not_found",
                retry_after_s=None if found.lost else IN_PROGRESS_S,
            )
        sent = found.blocks[found.prior_count :][: found.input_count]
        page = page_of(listed(sent), Page(order, limit, after))
        return json_reply(orjson.dumps(page), self._headers(request))

    async def _found(self, response_id: str, owner: str) -> Record | Job:
        return there(response_id, await self._store.get(response_id, owner))

    def _with_outputs(self, found: Record) -> bytes:
        """The last snapshot with the outputs of code that was run here, which stand in the block of
        each call."""
        last = orjson.loads(found.body)
        dialect = self._dialect_of(last["model"])
        calls = [block for block in found.blocks if b'"code_interpreter_call"' in block.item]
        blocks = {orjson.loads(block.item)["id"]: block.ids for block in calls}
        for item in last["output"]:
            if item["type"] == "code_interpreter_call" and item["outputs"] is None:
                ids = dialect.renderer.answer_in(blocks.get(item["id"], b""))
                if ids is not None:
                    text = dialect.lexicon.text(ids)
                    item["outputs"] = [{"type": "logs", "logs": text}] if text else []
        return orjson.dumps(last)


def there(response_id: str, found: Found) -> Record | Job:
    """What was found, if it is a response: conversations and batches are kept beside them."""
    if not response_id.startswith(PREFIX):
        raise unknown(response_id)
    if isinstance(found, Job) or (isinstance(found, Record) and not found.version):
        return found
    raise unknown(response_id, found if isinstance(found, Expired) else None)


def check_background(found: Record | Job, param: str, remedy: str) -> None:
    """Refuse what only background responses allow; `remedy` goes on where the reason ends."""
    if isinstance(found, Record) and not orjson.loads(found.body)["background"]:
        raise InvalidRequest(
            f"Response '{found.id}' was not made in the background{remedy}.",
            param=param,
            code="not_a_background_response",
        )


def unknown(response_id: str, expired: Expired | None = None) -> NotFound:
    """The error of a missing response; it says so if it was dropped."""
    if expired is not None:
        return NotFound(
            f"Response with id '{response_id:.100}' has expired, for its age or for want of room.",
            param="response_id",
            code="response_expired",
        )
    return NotFound(
        f"Response with id '{response_id:.100}' not found.", param="response_id", code="not_found"
    )


def _included(request: Request) -> list[str]:
    query = request.query_params
    return [value for name in IGNORED[:2] for value in query.getlist(name)]


def _truth(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "")
    if (truth := TRUTHS.get(value.lower())) is None:
        raise invalid_value(name, f"it must be true or false, got {value!r:.60}")
    return truth


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    try:
        return default if value is None else whole_number(value, 0, LARGEST)
    except ValueError as error:
        raise invalid_value(name, f"{error}, got {value!r:.60}") from None


def _last_event(request: Request) -> int:
    """The number of the last event that a client says it has, which is what `EventSource` sends."""
    value = request.headers.get("last-event-id", "")
    return int(value) if value.isdecimal() and len(value) < LENGTH else -1


async def _with_id(response_id: str) -> None: ...


def retrieve_route(shared: Shared, dialect_of: Callable[[str], Dialect]) -> list[HotRoute]:
    """The route that may write a stream."""
    stored = Stored(shared, dialect_of)
    route = hot_route(
        "/v1/responses/{response_id}",
        _with_id,
        Endpoint(stored.retrieve, shared),
        methods=["GET"],
        name="retrieve",
        summary="Get a stored response, or stream it again from any event on",
        responses=replies(400, 401, 403, 404),
        openapi_extra={
            **STREAMED,
            "parameters": [
                _in_query("stream", {"type": "boolean"}),
                _in_query("starting_after", {"type": "integer", "minimum": 0}),
            ],
        },
    )
    return [route]


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}
