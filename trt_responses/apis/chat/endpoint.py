"""`/v1/chat/completions`: another view of a run. Its request is read into the same value, and its
chunks are another spelling of the same log. Knows no engine and no store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from fastapi import APIRouter
from starlette.responses import Response  # FastAPI reads the annotations

from trt_responses.apis.chat.accept import accept_chat, with_messages
from trt_responses.apis.chat.hosted import NO_TOOLS, BuiltIn
from trt_responses.apis.chat.output import completion_of
from trt_responses.apis.chat.request import AssistantMessage, ChatRequest
from trt_responses.apis.chat.settings import ChatSettings
from trt_responses.apis.chat.shapes import MessageShapes
from trt_responses.apis.chat.spelling import ChatSpelling
from trt_responses.errors import InvalidRequest, NotFound
from trt_responses.features.shapes.shapes import Shape
from trt_responses.web.body import in_pieces, read_json
from trt_responses.web.docs import STREAMED, body_route
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.responses import Call, Making

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.request import NewSpelling
    from trt_responses.run.run import Run
    from trt_responses.setup.server import Server
    from trt_responses.web.shared import Cold, Shared
    from trt_responses.wire.limits import RequestLimits
    from trt_responses.wire.response import Response as ResponseObject


NAMES: dict[str, Sequence[str]] = {
    "both": ("reasoning", "reasoning_content"),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
}
"""The fields of the thought, by the setting: no one name serves all clients."""


def routes(shared: Shared, server: Server) -> list[BaseRoute | Cold]:
    """The endpoints of this folder."""
    chat = ChatCompletions(shared)
    server.provide(chat)  # batches answer its requests
    create = body_route(
        shared,
        "/v1/chat/completions",
        chat.create,
        ("CreateChatCompletion", ChatRequest),
        refused=(429, 500),
        name="chat",
        summary="Create a chat completion",
        response_description="The completion, or with `stream: true` its chunks.",
        openapi_extra=STREAMED,
    )
    return [create, chat]


class ChatOptions(NamedTuple):
    """What a completion has besides its answer."""

    usage: bool
    thought: Sequence[str]
    """The fields that hold the thought."""
    logprobs: bool


def shapes_of(
    limits: RequestLimits, names: Sequence[str], built_in: BuiltIn = NO_TOOLS
) -> MessageShapes[ChatRequest, ChatOptions]:
    """What reads requests, where fields of these `names` hold thoughts, and the server runs the
    tools `built_in`."""
    reading = partial(shape_of, names=names, built_in=built_in)
    besides = partial(with_thoughts, names=names)
    return MessageShapes(ChatRequest, limits, reading, with_messages, besides)


def shape_of(
    request: ChatRequest, *, names: Sequence[str], built_in: BuiltIn
) -> Shape[ChatOptions]:
    """The request without its messages."""
    usage = bool(request.stream_options and request.stream_options.include_usage)
    options = ChatOptions(usage, thought_names(request, names), bool(request.logprobs))
    return Shape(accept_chat(request, built_in), bool(request.stream), options)


def with_thoughts(sent: Mapping[str, Any], *, names: Sequence[str]) -> Mapping[str, Any]:
    """The fields of a request, and those that hold thoughts in its messages."""
    messages = [each for each in sent["messages"] if isinstance(each, dict)]
    return {**sent, "": [name for name in names if any(each.get(name) for each in messages)]}


class ChatCompletions(Making):
    """How a chat completion comes to be."""

    batch_path = "/v1/chat/completions"

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        names = NAMES[ChatSettings.of(shared.settings).chat_reasoning]
        self._shapes = shapes_of(shared.limits, names, shared.runs.built_in)

    async def create(self, request: Request, owner: str) -> ASGIApp:
        """A completion, plain or streamed. It is not stored."""
        body, shape = await self._read(request)
        accepted, stream, spelling, whole = self._wanted(shape)
        extra = self._extra(accepted)
        call = Call(request, owner, body, b"chat", stream, extra)
        start = partial(self._unstored, accepted, request, owner, spelling)
        return await self._reply(call, start, whole)

    async def wanted(
        self, body: bytes
    ) -> tuple[Accepted, bool, NewSpelling, Callable[[Run], bytes]]:
        """A request of a batch: whether it wants a stream, and what writes its answer."""
        return self._wanted(await in_pieces(self._shapes.steps(body)))

    def _wanted(
        self, shape: Shape[ChatOptions]
    ) -> tuple[Accepted, bool, NewSpelling, Callable[[Run], bytes]]:
        accepted, stream, (usage, thought, logprobs) = shape
        self._names.check(accepted.echo.model)

        def spelling(response: ResponseObject, _: int) -> ChatSpelling:
            return ChatSpelling(response, usage=usage, thought=thought, logprobs=logprobs)

        def whole(run: Run) -> bytes:
            return orjson.dumps(completion_of(run.log.response, thought=thought))

        return accepted, stream, spelling, whole

    async def _read(self, request: Request) -> tuple[bytes, Shape[ChatOptions]]:
        """The request. Some clients send a Responses body here, for some names of models."""
        body = await read_json(request, self._limits)
        try:
            return body, await in_pieces(self._shapes.steps(body))
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


def thought_names(wanted: ChatRequest, names: Sequence[str]) -> Sequence[str]:
    """The fields that hold the thought: none for a client that wants none, and of several the one
    that this client has sent back."""
    if wanted.include_reasoning is False:
        return ()
    if len(names) > 1:
        earlier = [m for m in wanted.messages if isinstance(m, AssistantMessage)]
        shown = [name for name in names if any(getattr(m, name) for m in earlier)]
        if len(shown) == 1:
            return shown
    return names
