"""`/v1/models`: the model that is served, and the refusal of every other one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.errors import NotFound
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies

if TYPE_CHECKING:
    from trt_responses.web.headers import ReplyHeaders


class Models:
    """The model that this server serves, listed and by its name."""

    def __init__(self, model: str, created: int, headers: ReplyHeaders) -> None:
        self._model = model
        self._card = {"id": model, "object": "model", "created": created, "owned_by": "local"}
        self._headers = headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        router.get("/v1/models", summary="What is served", responses=replies(401, 403))(self.list)
        router.get(
            "/v1/models/{model:path}", summary="One model", responses=replies(401, 403, 404)
        )(self.retrieve)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        body = {"object": "list", "data": [self._card]}
        return json_reply(orjson.dumps(body), self._headers(request))

    async def retrieve(self, request: Request, model: str, owner: Owner) -> Response:
        check_model(model, self._model)
        return json_reply(orjson.dumps(self._card), self._headers(request))


def check_model(asked: str, served: str) -> None:
    if asked != served:
        raise NotFound(
            f"The model '{asked:.100}' does not exist: this server serves '{served}'.",
            param="model",
            code="model_not_found",
        )
