"""`/v1/responses`: a request becomes a run, and here its reader is chosen.

The only module that knows whether a client wants a stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
from starlette.requests import ClientDisconnect

from trt_responses.errors import ApiError, NotFound
from trt_responses.web.endpoint import fault, json_reply
from trt_responses.web.guard import body_of, check_json
from trt_responses.web.models import check_model
from trt_responses.web.sse import Stream, cancel_when_left
from trt_responses.wire.fields import judge
from trt_responses.wire.request import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive

    from trt_responses.response.run import Run
    from trt_responses.response.runs import Runs
    from trt_responses.store.base import Store
    from trt_responses.web.endpoint import Headers


class Responses:
    """The endpoints of a response's life."""

    def __init__(
        self, runs: Runs, store: Store, *, model: str, headers: Headers, max_body_bytes: int
    ) -> None:
        self._runs = runs
        self._store = store
        self._model = model
        self._headers = headers
        self._max_body_bytes = max_body_bytes

    async def create(self, request: Request, owner: str) -> ASGIApp:
        check_json(request)
        wanted = parse(await body_of(request, self._max_body_bytes))
        ignored = judge(wanted)
        check_model(wanted.model, self._model)
        arrival_ns = request.scope["state"]["arrival_ns"]
        run = await self._runs.start(wanted, owner=owner, arrival_ns=arrival_ns)
        headers = self._headers(request)
        if ignored:
            headers["x-trt-ignored"] = ", ".join(ignored)
        if wanted.stream:
            return Stream(run, self._runs, headers)
        return await self._made(run, request.receive, headers)

    async def _made(self, run: Run, receive: Receive, headers: dict[str, str]) -> ASGIApp:
        """The run's last snapshot, when it is made. When the client leaves, the run ends."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(cancel_when_left(run, receive))
            last = await self._runs.make(run)
            watching.cancel()
        if last.status == "cancelled":
            raise ClientDisconnect  # nobody is there to be told
        if last.status == "failed":
            return fault(run.error or ApiError("The response failed."), headers)
        return json_reply(orjson.dumps(last), headers)

    async def retrieve(self, request: Request, owner: str) -> ASGIApp:
        response_id = request.path_params["response_id"]
        record = await self._store.get(response_id, owner)
        if record is None:
            raise _unknown(response_id)
        return json_reply(record.body, self._headers(request))

    async def delete(self, request: Request, owner: str) -> ASGIApp:
        response_id = request.path_params["response_id"]
        if not await self._store.delete(response_id, owner):
            raise _unknown(response_id)
        gone = {"id": response_id, "object": "response", "deleted": True}
        return json_reply(orjson.dumps(gone), self._headers(request))


def _unknown(response_id: str) -> NotFound:
    return NotFound(
        f"Response with id '{response_id}' not found.", param="response_id", code="not_found"
    )
