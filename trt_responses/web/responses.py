"""`/v1/responses`: a request becomes a run, and here its reader is chosen.

The only module that knows whether a client wants a stream.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import orjson
from starlette.requests import ClientDisconnect

from trt_responses.errors import ApiError
from trt_responses.response.accept import accept
from trt_responses.web.body import check_json, parsed, read_body
from trt_responses.web.endpoint import fault, json_reply
from trt_responses.web.headers import dialect_of, header, ignored_header, named, truncated_header
from trt_responses.web.idempotency import HEADER
from trt_responses.web.models import check_model
from trt_responses.web.stream.sse import Follow, Stream, watched
from trt_responses.wire.request import CountRequest
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.response.accepted import Accepted
    from trt_responses.response.background.background import Background
    from trt_responses.response.run import Run
    from trt_responses.response.runs import Runs
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.idempotency import Repeats
    from trt_responses.web.stream.sse import Terms
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.limits import RequestLimits

    Told = dict[str, str]

logger = logging.getLogger(__name__)


class Responses:
    """How a response comes to be."""

    def __init__(
        self,
        runs: Runs,
        background: Background,
        repeats: Repeats,
        *,
        model: str,
        headers: ReplyHeaders,
        terms: Terms,
        limits: RequestLimits,
        dialect: Dialect,
    ) -> None:
        self._runs = runs
        self._background = background
        self._repeats = repeats
        self._model = model
        self._headers = headers
        self._terms = terms
        self._limits = limits
        self._dialect = dialect

    async def create(self, request: Request, owner: str) -> ASGIApp:
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, CreateRequest, self._limits)
        dialect = dialect_of(request, self._dialect)
        accepted = accept(wanted, dialect)
        check_model(wanted.model, self._model)
        told = ignored_header(accepted.ignored) | _told_of_tools(accepted)
        key = header(request, HEADER)
        stream = bool(wanted.stream)
        if key is None:
            run = await self._start(accepted, request, owner, dialect)
            return await self._own(run, request, told, stream=stream)
        attempt, first = self._repeats.attempt(owner, key, dialect.name.encode() + body)
        leave = attempt.join()
        if first:
            try:
                run = await self._start(accepted, request, owner, dialect)
            except BaseException as error:
                attempt.refused(error)
                raise
            self._repeats.make(attempt, run, self._runs)
        else:
            run = await asyncio.shield(attempt.run)
            told |= {"x-trt-idempotent-replay": "true"}
        return await self._shared(run, request, told, leave, stream=stream)

    async def count(self, request: Request, owner: str) -> ASGIApp:
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, CountRequest, self._limits)
        accepted = accept(wanted)
        if wanted.model:
            check_model(wanted.model, self._model)
        tokens = await self._runs.count(accepted, owner=owner)
        told = ignored_header(accepted.ignored)
        counted = {"object": "response.input_tokens", "input_tokens": tokens}
        return json_reply(orjson.dumps(counted), self._headers(request) | told)

    async def _start(
        self, accepted: Accepted, request: Request, owner: str, dialect: Dialect
    ) -> Run:
        starts = self._background if accepted.echo.background else self._runs
        arrival_ns = request.scope["state"]["arrival_ns"]
        run = await starts.start(accepted, owner=owner, arrival_ns=arrival_ns, dialect=dialect)
        request.scope["state"]["run"] = run  # for those who count how requests end
        return run

    async def _own(self, run: Run, request: Request, told: Told, *, stream: bool) -> ASGIApp:
        """The reply to the one client that a run is made for."""
        told = told | truncated_header(run.truncated)
        if run.log.response.background:
            return self._background_reply(run, request, told, stream=stream)
        if stream:
            return Stream(run, self._runs, self._headers(request) | told, self._terms)
        with watched(run.cancel, request.receive):
            await self._runs.make(run)
        return self._made(run, request, told)

    async def _shared(
        self, run: Run, request: Request, told: Told, leave: Callable[[], None], *, stream: bool
    ) -> ASGIApp:
        """The reply to one of several clients that may read a run: all of it, from its beginning.
        `leave` is called when this one has hung up, or was dropped."""
        told = told | truncated_header(run.truncated)
        if run.log.response.background:
            return self._background_reply(run, request, told, stream=stream)
        if stream:
            return Follow(run, self._headers(request) | told, self._terms, leave=leave)
        try:
            with watched(leave, request.receive):
                await run.ended()
        finally:
            leave()
        return self._made(run, request, told)

    def _background_reply(self, run: Run, request: Request, told: Told, *, stream: bool) -> ASGIApp:
        headers = self._headers(request) | told
        if stream:
            return Follow(run, headers, self._terms)
        return json_reply(orjson.dumps(run.log.response), headers)

    def _made(self, run: Run, request: Request, told: Told) -> ASGIApp:
        """A run's last snapshot."""
        last = run.log.response
        if last.status == "cancelled":
            raise ClientDisconnect  # nobody is there to be told
        headers = self._headers(request) | told  # now, for they tell how long it took
        if last.status == "failed":
            return fault(run.error or ApiError("The response failed."), headers)
        return json_reply(run.log.json_of(last), headers)


def _told_of_tools(accepted: Accepted) -> Told:
    """The kinds of tools that are left out, for the client and for the log."""
    if not accepted.unsupported_tools:
        return {}
    names = named(accepted.unsupported_tools)
    logger.info("tools were dropped, for nobody runs them here: %s", names)
    return {"x-trt-dropped-tools": names}
