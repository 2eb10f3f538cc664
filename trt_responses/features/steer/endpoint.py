"""`POST /v1/responses/{id}/steer`: a running response is ended, and goes on with the user's message
in a successor, which is the reply."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.features.steer.messages import (
    NOT_ACTIVE,
    NOT_SUPPORTED,
    STEERED,
    Steering,
    not_active,
    required_input,
    steerable,
    successor,
)
from trt_responses.features.stored.endpoint import there
from trt_responses.run.request import RunRequest
from trt_responses.store import Job
from trt_responses.web.docs import REFUSED, STREAMED
from trt_responses.web.endpoint import Endpoint, json_reply
from trt_responses.web.framework import HotRoute, replies
from trt_responses.web.headers import dialect_of
from trt_responses.web.jobs import installed, maker
from trt_responses.web.responses import Call, Making, snapshot
from trt_responses.wire.dialect import DIALECTS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.run import Run
    from trt_responses.web.jobs import Jobs
    from trt_responses.web.responses import Extra
    from trt_responses.web.shared import Shared


class SteerRequest(Steering):
    """What steers a response over HTTP."""

    stream: bool | None = None


def routes(shared: Shared) -> list[HotRoute]:
    """The endpoint of this folder."""

    async def with_body(response_id: str, body: SteerRequest) -> None: ...

    with_body.__annotations__ = {"response_id": str, "body": SteerRequest, "return": None}
    route = HotRoute(
        "/v1/responses/{response_id}/steer",
        with_body,
        app=Endpoint(Steer(shared).steer, shared),
        methods=["POST"],
        name="steer",
        summary="Steer a running response with a message",
        response_description="The response that goes on, or with `stream: true` its events.",
        responses=replies(*REFUSED, 409, 429, 500),
        openapi_extra=STREAMED,
    )
    return [route]


class Steer(Making):
    """Ends a response and makes its successor."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._jobs = shared.jobs
        self._store = shared.parts.store
        self._dialect = DIALECTS[shared.settings.dialect]

    async def steer(self, request: Request, owner: str) -> ASGIApp:
        body, wanted = await self._parsed(request, SteerRequest)
        stream, messages = bool(wanted.stream), wanted.messages
        run = await self._running(request.path_params["response_id"], owner)
        accepted = successor(steerable(run), run.id, messages)
        if not accepted.store:
            raise InvalidRequest(
                "A response with 'store: false' is steered over its WebSocket only.",
                code=NOT_SUPPORTED,
            )
        jobs = maker(self._jobs, accepted, stream=stream)
        call = Call(request, owner, body, run.id.encode(), stream, self._extra(accepted))
        start = partial(self._go_on, run, accepted, call, jobs)
        return await self._reply(call, start, snapshot, self._kept_reply)

    async def _running(self, response_id: str, owner: str) -> Run:
        """The run that this server makes, or why there is none."""
        for run, _ in self._runs.leased():
            if run.id == response_id and run.owner == owner:
                return run
        found = there(response_id, await self._store.get(response_id, owner))
        if isinstance(found, Job):
            raise InvalidRequest(
                f"Response '{found.id}' is made by another server, which alone can steer it.",
                status=409,
                code=NOT_ACTIVE,
            )
        raise InvalidRequest(
            f"Response '{found.id}' has ended: continue it by 'previous_response_id'.",
            status=409,
            code="response_already_completed",
        )

    async def _go_on(self, run: Run, accepted: Accepted, call: Call, jobs: Jobs | None) -> Run:
        assert run.draft is not None, "it was running just now"
        sent, dialect = run.draft.request.body, dialect_of(call.request, self._dialect)
        if not run.end_as(STEERED):
            raise not_active(run.id)
        await run.ended()
        _check_goes_on(run)
        state = call.request.scope["state"]
        arrival_ns: int = state["arrival_ns"]
        if jobs is None:
            made = await self._runs.start(RunRequest(accepted, call.owner, arrival_ns, dialect))
        else:
            made = await jobs.start(
                accepted,
                owner=call.owner,
                arrival_ns=arrival_ns,
                dialect=dialect,
                request=_body_of(sent, run.id, call.body) if sent else b"",
            )
        state["run"] = made  # for those who count how requests end
        return made

    def _kept_reply(self, run: Run, call: Call, extra: Extra) -> ASGIApp:
        headers = self._headers(call.request) | extra
        if call.stream:
            return installed(self._jobs).stream(run, headers)
        return json_reply(orjson.dumps(run.log.response), headers)


def _check_goes_on(run: Run) -> None:
    """Raise an `InvalidRequest` where nothing can go on from a run that has ended."""
    last = run.log.response
    if last.status not in ("completed", "incomplete"):
        raise not_active(last.id)
    if waiting := required_input(last):
        calls = ", ".join(str(one.get("call_id") or one["approval_request_id"]) for one in waiting)
        raise InvalidRequest(
            f"Response '{last.id}' waits for the outputs of {calls}: send them and the message to "
            "'POST /v1/responses'.",
            status=409,
            code="waiting_for_required_input",
        )


def _body_of(sent: bytes, response_id: str, steering: bytes) -> bytes:
    """The successor as a request of its own, for another server that goes on with it."""
    fields: dict[str, Any] = orjson.loads(sent)
    messages = orjson.loads(steering)["input"]
    if isinstance(messages, str):
        messages = [{"type": "message", "role": "user", "content": messages}]
    return orjson.dumps(fields | {"input": messages, "previous_response_id": response_id})
