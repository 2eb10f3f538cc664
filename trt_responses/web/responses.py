"""`POST /v1/responses`: makes a run of a request, and chooses how its client reads it.

`Making` does so for chat completions and Messages, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import orjson
from starlette.requests import ClientDisconnect

from trt_responses.accept.model_names import ModelNames
from trt_responses.accept.responses import accept
from trt_responses.errors import ApiError
from trt_responses.log.log import END_OF_STREAM
from trt_responses.run.request import RunRequest
from trt_responses.web import repeats
from trt_responses.web.body import in_pieces, parsed, read_json
from trt_responses.web.endpoint import fault, json_reply
from trt_responses.web.headers import (
    IDEMPOTENCY_KEY,
    dialect_of,
    dropped_header,
    header,
    ignored_header,
    run_headers,
)
from trt_responses.web.jobs import installed, maker
from trt_responses.web.stream.sse import Follow, Stream, shared_end, watched
from trt_responses.wire.base import Options
from trt_responses.wire.request import CountRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.request import NewSpelling
    from trt_responses.run.run import Run
    from trt_responses.web.shared import Shared
    from trt_responses.wire.dialect import Dialect

    Extra = dict[str, str]
    """The server's own headers of a reply, besides those of every reply."""

R = TypeVar("R", bound=Options)


class Call(NamedTuple):
    """One client's request, as far as the reply depends on it."""

    request: Request
    owner: str
    body: bytes
    kind: bytes
    """Tells the body from the same one that was sent for something else."""
    stream: bool
    extra: Extra


class Making:
    """An API that makes runs: what its endpoints need, and how a client reads a run."""

    fault = staticmethod(fault)
    """The reply that tells an error in the API's shape."""

    def __init__(self, shared: Shared) -> None:
        self._runs = shared.runs
        self._repeats = shared.repeats
        self._names = shared.of(ModelNames)
        self._headers: Callable[[Request], dict[str, str]] = shared.headers
        self._stream_limits = shared.stream_limits
        self._limits = shared.limits

    async def _parsed(self, request: Request, kind: type[R]) -> tuple[bytes, R]:
        body = await read_json(request, self._limits)
        return body, await parsed(body, kind, self._limits)

    def _extra(self, accepted: Accepted) -> Extra:
        """Headers that name ignored fields and dropped tools."""
        ignored, dropped = self._runs.ignored(accepted), accepted.unsupported_tools
        if not ignored and not dropped:
            return {}
        return ignored_header(ignored) | dropped_header(dropped)

    def _last(self) -> bytes:
        """The end of a stream that is whole."""
        return END_OF_STREAM

    async def _unstored(
        self, accepted: Accepted, request: Request, owner: str, spelling: NewSpelling
    ) -> Run:
        """A run of an API that stores nothing, and spells its events otherwise."""
        state = request.scope["state"]
        run = await self._runs.start(
            RunRequest(accepted, owner, state["arrival_ns"], spelling=spelling)
        )
        state["run"] = run  # for those who count how requests end
        return run

    async def _reply(
        self,
        call: Call,
        start: Callable[[], Awaitable[Run]],
        whole: Callable[[Run], bytes],
        kept: Callable[[Run, Call, Extra], ASGIApp] | None = None,
    ) -> ASGIApp:
        """The reply to a client: a stream, or the `whole` of a run at its end; of a run that jobs
        make what `kept` makes. Requests with one key share a run, which ends when all have left."""
        request, leave, extra = call.request, None, call.extra
        if (key := header(request, IDEMPOTENCY_KEY)) is None:
            run = await start()
        else:
            every = call.kind + call.body
            known = repeats.installed(self._repeats)
            run, leave, more = await known.join(key, every, start, call.owner, self._runs)
            extra = extra | more
        extra = extra | run_headers(run)
        if kept is not None and run.kept:
            return kept(run, call, extra)
        if call.stream:
            headers, limits = self._headers(request) | extra, self._stream_limits
            if leave is None:
                return Stream(run, self._runs, headers, limits, self._last)
            return Follow(run, headers, limits, leave=leave, last=self._last)
        if leave is not None:
            await shared_end(run, leave, request.receive)
        else:
            with watched(run.cancel, request.receive):
                await self._runs.make(run)
        return self._final_reply(run, request, extra, whole)

    def _final_reply(
        self, run: Run, request: Request, extra: Extra, whole: Callable[[Run], bytes]
    ) -> ASGIApp:
        """The plain reply: a run's last snapshot, or its error."""
        last = run.log.response
        if last.status == "cancelled":
            raise ClientDisconnect  # its client has left, and takes no reply
        headers = self._headers(request) | extra  # only now: they say how long it took
        if last.status == "failed":
            return self.fault(run.error or ApiError("The response failed."), headers)
        return json_reply(whole(run), headers)


class Responses(Making):
    """The endpoints that make a response, and that count the tokens of its input."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._jobs = shared.jobs
        self._steps = shared.steps

    async def create(self, request: Request, owner: str) -> ASGIApp:
        body = await read_json(request, self._limits)
        dialect = dialect_of(request)
        accepted, stream, _ = await in_pieces(self._steps(body, dialect))
        if (model := accepted.echo.model) not in self._names.known:
            self._names.check(model)
        extra = self._extra(accepted)
        call = Call(request, owner, body, dialect.name.encode(), stream, extra)
        jobs = None
        if accepted.echo.background or accepted.ignored:
            jobs = maker(self._jobs, accepted, stream=stream)
        keep = partial(jobs.start, request=body) if jobs is not None else None
        start = partial(self._start, accepted, request, owner, dialect, keep)
        return await self._reply(call, start, snapshot, self._background_reply)

    async def count(self, request: Request, owner: str) -> ASGIApp:
        _, wanted = await self._parsed(request, CountRequest)
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
        keep: Callable[..., Awaitable[Run]] | None,
    ) -> Run:
        arrival_ns = request.scope["state"]["arrival_ns"]
        if keep is not None:
            run = await keep(accepted, owner=owner, arrival_ns=arrival_ns, dialect=dialect)
        else:
            run = await self._runs.start(RunRequest(accepted, owner, arrival_ns, dialect))
        request.scope["state"]["run"] = run  # for those who count how requests end
        return run

    def _background_reply(self, run: Run, call: Call, extra: Extra) -> ASGIApp:
        headers = self._headers(call.request) | extra
        if call.stream:
            return installed(self._jobs).stream(run, headers)
        return json_reply(orjson.dumps(run.log.response), headers)


def snapshot(run: Run) -> bytes:
    """The response as it is, in JSON."""
    return run.log.json_of(run.log.response)
