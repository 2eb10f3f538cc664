"""The API described: OpenAPI from the wire models, and a page of it that needs no other server."""

from __future__ import annotations

import html
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import HTMLResponse

from trt_responses import __version__
from trt_responses.web.endpoint import json_reply
from trt_responses.wire.judge import FIELDS
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.web.headers import ReplyHeaders

REF = "#/components/schemas/{model}"


@cache
def openapi(model: str | None = None) -> dict[str, Any]:
    """The OpenAPI document. Its body schema is made from the models that parse the body; `model`
    is the one that is served."""
    body = CreateRequest.model_json_schema(ref_template=REF, mode="validation")
    if model is not None:
        body["properties"]["model"] = {"type": "string", "enum": [model]}
    schemas = {**body.pop("$defs", {}), "CreateResponse": body, "Error": _ERROR}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trt_responses",
            "version": __version__,
            "description": "The OpenAI Responses API for gpt-oss style models.",
        },
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_CREATED = {
    "description": "The response, or with `stream: true` its events.",
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "text/event-stream": {"schema": {"type": "string"}},
    },
}


def _paths() -> dict[str, Any]:
    by_id = [_in_path("response_id")]
    create = _operation("Create a response", _CREATED, 400, 401, 403, 404, 413, 415, 429, 500, 503)
    count = _operation("Count the tokens of an input", _OBJECT, 400, 401, 403, 404, 413, 415, 503)
    create["requestBody"] = count["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": REF.format(model="CreateResponse")}}},
    }
    known = (401, 403, 404)
    return {
        "/v1/responses": {"post": create},
        "/v1/responses/{response_id}": {
            "get": _operation(
                "Get a stored response, or stream a background one from any event on",
                _CREATED,
                400,
                *known,
                parameters=[
                    *by_id,
                    _in_query("stream", {"type": "boolean"}),
                    _in_query("starting_after", {"type": "integer", "minimum": 0}),
                ],
            ),
            "delete": _operation("Delete a stored response", _OBJECT, *known, parameters=by_id),
        },
        "/v1/responses/{response_id}/cancel": {
            "post": _operation("Stop a background response", _OBJECT, 400, *known, parameters=by_id)
        },
        "/v1/responses/{response_id}/input_items": {
            "get": _operation(
                "List what a response was asked",
                _OBJECT,
                400,
                *known,
                409,
                parameters=[
                    *by_id,
                    _in_query("after", {"type": "string"}),
                    _in_query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
                    _in_query("order", {"enum": ["asc", "desc"]}),
                ],
            )
        },
        "/v1/responses/input_tokens": {"post": count},
        "/v1/fields": {"get": _operation("What is done with each field", _OBJECT, 401, 403)},
        "/v1/models": {"get": _operation("What is served", _OBJECT, 401, 403)},
        "/v1/models/{model}": {
            "get": _operation("One model", _OBJECT, *known, parameters=[_in_path("model")])
        },
        "/health/live": {"get": _operation("Is the process alive", _OBJECT, 503)},
        "/health/ready": {"get": _operation("Does it take work", _OBJECT, 503)},
    }


_OBJECT = {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}


def _operation(
    summary: str, good: dict[str, Any], *faults: int, parameters: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    schema = {"$ref": REF.format(model="Error")}
    bad = {"description": "Refused", "content": {"application/json": {"schema": schema}}}
    return {
        "summary": summary,
        "parameters": parameters or [],
        "responses": {"200": good, **{str(status): bad for status in faults}},
    }


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


class Docs:
    """`/openapi.json` and `/docs`."""

    def __init__(self, headers: ReplyHeaders, model: str | None = None) -> None:
        self._headers = headers
        self._model = model

    async def schema(self, request: Request, owner: str) -> ASGIApp:
        return json_reply(orjson.dumps(openapi(self._model)), self._headers(request))

    async def page(self, request: Request, owner: str) -> ASGIApp:
        return HTMLResponse(_page(), headers=self._headers(request))


@cache
def _page() -> str:
    document = openapi()
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
