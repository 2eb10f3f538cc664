"""`/v1/messages`: Anthropic's API as a view of a run. Its request is read into the same value, and
its events are another spelling of the same log. Knows no engine and no store.
"""

from __future__ import annotations

from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from trt_responses.apis.chat.hosted import NO_TOOLS, BuiltIn
from trt_responses.apis.chat.shapes import MessageShapes
from trt_responses.apis.messages.accept import accept_messages, meaning, with_messages
from trt_responses.apis.messages.output import OVERLOADED, Thoughts, error_of, message_of
from trt_responses.apis.messages.request import CountRequest, MessagesRequest, NoThinking
from trt_responses.apis.messages.spelling import MessagesSpelling
from trt_responses.errors import ApiError
from trt_responses.features.shapes.shapes import Shape
from trt_responses.run.run import Run
from trt_responses.tasks import give_way
from trt_responses.web.body import in_pieces, read_json
from trt_responses.web.docs import STREAMED, body_route
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import HotRoute
from trt_responses.web.responses import Call, Making
from trt_responses.web.shared import Shared


def routes(shared: Shared, *, seals: bool) -> list[HotRoute]:
    """The endpoints of this folder."""
    messages = Messages(shared, seals=seals)
    create = body_route(
        shared,
        "/v1/messages",
        messages.create,
        ("CreateMessage", MessagesRequest),
        refused=(429, 500, OVERLOADED),
        error_reply=messages_fault,
        name="message",
        summary="Create a message, as Anthropic's clients do",
        response_description="The message, or with `stream: true` its events.",
        openapi_extra=STREAMED,
    )
    count = body_route(
        shared,
        "/v1/messages/count_tokens",
        messages.count,
        ("CountMessageTokens", CountRequest),
        refused=(OVERLOADED,),
        error_reply=messages_fault,
        name="count_message",
        summary="Count the tokens of messages",
    )
    return [create, count]


def messages_fault(error: ApiError, headers: dict[str, str]) -> Response:
    """The reply to an error: its status, and a body in Anthropic's shape."""
    headers = named_request(headers)
    body = orjson.dumps(error_of(error, headers["request-id"]))
    status = OVERLOADED if error.status == 503 else error.status
    return json_reply(body, headers | error.headers, status)


def named_request(headers: dict[str, str]) -> dict[str, str]:
    """Headers with the request's id under the name that Anthropic's clients read."""
    return headers | {"request-id": headers["x-request-id"]}


def shape_of(
    request: MessagesRequest, *, seals: bool, built_in: BuiltIn = NO_TOOLS
) -> Shape[Thoughts]:
    """The request without its messages."""
    accepted = accept_messages(request, seals=seals, built_in=built_in)
    return Shape(accepted, bool(request.stream), thoughts_of(request))


class Messages(Making):
    """How a message comes to be, and how the tokens of a conversation are counted."""

    fault = staticmethod(messages_fault)

    def __init__(self, shared: Shared, *, seals: bool) -> None:
        """With `seals`, thoughts carry signatures."""
        super().__init__(shared)
        self._headers = lambda request: named_request(shared.headers(request))
        self._seals = seals
        read = partial(shape_of, seals=self._seals, built_in=shared.runs.built_in)
        self._shapes = MessageShapes(MessagesRequest, shared.limits, read, with_messages, meaning)

    async def create(self, request: Request, owner: str) -> ASGIApp:
        """A message, plain or streamed. It is not stored."""
        body = await read_json(request, self._limits)
        accepted, stream, thoughts = await in_pieces(self._shapes.steps(body))
        self._names.check(accepted.echo.model)
        extra = self._extra(accepted)

        def whole(run: Run) -> bytes:
            return orjson.dumps(message_of(run.log.response, run.stop, thoughts))

        call = Call(request, owner, body, b"messages", stream, extra)
        spelling = partial(MessagesSpelling, thoughts=thoughts)
        start = partial(self._unstored, accepted, request, owner, spelling)
        return await self._reply(call, start, whole)

    async def count(self, request: Request, owner: str) -> ASGIApp:
        """The tokens of a conversation, as a message made from it would count them."""
        _, wanted = await self._parsed(request, CountRequest)
        accepted = accept_messages(wanted, seals=self._seals, built_in=self._runs.built_in)
        accepted = await in_pieces(with_messages(accepted, wanted.messages, answered=False))
        await give_way()
        self._names.check(wanted.model)
        tokens = await self._runs.count(accepted, owner=owner)
        headers = self._headers(request) | self._extra(accepted)
        return json_reply(orjson.dumps({"input_tokens": tokens}), headers)

    def _last(self) -> bytes:
        return b""


def thoughts_of(request: MessagesRequest) -> Thoughts:
    """What the client sees of thoughts: nothing, unless it asks."""
    match request.thinking:
        case None | NoThinking():
            return "hidden"
        case chosen:
            return "omitted" if chosen.display == "omitted" else "shown"
