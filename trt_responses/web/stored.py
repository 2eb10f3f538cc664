"""`/v1/responses/{id}`: what may be asked of a response that was made, or is being made.

What this server makes itself it reads from its own log; the rest is the store's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

import orjson

from trt_responses.errors import ApiError, InvalidRequest, NotFound
from trt_responses.response.background.lost import snapshot
from trt_responses.response.background.replay import frames_of
from trt_responses.store.base import Expired, Job, Record
from trt_responses.web.endpoint import json_reply
from trt_responses.web.headers import dialect_of, ignored_header
from trt_responses.web.stream.sse import Follow
from trt_responses.web.stream.tail import Tail
from trt_responses.wire.listing import Order, Page, page_of, whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.response.background.background import Background
    from trt_responses.store.base import Found, Store
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.stream.sse import Terms
    from trt_responses.wire.dialect import Dialect

TRUTHS = {"true": True, "1": True, "false": False, "0": False, "": False}
IGNORED = ("include", "include[]", "include_obfuscation")
MAX_LIMIT = 100


class Stored:
    """The endpoints of a response after its creation."""

    def __init__(
        self,
        store: Store,
        background: Background,
        *,
        headers: ReplyHeaders,
        terms: Terms,
        dialect: Dialect,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._background = background
        self._headers = headers
        self._terms = terms
        self._dialect = dialect
        self._sleep = sleep

    async def retrieve(self, request: Request, owner: str) -> ASGIApp:
        found = await self._found(request, owner)
        headers = self._headers(request) | _told(request)
        if _truth(request, "stream"):
            return await self._replay(found, request, owner, headers)
        if "starting_after" in request.query_params:
            raise _wrong("starting_after", "it goes with `stream=true`")
        return json_reply(self._snapshot(found, owner), headers)

    async def _replay(
        self, found: Record | Job, request: Request, owner: str, headers: dict[str, str]
    ) -> ASGIApp:
        after = _number(request, "starting_after", -1, least=0)
        if isinstance(found, Record) and not orjson.loads(found.body)["background"]:
            raise InvalidRequest(
                f"Response '{found.id}' was not made in the background, and only those can be "
                "streamed again: get it without `stream`.",
                param="stream",
                code="not_a_background_response",
            )
        if (run := self._background.running(found.id, owner)) is not None:
            return Follow(run, headers, self._terms, after=after)
        tail = Tail(headers, self._terms.keep_alive.every_s, self._sleep)
        dialect = dialect_of(request, self._dialect)
        frames = frames_of(
            self._store, found.id, owner, after=after, pause=tail.pause, dialect=dialect
        )
        return await tail.over(frames, ready=isinstance(found, Record) or found.lost)

    async def delete(self, request: Request, owner: str) -> ASGIApp:
        response_id = request.path_params["response_id"]
        if not await self._store.delete(response_id, owner):
            raise unknown(response_id)
        self._background.drop(response_id, owner)
        gone = {"id": response_id, "object": "response", "deleted": True}
        return json_reply(orjson.dumps(gone), self._headers(request))

    async def cancel(self, request: Request, owner: str) -> ASGIApp:
        found = await self._found(request, owner)
        if isinstance(found, Record) and not orjson.loads(found.body)["background"]:
            raise InvalidRequest(
                f"Response '{found.id}' was not made in the background: hang up to end such a one.",
                param="response_id",
                code="not_a_background_response",
            )
        if isinstance(found, Job) and not found.lost:
            found = _there(found.id, await self._background.cancel(found.id, owner))
        return json_reply(self._snapshot(found, owner), self._headers(request))

    async def input_items(self, request: Request, owner: str) -> ASGIApp:
        page = _page(request)
        found = await self._found(request, owner)
        if isinstance(found, Job):
            raise InvalidRequest(
                f"Response '{found.id}' has not ended, and its items are kept at its end.",
                status=409 if not found.lost else 404,
                param="response_id",
                code="response_in_progress" if not found.lost else "not_found",
            )
        brought = found.blocks[found.prior_count :][: found.input_count]
        listed = page_of([whole(orjson.loads(block.item)) for block in brought], page)
        if listed is None:
            raise _wrong("after", f"no item of the list has the id {page.after!r:.100}")
        return json_reply(orjson.dumps(listed), self._headers(request) | _told(request))

    async def _found(self, request: Request, owner: str) -> Record | Job:
        response_id = request.path_params["response_id"]
        return _there(response_id, await self._store.get(response_id, owner))

    def _snapshot(self, found: Record | Job, owner: str) -> bytes:
        """A job's, as of now where that is known."""
        if isinstance(found, Job) and not found.lost:
            run = self._background.running(found.id, owner)
            if run is not None:
                return orjson.dumps(run.log.response)
        return snapshot(found)


def _there(response_id: str, found: Found) -> Record | Job:
    if isinstance(found, Record | Job):
        return found
    raise unknown(response_id, found)


def unknown(response_id: str, expired: Expired | None = None) -> NotFound:
    if expired is not None:
        return NotFound(
            f"Response with id '{response_id:.100}' has expired, for its age or for want of room.",
            param="response_id",
            code="response_expired",
        )
    return NotFound(
        f"Response with id '{response_id:.100}' not found.", param="response_id", code="not_found"
    )


def _told(request: Request) -> dict[str, str]:
    return ignored_header([name for name in IGNORED if name in request.query_params])


def _page(request: Request) -> Page:
    order = request.query_params.get("order", "desc")
    if order not in get_args(Order):
        raise _wrong("order", f"it must be 'asc' or 'desc', got {order!r:.60}")
    limit = _number(request, "limit", 20, least=1, most=MAX_LIMIT)
    return Page("asc" if order == "asc" else "desc", limit, request.query_params.get("after"))


def _truth(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "")
    if (truth := TRUTHS.get(value.lower())) is None:
        raise _wrong(name, f"it must be true or false, got {value!r:.60}")
    return truth


def _number(request: Request, name: str, default: int, *, least: int, most: int = 2**53 - 1) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if value.isascii() and value.isdecimal() and len(value) <= 16 and least <= int(value) <= most:
        return int(value)
    raise _wrong(name, f"it must be an integer from {least} to {most}, got {value!r:.60}")


def _wrong(name: str, why: str) -> ApiError:
    return InvalidRequest(f"Invalid value for '{name}': {why}.", param=name, code="invalid_value")
