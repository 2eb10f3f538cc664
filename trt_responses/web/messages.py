"""`/v1/messages`: Anthropic's API as a view of a run. Its request is read into the same value, and
its events are another spelling of the same log. Knows no engine and no store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import orjson
from starlette.requests import ClientDisconnect

from trt_responses.errors import ApiError
from trt_responses.response.accept.messages import accept_messages
from trt_responses.response.log.messages import MessagesSpelling
from trt_responses.web.body import check_json, parsed, read_body
from trt_responses.web.endpoint import json_reply
from trt_responses.web.headers import (
    dropped_header,
    header,
    ignored_header,
    run_headers,
)
from trt_responses.web.idempotency import HEADER
from trt_responses.web.stream.sse import Follow, Stream, shared_end, watched
from trt_responses.wire.messages.output import OVERLOADED, error_of, message_of
from trt_responses.wire.messages.request import CountRequest, MessagesRequest, NoThinking

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from trt_responses.response.accept.accepted import Accepted
    from trt_responses.response.model_names import ModelNames
    from trt_responses.response.run.run import Run
    from trt_responses.response.run.runs import Runs
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.idempotency import Repeats
    from trt_responses.web.stream.sse import StreamLimits
    from trt_responses.wire.limits import RequestLimits
    from trt_responses.wire.messages.output import Thoughts

R = TypeVar("R", bound=CountRequest)


class Messages:
    """How a message comes to be, and how the tokens of a conversation are counted."""

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
        """A message, plain or streamed. It is not stored."""
        body, wanted, accepted = await self._read(request, MessagesRequest)
        thoughts = thoughts_of(wanted)

        async def start() -> Run:
            run = await self._runs.start(
                accepted,
                owner=owner,
                arrival_ns=request.scope["state"]["arrival_ns"],
                spelling=partial(MessagesSpelling, thoughts=thoughts),
            )
            request.scope["state"]["run"] = run  # for those who count how requests end
            return run

        told, limits = self._told(accepted), self._stream_limits
        if key := header(request, HEADER):
            joined = await self._repeats.join(key, b"messages" + body, start, owner, self._runs)
            run = joined.run
            told |= joined.told | run_headers(run)
            if wanted.stream:
                headers = self._headers_of(request) | told
                return Follow(run, headers, limits, leave=joined.leave, last=lambda: b"")
            last = await shared_end(run, joined.leave, request.receive)
        else:
            run = await start()
            told |= run_headers(run)
            if wanted.stream:
                headers = self._headers_of(request) | told
                return Stream(run, self._runs, headers, limits, last=lambda: b"")
            with watched(run.cancel, request.receive):
                last = await self._runs.make(run)
        if last.status == "cancelled":
            raise ClientDisconnect  # nobody is there to be told
        if last.status == "failed":
            raise run.error or ApiError("The message failed.")
        message = orjson.dumps(message_of(last, run.stop, thoughts))
        return json_reply(message, self._headers_of(request) | told)

    async def count(self, request: Request, owner: str) -> ASGIApp:
        """The tokens of a conversation, as a message made from it would count them."""
        _, _, accepted = await self._read(request, CountRequest)
        tokens = await self._runs.count(accepted, owner=owner)
        headers = self._headers_of(request) | self._told(accepted)
        return json_reply(orjson.dumps({"input_tokens": tokens}), headers)

    async def _read(self, request: Request, kind: type[R]) -> tuple[bytes, R, Accepted]:
        check_json(request)
        body = await read_body(request, self._limits)
        wanted = await parsed(body, kind, self._limits)
        accepted = await accept_messages(wanted)
        self._names.check(wanted.model)
        return body, wanted, accepted

    def _told(self, accepted: Accepted) -> dict[str, str]:
        """Headers that say what of the request meant nothing here."""
        return ignored_header(self._runs.ignored(accepted)) | dropped_header(
            accepted.unsupported_tools
        )

    def _headers_of(self, request: Request) -> dict[str, str]:
        return named_request(self._headers(request))


def thoughts_of(request: MessagesRequest) -> Thoughts:
    """What the client sees of thoughts: nothing, unless it asks."""
    match request.thinking:
        case None | NoThinking():
            return "hidden"
        case asked:
            return "omitted" if asked.display == "omitted" else "shown"


def messages_fault(error: ApiError, headers: dict[str, str]) -> Response:
    """The reply with which an error is told: its status, and a body in Anthropic's shape."""
    headers = named_request(headers)
    body = orjson.dumps(error_of(error, headers["request-id"]))
    status = OVERLOADED if error.status == 503 else error.status
    return json_reply(body, headers | error.headers, status)


def named_request(headers: dict[str, str]) -> dict[str, str]:
    """Headers with the request's id under the name that Anthropic's clients read."""
    return headers | {"request-id": headers["x-request-id"]}
