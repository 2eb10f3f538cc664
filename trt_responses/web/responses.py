"""`POST /v1/responses`: makes a run of a request, and chooses how its client reads it.

The only module that knows whether a client wants a stream.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson
from starlette.requests import ClientDisconnect

from trt_responses.errors import ApiError
from trt_responses.response.accept.responses import accept, accept_compaction
from trt_responses.web.body import check_json, parsed, read_body
from trt_responses.web.endpoint import fault, json_reply
from trt_responses.web.headers import (
    dialect_of,
    dropped_header,
    header,
    ignored_header,
    run_headers,
)
from trt_responses.web.idempotency import HEADER
from trt_responses.web.stream.sse import Follow, Stream, shared_end, watched
from trt_responses.wire.request import CompactRequest, CountRequest
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.response.accept.accepted import Accepted
    from trt_responses.response.background.background import Background
    from trt_responses.response.model_names import ModelNames
    from trt_responses.response.run.run import Run
    from trt_responses.response.run.runs import Runs
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.idempotency import Repeats
    from trt_responses.web.stream.sse import StreamLimits
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.limits import RequestLimits

    Extra = dict[str, str]
    """Headers of ours that a reply has besides those of every reply."""


class Responses:
    """The endpoints that make a response, and that count the tokens of its input."""

    def __init__(
        self,
        runs: Runs,
        background: Background,
        repeats: Repeats,
        *,
        names: ModelNames,
        headers: ReplyHeaders,
        stream_limits: StreamLimits,
        limits: RequestLimits,
        dialect: Dialect,
        follows: Callable[[str, str, dict[str, str], Dialect], ASGIApp],
    ) -> None:
        """`follows` writes a background stream as the store keeps it."""
        self._follows = follows
        self._runs = runs
        self._background = background
        self._repeats = repeats
        self._names = names
        self._headers = headers
        self._stream_limits = stream_limits
        self._limits = limits
        self._dialect = dialect

    async def create(self, request: Request, owner: str) -> ASGIApp:
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, CreateRequest, self._limits)
        dialect = dialect_of(request, self._dialect)
        accepted = accept(wanted, dialect, self._runs.built_in)
        self._names.check(wanted.model)
        extra = ignored_header(self._runs.ignored(accepted)) | dropped_header(
            accepted.unsupported_tools
        )
        key = header(request, HEADER)
        stream = bool(wanted.stream)
        if key is None:
            run = await self._start(accepted, request, owner, dialect, body)
            return await self._sole_reply(run, request, extra, stream=stream)
        start = partial(self._start, accepted, request, owner, dialect, body)
        asked = dialect.name.encode() + body
        run, leave, told = await self._repeats.join(key, asked, start, owner, self._runs)
        return await self._shared_reply(run, request, extra | told, leave, stream=stream)

    async def compact(self, request: Request, owner: str) -> ASGIApp:
        """What users said, and one item for all the rest. Nothing is kept here."""
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, CompactRequest, self._limits)
        accepted = accept_compaction(wanted, self._runs.built_in)
        self._names.check(wanted.model)
        run = await self._start(accepted, request, owner, self._dialect)
        with watched(run.cancel, request.receive):
            last = await self._runs.make(run)
        extra = ignored_header(self._runs.ignored(accepted))
        if last.status in ("failed", "cancelled") or run.compaction is None:
            return self._final_reply(run, request, extra)
        compacted = {
            "id": last.id,
            "object": "response.compaction",
            "created_at": last.created_at,
            "output": [*run.compaction.user_messages(), *last.output],
            "usage": last.usage,
        }
        return json_reply(orjson.dumps(compacted), self._headers(request) | extra)

    async def count(self, request: Request, owner: str) -> ASGIApp:
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, CountRequest, self._limits)
        accepted = accept(wanted, built_in=self._runs.built_in)
        if wanted.model:
            self._names.check(wanted.model)
        tokens = await self._runs.count(accepted, owner=owner)
        extra = ignored_header(self._runs.ignored(accepted))
        counted = {"object": "response.input_tokens", "input_tokens": tokens}
        return json_reply(orjson.dumps(counted), self._headers(request) | extra)

    async def _start(
        self,
        accepted: Accepted,
        request: Request,
        owner: str,
        dialect: Dialect,
        body: bytes = b"",
    ) -> Run:
        arrival_ns = request.scope["state"]["arrival_ns"]
        if accepted.echo.background:
            run = await self._background.start(
                accepted, owner=owner, arrival_ns=arrival_ns, dialect=dialect, request=body
            )
        else:
            run = await self._runs.start(
                accepted, owner=owner, arrival_ns=arrival_ns, dialect=dialect
            )
        request.scope["state"]["run"] = run  # for those who count how requests end
        return run

    async def _sole_reply(
        self, run: Run, request: Request, extra: Extra, *, stream: bool
    ) -> ASGIApp:
        """The reply to the one client that a run is made for."""
        extra = extra | run_headers(run)
        if run.log.response.background:
            return self._background_reply(run, request, extra, stream=stream)
        if stream:
            return Stream(run, self._runs, self._headers(request) | extra, self._stream_limits)
        with watched(run.cancel, request.receive):
            await self._runs.make(run)
        return self._final_reply(run, request, extra)

    async def _shared_reply(
        self, run: Run, request: Request, extra: Extra, leave: Callable[[], None], *, stream: bool
    ) -> ASGIApp:
        """The reply to one of several clients that may read a run: all of it, from its beginning.
        `leave` is called when this one has hung up, or was dropped."""
        extra = extra | run_headers(run)
        if run.log.response.background:
            return self._background_reply(run, request, extra, stream=stream)
        if stream:
            return Follow(run, self._headers(request) | extra, self._stream_limits, leave=leave)
        await shared_end(run, leave, request.receive)
        return self._final_reply(run, request, extra)

    def _background_reply(
        self, run: Run, request: Request, extra: Extra, *, stream: bool
    ) -> ASGIApp:
        headers = self._headers(request) | extra
        if stream and self._background.can_move:
            return self._follows(run.id, run.owner, headers, run.log.dialect)
        if stream:
            return Follow(run, headers, self._stream_limits)
        return json_reply(orjson.dumps(run.log.response), headers)

    def _final_reply(self, run: Run, request: Request, extra: Extra) -> ASGIApp:
        """The plain reply: a run's last snapshot, or its error."""
        last = run.log.response
        if last.status == "cancelled":
            raise ClientDisconnect  # its client has left, and takes no reply
        headers = self._headers(request) | extra  # only now: they say how long it took
        if last.status == "failed":
            return fault(run.error or ApiError("The response failed."), headers)
        return json_reply(run.log.json_of(last), headers)
