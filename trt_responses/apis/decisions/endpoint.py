"""`POST /v1/decisions` and `POST /v1/systemone`: questions about one input, with probabilities."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.requests import Request as HttpRequest
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from trt_responses.accept.responses import accept
from trt_responses.apis.decisions import request as d
from trt_responses.apis.decisions.questions import Calibration, Likelihood, Question
from trt_responses.apis.decisions.reading import DecisionStep
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.web.docs import body_route
from trt_responses.web.endpoint import json_reply
from trt_responses.web.headers import ignored_header
from trt_responses.web.responses import Making, snapshot
from trt_responses.web.shared import Shared
from trt_responses.web.stream.sse import watched
from trt_responses.wire.judge import judge_fields
from trt_responses.wire.request import ReasoningOptions, Request

Json = dict[str, Any]
Answered = Callable[[Run, Sequence[Likelihood]], Json]


def routes(shared: Shared, calibration: Calibration) -> list[BaseRoute]:
    """The endpoints of this folder."""
    decisions = Decisions(shared, calibration)
    return [
        body_route(
            shared,
            "/v1/decisions",
            decisions.create,
            ("CreateDecision", d.DecisionRequest),
            refused=(429, 500),
            name="decide",
            summary="Answer questions about an input with probabilities",
        ),
        body_route(
            shared,
            "/v1/systemone",
            decisions.system_one,
            ("CreateStructuredDecision", d.SystemOneRequest),
            refused=(429, 500),
            name="system_one",
            summary="The same, in vLLM's words",
        ),
    ]


class Decisions(Making):
    """Answers questions, and stores nothing."""

    def __init__(self, shared: Shared, calibration: Calibration) -> None:
        super().__init__(shared)
        self._calibration = calibration

    async def create(self, request: HttpRequest, owner: str) -> ASGIApp:
        _, wanted = await self._parsed(request, d.DecisionRequest)
        ignored = [*judge_fields(wanted, d.COLUMN)]
        posed = Request(
            model=wanted.model or self._names.served,
            input=wanted.input,
            previous_response_id=wanted.previous_response_id,
            store=False,
            reasoning=ReasoningOptions(effort="none"),
        )

        def answered(run: Run, found: Sequence[Likelihood]) -> Json:
            last, pairs = run.log.response, zip(wanted.questions, found, strict=True)
            usage = orjson.loads(orjson.dumps(last.usage))
            usage["input_tokens_details"]["cache_write_tokens"] = 0
            answers = [answer_of(question, one) for question, one in pairs]
            return {"model": last.model, "answers": answers, "usage": usage}

        step = DecisionStep(d.questions_of(wanted), self._calibration, wanted.conversation)
        return await self._answer(request, owner, posed, step, answered, ignored)

    async def system_one(self, request: HttpRequest, owner: str) -> ASGIApp:
        _, wanted = await self._parsed(request, d.SystemOneRequest)
        ignored = [*judge_fields(wanted, d.SYSTEM_ONE_COLUMN)]
        state = wanted.state
        posed = Request(
            model=wanted.model or self._names.served,
            input=state if isinstance(state, str) else orjson.dumps(state).decode(),
            instructions=wanted.instructions,
            store=False,
            reasoning=ReasoningOptions(effort="none"),
        )
        questions = d.named_questions(wanted)

        def answered(run: Run, found: Sequence[Likelihood]) -> Json:
            last = run.log.response
            assert last.usage is not None
            used = {"input_tokens": last.usage.input_tokens}
            used["output_tokens"] = last.usage.output_tokens
            pairs = list(zip(wanted.questions, questions, found, strict=True))
            return {
                "id": last.id.replace("resp_", "decision-"),
                "object": "structured_decision",
                "created": int(time.time()),
                "model": last.model,
                "answers": {name: named_answer(question, one) for name, question, one in pairs},
                "usage": used,
                "diagnostics": {name: {"label_mass": one.mass} for name, _, one in pairs},
            }

        step = DecisionStep(questions, self._calibration, None)
        return await self._answer(request, owner, posed, step, answered, ignored)

    async def _answer(
        self,
        request: HttpRequest,
        owner: str,
        posed: Request,
        step: DecisionStep,
        answered: Answered,
        ignored: Sequence[str],
    ) -> ASGIApp:
        self._names.check(posed.model)
        state = request.scope["state"]
        run = await self._runs.start(
            RunRequest(accept(posed), owner, state["arrival_ns"], steps=(step,))
        )
        state["run"] = run  # for those who count how requests end
        with watched(run.cancel, request.receive):
            last = await self._runs.make(run)
        extra = ignored_header(ignored, request) | run.headers
        if last.status != "completed":
            return self._final_reply(run, request, extra, snapshot)
        body = orjson.dumps(answered(run, step.answers))
        return json_reply(body, self._headers(request) | extra)


def answer_of(question: d.Predicate | d.Choice | d.Score, found: Likelihood) -> Json:
    """The answer to one question, as OpenAI spells it."""
    answer: Json = {"type": question.type, "name": question.name}
    shares = found.options
    match question:
        case d.Predicate():
            return answer | {"probability": shares[0]}
        case d.Choice():
            values = [choice.value for choice in question.choices]
            pairs = zip(values, shares, strict=True)
            each = [{"value": value, "probability": share} for value, share in pairs]
            answer |= {"choice": values[found.best], "probabilities": each}
        case d.Score():
            levels = enumerate(zip(question.levels, shares, strict=True))
            each = [
                {"value": value, "label": level.label, "probability": share}
                for value, (level, share) in levels
            ]
            answer |= {"score": found.score, "probabilities": each}
    return answer | {"confidence": found.confidence}


def named_answer(question: Question, found: Likelihood) -> Json:
    """The answer to one question, as vLLM spells it."""
    names, shares = [option.name for option in question.options], found.options
    common: Json = {"confidence": found.confidence}
    if question.kind == "score":
        legend = {str(n): name for n, name in enumerate(names)}
        by_level = {str(n): share for n, share in enumerate(shares)}
        common |= {"score": found.score, "legend": legend, "probabilities": by_level}
        return {"type": "score"} | common
    common["probabilities"] = dict(zip(names, shares, strict=True))
    if question.kind == "predicate":
        return {"type": "noul", "noul": shares[0]} | common
    return {"type": "choice", "choice": names[found.best]} | common
