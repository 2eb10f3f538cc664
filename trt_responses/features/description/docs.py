"""The API's description: OpenAPI, and a page of it that needs no other server."""

from __future__ import annotations

import asyncio
import html
import json
import shlex
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import HTMLResponse, Response

from trt_responses import __version__
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Anybody, ColdRoute
from trt_responses.web.headers import ReplyHeaders
from trt_responses.wire.fields import FIELDS

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


class Docs:
    """The description for machines at `/openapi.json`, and for people at `/docs`."""

    def __init__(self, headers: ReplyHeaders, model: str) -> None:
        self._headers = headers
        self._model = model

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody], include_in_schema=False)
        router.get("/openapi.json")(self.schema)
        router.get("/docs")(self.page)
        return router

    async def schema(self, request: Request) -> Response:
        document = await asyncio.to_thread(document_of, request.app)
        return json_reply(orjson.dumps(document), self._headers(request))

    async def page(self, request: Request) -> Response:
        document = await asyncio.to_thread(document_of, request.app)
        page = page_of(document, address_of(request), self._model)
        return HTMLResponse(page, headers=self._headers(request))


def document_of(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document. A parameter that is wrong is a 400 here, and never its 422."""
    if app.openapi_schema is None:
        document = app.openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Error"] = ERROR
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return app.openapi_schema or {}


def address_of(request: Request) -> str:
    """Where the client reached this server; a TLS proxy names its own scheme."""
    address = request.base_url
    if request.headers.get("x-forwarded-proto") == "https":
        address = address.replace(scheme="https")
    return str(address).rstrip("/")


def page_of(document: dict[str, Any], address: str, model: str) -> str:
    """The page for people: calls, fields and schemas, with no script and nothing from elsewhere.
    Its example asks for `model` at `address`."""
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
    example = json.dumps({"model": model, "input": "Hello", "stream": True})
    return _PAGE.format(
        version=__version__,
        address=html.escape(address),
        body=html.escape(shlex.quote(example)),
        calls=calls,
        fields=fields,
        schema=schema,
    )


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
<pre>curl -s {address}/v1/responses -H 'content-type: application/json' \\
  -d {body}</pre>
<h2>Calls</h2><table>{calls}</table>
<h2>Fields of POST /v1/responses</h2>
<p>A field is honoured, echoed, ignored (named in <code>x-trt-ignored</code>) or refused by name.
</p><table>{fields}</table>
<h2>Schemas</h2><pre>{schema}</pre>
</body></html>
"""
