"""`POST /v1/responses/compact`: a conversation made short, for its client to go on from."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from trt_responses.features.compaction.feature import CompactionStep
from trt_responses.features.compaction.request import CompactRequest, accept_compaction
from trt_responses.run.request import RunRequest
from trt_responses.web.docs import CREATE, body_route
from trt_responses.web.endpoint import json_reply
from trt_responses.web.headers import ignored_header
from trt_responses.web.responses import Making, snapshot
from trt_responses.web.shared import Shared
from trt_responses.web.stream.sse import watched


def routes(shared: Shared) -> list[BaseRoute]:
    """The endpoint of this folder."""
    return [
        body_route(
            shared,
            "/v1/responses/compact",
            Compact(shared).compact,
            CREATE,
            refused=(429, 500),
            name="compact",
            summary="Make a conversation short",
        )
    ]


class Compact(Making):
    """Returns the users' messages, and one item for the rest. Stores nothing."""

    async def compact(self, request: Request, owner: str) -> ASGIApp:
        _, wanted = await self._parsed(request, CompactRequest)
        accepted = accept_compaction(wanted, self._runs.built_in)
        self._names.check(wanted.model)
        state = request.scope["state"]
        run = await self._runs.start(RunRequest(accepted, owner, state["arrival_ns"]))
        state["run"] = run  # for those who count how requests end
        assert run.draft is not None, "until it is made"
        steps = [step for step in run.draft.steps if isinstance(step, CompactionStep)]
        with watched(run.cancel, request.receive):
            last = await self._runs.make(run)
        extra = ignored_header(self._runs.ignored(accepted), request)
        compaction = steps[0].compaction
        if last.status in ("failed", "cancelled") or compaction is None:
            return self._final_reply(run, request, extra, snapshot)
        compacted = {
            "id": last.id,
            "object": "response.compaction",
            "created_at": last.created_at,
            "output": [*compaction.user_messages(), *last.output],
            "usage": last.usage,
        }
        return json_reply(orjson.dumps(compacted), self._headers(request) | extra)
