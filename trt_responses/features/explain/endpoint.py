"""`GET /v1/responses/{id}/explain`: what a response was made of, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request  # FastAPI reads the annotations
from starlette.responses import Response  # likewise

from trt_responses.dialect import Dialect
from trt_responses.errors import Forbidden, NotFound
from trt_responses.features.explain.explain import Explainer
from trt_responses.features.explain.explanations import Explanations
from trt_responses.features.explain.transcript import written
from trt_responses.features.run_traces.settings import TraceSettings
from trt_responses.web.endpoint import json_reply
from trt_responses.web.framework import ColdRoute, Owner, replies
from trt_responses.web.shared import Shared

Name = Annotated[str | None, Query(pattern="^[a-z0-9_]{1,64}$")]


class Explain:
    """The endpoint; `dialect_of` returns the dialect of a model."""

    def __init__(self, shared: Shared, dialect_of: Callable[[str], Dialect]) -> None:
        self._kept = shared.of(Explanations)
        self._headers = shared.headers
        self._level = TraceSettings.of(shared.settings).explain
        self._card_of = shared.card_of
        self._dialect_of = dialect_of

    def router(self) -> APIRouter:
        router = APIRouter(route_class=ColdRoute)
        router.get(
            "/v1/responses/{response_id}/explain",
            summary="What a response was made of, token by token",
            responses=replies(400, 401, 403, 404),
        )(self.explain)
        return router

    async def explain(
        self, request: Request, response_id: str, owner: Owner, transcript: Name = None
    ) -> Response:
        """With `transcript=name` it is a file for `tests/transcripts/`."""
        if self._level == "off":
            raise Forbidden(
                "Responses are not explained here: TRT_RESPONSES_EXPLAIN is off.",
                code="explain_off",
            )
        if (run := self._kept.get(response_id, owner)) is None:
            raise NotFound(
                f"No explanation for '{response_id:.100}': only recent responses made by this "
                "server process are kept.",
                param="response_id",
                code="explanation_not_kept",
            )
        redacts, dialect = self._level == "redacted", self._dialect_of(run.model)
        explainer = Explainer(dialect, self._card_of, redacts=redacts)
        if transcript is None:
            reply = await asyncio.to_thread(lambda: orjson.dumps(explainer.explanation(run)))
        else:
            made = await asyncio.to_thread(explainer.transcript, run, transcript)
            reply = written(made).encode()
        return json_reply(reply, self._headers(request))
