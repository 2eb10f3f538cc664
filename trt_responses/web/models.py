"""`/v1/models`: the model that is served, by each of its names, and the refusal of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002  # FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002  # likewise

from trt_responses.errors import NotFound
from trt_responses.frozen import dataclass
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.response.versions.versions import Version
    from trt_responses.web.headers import ReplyHeaders


@dataclass(frozen=True, slots=True)
class ModelNames:
    """The names by which clients may ask for the one model. Answers say the served one."""

    served: str
    aliases: Sequence[str] = ()
    answers_any: bool = False
    """Whatever name is asked for is this model's: agents ask for small models of their own."""
    versions: Callable[[], Sequence[Version]] = tuple
    """Those that are loaded now, the promoted one first."""

    @property
    def known(self) -> tuple[str, ...]:
        return (self.served, *self.aliases)

    @property
    def of_versions(self) -> dict[str, Version]:
        """Each loaded version by its names, the one with its number first."""
        return {name: version for version in self.versions() for name in version.names}

    def check(self, asked: str) -> None:
        """Raise a `NotFound` for the name of another model, or of a version that is not loaded."""
        if asked in self.known or self.answers_any:
            return
        if asked not in (named := self.of_versions):
            serves = ", ".join(f"'{name}'" for name in (self.served, *named))
            raise NotFound(
                f"The model '{asked:.100}' does not exist: this server serves {serves}.",
                param="model",
                code="model_not_found",
            )


class Models:
    """The model that this server serves, listed and by its names."""

    def __init__(self, names: ModelNames, created: int, headers: ReplyHeaders) -> None:
        self._names = names
        self._created = created
        self._headers = headers

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        router.get("/v1/models", summary="What is served", responses=replies(401, 403))(self.list)
        router.get(
            "/v1/models/{model:path}", summary="One model", responses=replies(401, 403, 404)
        )(self.retrieve)
        return router

    async def list(self, request: Request, owner: Owner) -> Response:
        labels = [version.label for version in self._names.versions() if version.names]
        names = (*self._names.known, *labels)
        body = {"object": "list", "data": [self._card(name) for name in names]}
        return json_reply(orjson.dumps(body), self._headers(request))

    async def retrieve(self, request: Request, model: str, owner: Owner) -> Response:
        self._names.check(model)
        return json_reply(orjson.dumps(self._card(model)), self._headers(request))

    def _card(self, name: str) -> dict[str, object]:
        """The model as the list has it: `root` says which one a name stands for, and
        `version` which build of it."""
        about = {"object": "model", "created": self._created, "owned_by": "local"}
        told = {"id": name, **about, "root": self._names.served}
        versions = self._names.versions()
        version = self._names.of_versions.get(name, next(iter(versions), None))
        if version is None or not version.names:
            return told
        return told | {"version": version.number, "digest": version.digest}
