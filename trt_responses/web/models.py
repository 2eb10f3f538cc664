"""`/v1/models`: what this server serves, and the refusal of everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import NotFound
from trt_responses.web.endpoint import json_reply

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.web.headers import ReplyHeaders


class Models:
    """One server serves one model."""

    def __init__(self, model: str, created: int, headers: ReplyHeaders) -> None:
        self._model = model
        self._card = {"id": model, "object": "model", "created": created, "owned_by": "local"}
        self._headers = headers

    async def list(self, request: Request, owner: str) -> ASGIApp:
        body = {"object": "list", "data": [self._card]}
        return json_reply(orjson.dumps(body), self._headers(request))

    async def retrieve(self, request: Request, owner: str) -> ASGIApp:
        asked = request.path_params["model"]
        check_model(asked, self._model)
        return json_reply(orjson.dumps(self._card), self._headers(request))


def check_model(asked: str, served: str) -> None:
    if asked != served:
        raise NotFound(
            f"The model '{asked:.100}' does not exist: this server serves '{served}'.",
            param="model",
            code="model_not_found",
        )
