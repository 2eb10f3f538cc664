"""`/v1/chat/completions`: another view of a run. Its request is read into the same value, and its
chunks are another spelling of the same log. Knows no engine and no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import ClientDisconnect
from starlette.responses import Response  # noqa: TC002  # FastAPI reads the annotations

from trt_responses.errors import ApiError, InvalidRequest, NotFound
from trt_responses.response.accept.chat import accept_chat
from trt_responses.response.log.chat import ChatSpelling
from trt_responses.web.body import check_json, parsed, read_body
from trt_responses.web.endpoint import fault, json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import header, ignored_header, run_headers
from trt_responses.web.idempotency import HEADER
from trt_responses.web.stream.sse import Follow, Stream, shared_end, watched
from trt_responses.wire.chat.output import completion_of
from trt_responses.wire.chat.request import ChatRequest

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.response.model_names import ModelNames
    from trt_responses.response.run.run import Run
    from trt_responses.response.run.runs import Runs
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.idempotency import Repeats
    from trt_responses.web.stream.sse import StreamLimits
    from trt_responses.wire.limits import RequestLimits


class ChatCompletions:
    """How a chat completion comes to be."""

    def __init__(
        self,
        runs: Runs,
        repeats: Repeats,
        *,
        names: ModelNames,
        headers: ReplyHeaders,
        stream_limits: StreamLimits,
        limits: RequestLimits,
    ) -> None:
        self._runs = runs
        self._repeats = repeats
        self._names = names
        self._headers = headers
        self._stream_limits = stream_limits
        self._limits = limits

    async def create(self, request: Request, owner: str) -> ASGIApp:
        """A completion, plain or streamed. It is not stored."""
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await self._read(body)
        accepted = await accept_chat(wanted)
        self._names.check(wanted.model)
        told = ignored_header(self._runs.ignored(accepted))
        thought = wanted.include_reasoning is not False
        usage = bool(wanted.stream_options and wanted.stream_options.include_usage)

        async def start() -> Run:
            run = await self._runs.start(
                accepted,
                owner=owner,
                arrival_ns=request.scope["state"]["arrival_ns"],
                spelling=lambda response, _: ChatSpelling(response, usage=usage, thought=thought),
            )
            request.scope["state"]["run"] = run  # for those who count how requests end
            return run

        if key := header(request, HEADER):
            joined = await self._repeats.join(key, b"chat" + body, start, owner, self._runs)
            run, told = joined.run, told | joined.told
            told |= run_headers(run)
            if wanted.stream:
                headers = self._headers(request) | told
                return Follow(run, headers, self._stream_limits, leave=joined.leave)
            last = await shared_end(run, joined.leave, request.receive)
        else:
            run = await start()
            told |= run_headers(run)
            if wanted.stream:
                return Stream(run, self._runs, self._headers(request) | told, self._stream_limits)
            with watched(run.cancel, request.receive):
                last = await self._runs.make(run)
        if last.status == "cancelled":
            raise ClientDisconnect  # nobody is there to be told
        headers = self._headers(request) | told
        if last.status == "failed":
            return fault(run.error or ApiError("The completion failed."), headers)
        return json_reply(orjson.dumps(completion_of(last, thought=thought)), headers)

    async def _read(self, body: bytes) -> ChatRequest:
        """What is asked. Some clients send a Responses body here, for some names of models."""
        try:
            return await parsed(body, ChatRequest, self._limits)
        except InvalidRequest as error:
            if (error.param, error.code) != ("messages", "missing_required_parameter"):
                raise
            raise InvalidRequest(
                "Missing required parameter: 'messages'. A body with 'input' belongs to "
                "'POST /v1/responses': send it there.",
                param=error.param,
                code=error.code,
            ) from None

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        text = "Not served: says which endpoints are"
        router.post("/v1/completions", summary=text, responses=replies(401, 403, 404))(
            self.completions
        )
        return router

    async def completions(self, owner: Owner) -> Response:
        """The older endpoint, for a text that is no conversation."""
        raise NotFound(
            "This server has no text completions: send a conversation to "
            "'POST /v1/chat/completions' or 'POST /v1/responses'.",
            code="unknown_endpoint",
        )
