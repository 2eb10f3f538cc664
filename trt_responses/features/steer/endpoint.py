"""`POST /v1/responses/{id}/steer`: a running response is ended, and goes on with the user's message
in a successor, which is the reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.errors import InvalidRequest
from trt_responses.features.steer.messages import (
    NOT_SUPPORTED,
    STEERED,
    Steering,
    check_goes_on,
    check_steerable,
    not_active,
    steerable,
    successor,
)
from trt_responses.features.stored.endpoint import there
from trt_responses.frozen import replace
from trt_responses.run.run import Run
from trt_responses.store import Job, Record
from trt_responses.web.docs import REFUSED, STREAMED
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.framework import HotRoute, hot_route, replies
from trt_responses.web.headers import dialect_of
from trt_responses.web.jobs import installed, maker
from trt_responses.web.responses import Call, Responses, snapshot
from trt_responses.web.shared import Shared
from trt_responses.wire.items import InputMessage
from trt_responses.wire.parse import parse
from trt_responses.wire.past_calls import KINDS, Amending

OF_STREAMS = "stream_options."
Ended = tuple[Accepted, bytes]
"""The request of a response that was ended, and the same as it came, where that is known."""


class SteerRequest(Steering):
    """What steers a response over HTTP."""

    stream: bool | None = None


async def _with_body(response_id: str, body: SteerRequest) -> None: ...


def routes(shared: Shared) -> list[HotRoute]:
    """The endpoint of this folder."""
    route = hot_route(
        "/v1/responses/{response_id}/steer",
        _with_body,
        Endpoint(Steer(shared).steer, shared),
        methods=["POST"],
        name="steer",
        summary="Steer a running response with a message",
        response_description="The response that goes on, or with `stream: true` its events.",
        responses=replies(*REFUSED, 409, 429, 500),
        openapi_extra=STREAMED,
    )
    return [route]


class Steer(Responses):
    """Ends a response and makes its successor."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._parts, self._store = shared.parts, shared.parts.store

    async def steer(self, request: Request, owner: str) -> ASGIApp:
        body, wanted = await self._parsed(request, SteerRequest)
        response_id, stream = request.path_params["response_id"], bool(wanted.stream)
        messages, extra = wanted.messages, {}
        if (run := self._here(response_id, owner)) is None:
            await self._check_runs(response_id, owner)
            ending = partial(self._end_elsewhere, response_id, owner)
        else:
            accepted = steerable(run)
            if not accepted.store:
                raise InvalidRequest(
                    "A response with 'store: false' is steered over its WebSocket only.",
                    code=NOT_SUPPORTED,
                )
            ending, extra = partial(self._end, run, accepted), self._extra(accepted)
        call = Call(request, owner, body, response_id.encode(), stream, extra)
        start = partial(self._go_on, call, response_id, messages, run, ending)
        return await self._reply(call, start, snapshot, self._background_reply)

    def _here(self, response_id: str, owner: str) -> Run | None:
        """The run, if this server makes it."""
        leased = self._runs.leased()
        return next((x for x, _ in leased if x.id == response_id and x.owner == owner), None)

    async def _check_runs(self, response_id: str, owner: str) -> None:
        """Raise an `InvalidRequest` for a response that no other server makes."""
        found = there(response_id, await self._store.get(response_id, owner))
        if isinstance(found, Record):
            raise InvalidRequest(
                f"Response '{found.id}' has ended: continue it by 'previous_response_id'.",
                status=409,
                code="response_already_completed",
            )
        if orjson.loads(found.body).get("conversation") is not None:
            raise InvalidRequest(
                "A response in a conversation cannot be steered.", code=NOT_SUPPORTED
            )

    async def _end(self, run: Run, accepted: Accepted) -> Ended:
        draft = run.draft
        if draft is None or not run.end_as(STEERED):
            raise not_active(run.id)
        await run.ended()
        return accepted, draft.request.body

    async def _end_elsewhere(self, response_id: str, owner: str) -> Ended:
        sent = await installed(self._jobs).steer(response_id, owner)
        if not sent:
            raise not_active(response_id)
        accepted = accept(parse(sent), built_in=self._runs.built_in)
        check_steerable(accepted)
        return accepted, sent

    async def _go_on(
        self,
        call: Call,
        response_id: str,
        messages: Sequence[InputMessage],
        run: Run | None,
        ending: Callable[[], Awaitable[Ended]],
    ) -> Run:
        await check_goes_on(messages, run, self._runs, self._parts, call.owner)
        before, sent = await ending()
        found = there(response_id, await self._store.get(response_id, call.owner))
        _check_goes_on(response_id, found)
        accepted = successor(before, response_id, messages)
        if not call.stream:  # then it is no stream to be resumed, whatever the first one was
            left = {k: v for k, v in accepted.ignored.items() if not k.startswith(OF_STREAMS)}
            accepted = replace(accepted, ignored=left)
        dialect, keep = dialect_of(call.request), None
        if (jobs := maker(self._jobs, accepted, stream=call.stream)) is not None:
            sent = sent and _body_of(sent, response_id, call.body)
            keep = partial(jobs.start, request=sent)
        return await self._start(accepted, call.request, call.owner, dialect, keep)


def _check_goes_on(response_id: str, found: Record | Job) -> None:
    """Raise an `InvalidRequest` where nothing can go on from what has been ended."""
    if not (isinstance(found, Record) and found.continuable):
        raise not_active(response_id)
    own = found.blocks[found.prior_count + found.input_count :]
    if calls := ", ".join(block.call_id for block in own if block.call_id):
        raise InvalidRequest(
            f"Response '{response_id}' waits for the outputs of {calls}: send them and the message "
            "to 'POST /v1/responses'.",
            status=409,
            code="waiting_for_required_input",
        )


def _body_of(sent: bytes, response_id: str, steering: bytes) -> bytes:
    """The successor as a request of its own, for another server that goes on with it."""
    fields: dict[str, Any] = orjson.loads(sent)
    messages = orjson.loads(steering)["input"]
    if isinstance(messages, str):
        messages = [{"type": "message", "role": "user", "content": messages}]
    before = fields.get("input")
    kept = [item for item in before if _amends(item)] if isinstance(before, list) else []
    return orjson.dumps(fields | {"input": [*kept, *messages], "previous_response_id": response_id})


def _amends(item: Any) -> bool:
    """Whether an item brings tools or settings, which the successor keeps."""
    return issubclass(KINDS.get(item.get("type"), object), Amending)
