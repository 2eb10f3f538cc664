"""`/v2`: KServe's protocol with Triton's extensions, for clients and probes of a Triton fleet.

Errors are flat, `{"error": "text"}`, and success is exactly 200. Triton's own client sends no JSON
content type, so none is required; Host, Origin and key are checked as on every route. The control
routes, which change the server, need an admin key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_responses import __version__
from trt_responses.apis.kserve import bodies as k
from trt_responses.apis.kserve.inference import Inference
from trt_responses.apis.kserve.log_settings import log_settings, set_log, wanted_log
from trt_responses.apis.kserve.model import ServedModel, number
from trt_responses.errors import ApiError, InvalidRequest, NotFound
from trt_responses.features.health.health import Health
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.endpoint import note
from trt_responses.features.limits.keys import KeyRing
from trt_responses.features.metrics.statistics import Statistics
from trt_responses.features.rollout.acts import acts_of
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.versions import Versions
from trt_responses.web.body import read_body
from trt_responses.web.endpoint import json_reply, note_status
from trt_responses.web.shared import Shared
from trt_responses.wire.parse import json_of

Answer = Callable[[Request, re.Match[str]], Awaitable[ASGIApp]]

logger = logging.getLogger(__name__)

EXTENSIONS = (
    "model_repository",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "logging",
)
PLACES = {
    "{health}": r"(?P<health>live|ready)",
    "{model}": r"(?P<model>.+?)(?:/versions/(?P<version>[^/]+))?",
    "{kind}": r"(?:system|cuda)",
    "{rest}": ".+",
}
"""What stands in a path for what a client chose; a model's name may hold slashes."""


def routes(shared: Shared) -> list[Route]:
    """The endpoints of this folder: one route lets in whatever follows `/v2`."""
    return [Route("/v2{rest:path}", KServe(shared), include_in_schema=False)]


class KServe:
    """All routes of the protocol, as one raw ASGI app."""

    def __init__(self, shared: Shared) -> None:
        self._versions = shared.of(Versions)
        self._model = model = ServedModel(shared.about()["model"], self._versions)
        self._health = shared.of(Health)
        self._statistics = shared.of(Statistics)
        self._about = shared.about
        self._acts = acts_of(shared)
        self._audit = shared.of(Audit)
        self._guard = shared.guard
        self._keys = shared.of(KeyRing)
        self._headers = shared.headers
        self._limits = shared.limits
        inference = Inference(shared, model)
        plain, streamed = (partial(inference.generate, stream=one) for one in (False, True))
        self._routes: dict[str, dict[str, Answer]] = {
            "/v2": {"GET": self._server},
            "/v2/health/{health}": {"GET": self._probe},
            "/v2/models/stats": {"GET": self._all_stats},
            "/v2/models/{model}/ready": {"GET": self._model_ready},
            "/v2/models/{model}/config": {"GET": self._config},
            "/v2/models/{model}/stats": {"GET": self._stats},
            "/v2/models/{model}/infer": {"POST": inference.infer},
            "/v2/models/{model}/generate": {"POST": plain},
            "/v2/models/{model}/generate_stream": {"POST": streamed},
            "/v2/trace/setting": {"GET": _lacks, "POST": _lacks},
            "/v2/models/{model}/trace/setting": {"GET": _lacks, "POST": _lacks},
            "/v2/{kind}sharedmemory/{rest}": {"GET": _lacks, "POST": _lacks},
            "/v2/models/{model}": {"GET": self._metadata},
            "/v2/repository/index": {"POST": self._index},
            "/v2/repository/models/{model}/load": {"POST": self._load},
            "/v2/repository/models/{model}/unload": {"POST": self._unload},
            "/v2/logging": {"GET": self._logging, "POST": self._set_logging},
        }
        self._patterns = {path: _pattern(path) for path in self._routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            reply = await self._reply(request)
        except ClientDisconnect:
            return
        except Exception as error:  # no headers are sent yet, so an error reply is possible
            reply = _fault(error, request, self._headers(request))
        note_status(request, reply)
        await reply(scope, receive, send)

    async def _reply(self, request: Request) -> ASGIApp:
        method, state = request.method, request.scope["state"]
        for path, answers in self._routes.items():
            if (found := self._patterns[path].fullmatch(request.scope["path"])) is None:
                continue
            state["endpoint"] = path
            if (answer := answers.get("GET" if method == "HEAD" else method)) is None:
                allowed = {"allow": ", ".join(answers)}
                return _refusal("Method Not Allowed", 405, self._headers(request) | allowed)
            if answer not in (self._probe, self._model_ready):
                state["owner"] = self._checked(request, answer)
            return await answer(request, found)
        raise NotFound("Not Found")

    def _checked(self, request: Request, answer: Answer) -> str:
        """The owner of the request's key. Control routes need an admin key, unless this server
        requires no keys and has no admin key."""
        control = answer in (self._load, self._unload, self._set_logging)
        if control and (self._keys.required or self._keys.has_admin):
            admin = request.scope["state"]["admin"] = self._guard.admin(request)
            return admin
        return self._guard.owner(request)

    # --- about the server ---------------------------------------------------------------------

    async def _server(self, request: Request, _: re.Match[str]) -> ASGIApp:
        body = {"name": "trt_responses", "version": __version__, "extensions": EXTENSIONS}
        return self._json(request, body)

    async def _probe(self, request: Request, found: re.Match[str]) -> ASGIApp:
        report = self._health()
        good = report.live if found["health"] == "live" else report.ready
        return Response(status_code=200 if good else 400, headers=self._headers(request))

    async def _index(self, request: Request, _: re.Match[str]) -> ASGIApp:
        sent = json_of(await read_body(request, self._limits) or b"{}")
        ready_alone = isinstance(sent, dict) and bool(sent.get("ready"))
        entries = [self._entry(loaded.version) | self._state(loaded) for loaded in self._versions]
        live = self._versions.live()
        entries += [
            self._entry(version) | {"state": "UNAVAILABLE", "reason": "unloaded"}
            for version in await self._acts.prepared()
            if version not in live
        ]
        if ready_alone:
            entries = [entry for entry in entries if entry["state"] == "READY"]
        return self._json(request, entries)

    def _entry(self, version: Version) -> dict[str, str]:
        return {"name": self._model.name, "version": number(version)}

    def _state(self, loaded: Loaded) -> dict[str, str]:
        """A version's state, in the words of a repository's index."""
        report, engine = self._health(), loaded.health()
        if report.ready and engine.alive and engine.ready:
            return {"state": "READY"}
        reason = report.reason or engine.reason
        return {"state": "UNAVAILABLE"} | ({"reason": reason} if reason else {})

    async def _logging(self, request: Request, _: re.Match[str]) -> ASGIApp:
        return self._json(request, log_settings())

    # --- about the model ----------------------------------------------------------------------

    async def _metadata(self, request: Request, found: re.Match[str]) -> ASGIApp:
        self._model.check(found)
        return self._json(request, k.metadata(self._model.name, self._model.numbers()))

    async def _config(self, request: Request, found: re.Match[str]) -> ASGIApp:
        self._model.check(found)
        return self._json(request, k.config(self._model.name, self._about()["engine"]))

    async def _model_ready(self, request: Request, found: re.Match[str]) -> ASGIApp:
        self._model.check(found)
        chosen = [e for e in self._versions if found["version"] in (None, number(e.version))]
        if self._state(chosen[0])["state"] != "READY":
            raise InvalidRequest("Model version not ready")
        return Response(headers=self._headers(request))

    async def _stats(self, request: Request, found: re.Match[str]) -> ASGIApp:
        self._model.check(found)
        numbers = [found["version"]] if found["version"] else self._model.numbers()
        return self._stats_of(request, numbers)

    async def _all_stats(self, request: Request, _: re.Match[str]) -> ASGIApp:
        return self._stats_of(request, self._model.numbers())

    def _stats_of(self, request: Request, numbers: list[str]) -> ASGIApp:
        stats = [self._statistics.of(self._model.name, one) for one in numbers]
        return self._json(request, {"model_stats": stats})

    def _json(self, request: Request, body: object) -> Response:
        return json_reply(orjson.dumps(body), self._headers(request))

    # --- control ------------------------------------------------------------------------------

    async def _load(self, request: Request, found: re.Match[str]) -> ASGIApp:
        """The promoted version if it is not the one that is served, else the newest; a version
        may be named as Triton's configuration does."""
        load = k.load_request(await read_body(request, self._limits), found["version"])
        await self._note(request, "engine.load", engine=found["model"], version=load.version)
        await self._acts.load(found["model"], load)
        return Response(headers=self._headers(request))

    async def _unload(self, request: Request, found: re.Match[str]) -> ASGIApp:
        await read_body(request, self._limits)
        model, version = found["model"], found["version"]
        await self._note(request, "engine.unload", engine=model, version=version)
        await self._acts.unload(model, version)
        return Response(headers=self._headers(request))

    async def _set_logging(self, request: Request, _: re.Match[str]) -> ASGIApp:
        wanted = wanted_log(await read_body(request, self._limits))
        await self._note(request, "server.logging", settings=wanted)
        set_log(wanted)
        return self._json(request, log_settings())

    async def _note(self, request: Request, act: str, **facts: object) -> None:
        """Note an act of an admin first: one that cannot be written to the audit log is refused. A
        server with neither keys nor an admin key writes no audit entry."""
        if (admin := request.scope["state"].get("admin")) is not None:
            await note(self._audit, act, admin, **facts)


def _pattern(path: str) -> re.Pattern[str]:
    for place, pattern in PLACES.items():
        path = path.replace(place, pattern)
    return re.compile(path + "/?")


async def _lacks(request: Request, found: re.Match[str]) -> ASGIApp:
    raise ApiError("this server has no trace settings and no shared memory", status=501)


def _fault(error: Exception, request: Request, headers: dict[str, str]) -> Response:
    if isinstance(error, ApiError):
        return _refusal(error.message, error.status, headers | error.headers)
    logger.error("failed to serve %s %s", request.method, request.scope["path"], exc_info=error)
    return _refusal(f"The server failed ({type(error).__name__}).", 500, headers)


def _refusal(message: str, status: int, headers: dict[str, str]) -> Response:
    return json_reply(orjson.dumps({"error": message}), headers, status)
