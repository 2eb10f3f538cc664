"""The control routes of `/v2`: what changes the server. Each act of an admin is noted first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

from trt_responses.apis.kserve import bodies as k
from trt_responses.apis.kserve.log_settings import log_settings, set_log, wanted_log
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.endpoint import note
from trt_responses.features.rollout.acts import acts_of
from trt_responses.web.body import read_body
from trt_responses.web.endpoint import json_reply

if TYPE_CHECKING:
    import re

    from starlette.requests import Request

    from trt_responses.web.shared import Shared


class Control:
    """Loads and unloads versions, and sets the log level. An act that cannot be written to the
    audit log is refused; a server with neither keys nor an admin key writes no audit entry."""

    def __init__(self, shared: Shared) -> None:
        self._acts = acts_of(shared)
        self._audit = shared.of(Audit)
        self._headers = shared.headers
        self._limits = shared.limits

    async def load(self, request: Request, found: re.Match[str]) -> Response:
        """The promoted version if it is not the one that is served, else the newest; a version
        may be named as Triton's configuration does."""
        load = k.load_request(await read_body(request, self._limits), found["version"])
        await self._note(request, "engine.load", engine=found["model"], version=load.version)
        await self._acts.load(found["model"], load)
        return Response(headers=self._headers(request))

    async def unload(self, request: Request, found: re.Match[str]) -> Response:
        await read_body(request, self._limits)
        model, version = found["model"], found["version"]
        await self._note(request, "engine.unload", engine=model, version=version)
        await self._acts.unload(model, version)
        return Response(headers=self._headers(request))

    async def set_logging(self, request: Request, _: re.Match[str]) -> Response:
        wanted = wanted_log(await read_body(request, self._limits))
        await self._note(request, "server.logging", settings=wanted)
        set_log(wanted)
        return json_reply(orjson.dumps(log_settings()), self._headers(request))

    async def _note(self, request: Request, act: str, **facts: object) -> None:
        if (admin := request.scope["state"].get("admin")) is not None:
            await note(self._audit, act, admin, **facts)
