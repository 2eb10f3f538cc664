"""`/v1/models`: the model that is served, by each of its names, and its adapters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.accept.model_names import ModelNames
from trt_responses.setup.server import Server
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.headers import ReplyHeaders


def install(server: Server) -> None:
    about = {"object": "model", "created": int(time.time()), "owned_by": "local"}
    server.add_routes(
        60, lambda shared: [Models(server.names, shared.headers, about | server.model_facts)]
    )


class Models:
    """The model that this server serves, listed and by its names."""

    def __init__(self, names: ModelNames, headers: ReplyHeaders, about: Mapping[str, Any]) -> None:
        """`about`: fields that the model has by each of its names."""
        self._names, self._headers, self._about = names, headers, about

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        router.get("/v1/models", summary="What is served", responses=replies(401, 403))(self.list)
        router.get(
            "/v1/models/{model:path}", summary="One model", responses=replies(401, 403, 404)
        )(self.retrieve)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        names = (*self._names.known, *self._names.further)
        body = {"object": "list", "data": [self._card(name) for name in names]}
        return json_reply(orjson.dumps(body), self._headers(request))

    async def retrieve(self, request: Request, model: str, owner: Owner) -> Response:
        self._names.check(model)
        return json_reply(orjson.dumps(self._card(model)), self._headers(request))

    def _card(self, name: str) -> dict[str, Any]:
        """The model as the list has it."""
        return {"id": name, **self._about, **self._names.card(name)}
