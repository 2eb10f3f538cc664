"""The API's description: OpenAPI, and a page of it that needs no other server.

FastAPI describes its own routes; what it has to say of the hot ones stands here.
"""

from __future__ import annotations

import asyncio
import html
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter
from pydantic import Field, create_model
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import HTMLResponse, Response

from trt_responses import __version__
from trt_responses.accept.model_names import ModelNames
from trt_responses.web.endpoint import Endpoint, json_reply
from trt_responses.web.framework import Anybody, ColdRoute, HotRoute, replies
from trt_responses.wire.fields import FIELDS
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp

    from trt_responses.web.endpoint import Answer, ErrorReply
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.responses import Responses
    from trt_responses.web.shared import Shared
    from trt_responses.web.stored import Stored
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


def hot_routes(shared: Shared, responses: Responses, stored: Stored) -> list[HotRoute]:
    """The routes of responses that are no functions of FastAPI's, with their descriptions."""
    return [
        body_route(
            shared,
            "/v1/responses",
            responses.create,
            CREATE,
            refused=(429, 500),
            name="create",
            summary="Create a response",
            response_description="The response, or with `stream: true` its events.",
            openapi_extra=STREAMED,
        ),
        body_route(
            shared,
            "/v1/responses/input_tokens",
            responses.count,
            CREATE,
            name="count",
            summary="Count the tokens of an input",
        ),
        _retrieve_route(Endpoint(stored.retrieve, shared)),
    ]


def _retrieve_route(retrieve: ASGIApp) -> HotRoute:
    async def with_id(response_id: str) -> None: ...

    return HotRoute(
        "/v1/responses/{response_id}",
        with_id,
        app=retrieve,
        methods=["GET"],
        name="retrieve",
        summary="Get a stored response, or stream a background one from any event on",
        responses=replies(400, 401, 403, 404),
        openapi_extra={
            **STREAMED,
            "parameters": [
                _in_query("stream", {"type": "boolean"}),
                _in_query("starting_after", {"type": "integer", "minimum": 0}),
            ],
        },
    )


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


class Docs:
    """The description for machines at `/openapi.json`, and for people at `/docs`."""

    def __init__(self, headers: ReplyHeaders) -> None:
        self._headers = headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody], include_in_schema=False)
        router.get("/openapi.json")(self.schema)
        router.get("/docs")(self.page)
        return router

    async def schema(self, request: Request) -> Response:
        document = await asyncio.to_thread(request.app.openapi)
        return json_reply(orjson.dumps(document), self._headers(request))

    async def page(self, request: Request) -> Response:
        document = await asyncio.to_thread(request.app.openapi)
        return HTMLResponse(page_of(document), headers=self._headers(request))


def page_of(document: dict[str, Any]) -> str:
    """The page for people: calls, fields and schemas, with no script and nothing from elsewhere."""
    calls = "".join(
        f"<tr><td><code>{method.upper()}</code></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(operation['summary'])}</td></tr>"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    )
    fields = "".join(
        f"<tr><td><code>{html.escape(f.path)}</code></td><td>{f.treatment}</td>"
        f"<td>{html.escape(f.note)}{' (ours)' if f.ours else ''}</td></tr>"
        for f in FIELDS
    )
    schema = html.escape(json.dumps(document["components"]["schemas"], indent=2))
    return _PAGE.format(version=__version__, calls=calls, fields=fields, schema=schema)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>trt_responses</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-bottom: 1px solid #8884; padding: .3rem .6rem .3rem 0; vertical-align: top }}
pre {{ background: #8881; padding: 1rem; overflow: auto; max-height: 40rem }}
:root {{ color-scheme: light dark }}
</style></head><body>
<h1>trt_responses {version}</h1>
<p>An OpenAI-compatible Responses API. For machines: <a href="openapi.json">openapi.json</a>.</p>
<pre>curl -s http://127.0.0.1:8000/v1/responses -H 'content-type: application/json' \\
  -d '{{"model": "demo", "input": "Hello", "stream": true}}'</pre>
<h2>Calls</h2><table>{calls}</table>
<h2>Fields of POST /v1/responses</h2>
<p>A field is honoured, echoed, ignored (named in <code>x-trt-ignored</code>) or refused by name.
</p><table>{fields}</table>
<h2>Schemas</h2><pre>{schema}</pre>
</body></html>
"""
