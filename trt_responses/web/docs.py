"""The hot routes with their descriptions, which FastAPI makes of its own routes alone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from trt_responses.accept.model_names import ModelNames
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.framework import hot_route, replies
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.web.endpoint import Answer, ErrorReply
    from trt_responses.web.framework import HotRoute
    from trt_responses.web.shared import Shared
    from trt_responses.wire.base import Options

STREAM = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


REFUSED = (400, 401, 403, 404, 413, 415, 503)
STREAMED = {"responses": {"200": STREAM}}


@cache
def _with_body(name: str, parses: type[Options], models: tuple[str, ...]) -> Callable[..., Any]:
    """A function of the body as it is described: with the names that are served; none when all
    are."""

    async def with_body(body: Any) -> None: ...

    only = Field(json_schema_extra={"enum": [*models]} if models else None)
    with_body.__annotations__["body"] = create_model(name, __base__=parses, model=(str, only))
    return with_body


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
    names = shared.of(ModelNames)
    models = () if "*" in names.aliases else names.known
    app, statuses = Endpoint(answer, shared, error_reply), replies(*REFUSED, *refused)
    with_body = _with_body(*body, models)
    return hot_route(path, with_body, app, methods=["POST"], responses=statuses, **described)


CREATE = "CreateResponse", CreateRequest
"""The body of a request for a response."""
