"""The page at `/`, with which a person tries the server: static files, and what a browser may do
with them.

The files are in `page/` beside this module: plain modules and CSS that load nothing from elsewhere.
A client of the API that asks for `/` gets JSON.
"""

from __future__ import annotations

from pathlib import Path

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response

from trt_responses import __version__
from trt_responses.apis.playground.settings import PlaygroundSettings
from trt_responses.errors import NotFound
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import Anybody, ColdRoute
from trt_responses.web.headers import header
from trt_responses.web.shared import Shared

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
"""Nothing but these files runs or is loaded, and no text ever becomes HTML or a script."""


def routes(shared: Shared) -> list[Playground]:
    """The endpoints of this folder."""
    return [Playground(shared)]


class Playground:
    """What answers at the address itself; when it is switched off, JSON alone."""

    def __init__(self, shared: Shared) -> None:
        is_on = PlaygroundSettings.of(shared.settings).playground
        self._headers = shared.headers
        self._files = {path.name: path.read_bytes() for path in FOLDER.iterdir()} if is_on else {}

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute, dependencies=[Anybody], include_in_schema=False)
        router.get("/")(self.root)
        router.get("/playground/{name}")(self.file)
        return router

    async def root(self, request: Request) -> Response:
        """The page for browsers; for clients what some ask before anything else."""
        if self._files and "text/html" in (header(request, b"accept") or ""):
            return self._reply(request, INDEX)
        body = {
            "name": "trt_responses",
            "version": __version__,
            "responses": "/v1/responses",
            "docs": "/docs",
        }
        return json_reply(orjson.dumps(body), self._varied(request))

    async def file(self, request: Request, name: str) -> Response:
        if name not in self._files or name == INDEX:
            raise NotFound(f"The page has no file '{name:.100}'.", code="unknown_url")
        return self._reply(request, name)

    def _varied(self, request: Request) -> dict[str, str]:
        headers = self._headers(request)
        return headers | {"vary": ", ".join(filter(None, (headers.get("vary"), "Accept")))}

    def _reply(self, request: Request, name: str) -> Response:
        headers = self._varied(request) | POLICY
        kind = KINDS[Path(name).suffix]
        return Response(self._files[name], headers=headers, media_type=kind)
