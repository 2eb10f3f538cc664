"""The hot routes with their descriptions, which FastAPI makes of its own routes alone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from trt_responses.accept.model_names import ModelNames
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.framework import HotRoute, replies
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.web.endpoint import Answer, ErrorReply
    from trt_responses.web.shared import Shared
    from trt_responses.wire.base import Options

STREAM = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


REFUSED = (400, 401, 403, 404, 413, 415, 503)
STREAMED = {"responses": {"200": STREAM}}


@cache
def _body_model(name: str, parses: type[Options], models: tuple[str, ...]) -> type[Options]:
    """The model that parses a body, as it is described: with the names that are served; none
    when all are."""
    only = Field(json_schema_extra={"enum": [*models]} if models else None)
    return create_model(name, __base__=parses, model=(str, only))


def body_route(
    shared: Shared,
    path: str,
    answer: Answer,
    body: tuple[str, type[Options]],
    *,
    refused: Sequence[int] = (),
    error_reply: ErrorReply | None = None,
    **described: Any,
) -> HotRoute:
    """A route that reads a body, and may write a stream. `body` is the kind of request with its
    name in the description, `refused` the statuses besides those that every such route has."""

    async def with_body(body: Any) -> None: ...

    names = shared.of(ModelNames)
    models = () if names.answers_any else names.known
    with_body.__annotations__["body"] = _body_model(*body, models)
    app, statuses = Endpoint(answer, shared, error_reply), replies(*REFUSED, *refused)
    return HotRoute(path, with_body, app=app, methods=["POST"], responses=statuses, **described)


CREATE = "CreateResponse", CreateRequest
"""The body of a request for a response."""
