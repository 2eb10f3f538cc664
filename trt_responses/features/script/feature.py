"""Has each run of a script's server play the script: which rule, and with which tools."""

from __future__ import annotations

from collections.abc import Iterator

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import StoreUnavailable
from trt_responses.feature import Step
from trt_responses.features.script.cut import CUT, Cut
from trt_responses.features.script.engine import RunEngine, ScriptEngine
from trt_responses.features.script.faults import refused
from trt_responses.features.script.rules import Request, Rule, Tool
from trt_responses.run.commit import Write
from trt_responses.run.draft import Draft
from trt_responses.steering.tools import shown
from trt_responses.wire.response import Response


class Scripted:
    """The feature of a server whose engine plays a script."""

    reads = ("input", "prompt_ids", "previous_response_id", "conversation")

    def __init__(self, engine: ScriptEngine) -> None:
        self._engine = engine

    def accept(self, accepted: Accepted) -> Step | None:
        return ScriptedStep(self._engine, next(self._engine.script.numbers))


class ScriptedStep(Step):
    """Plays one run."""

    order = 90
    moves = False

    def __init__(self, engine: ScriptEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._run: RunEngine | None = None
        self._rule: Rule | None = None

    async def planned(self, draft: Draft) -> None:
        accepted = draft.accepted
        request = Request(
            accepted.echo.model,
            self._number,
            tuple(_tools(accepted)),
            not accepted.choice.may_answer,
            accepted.answer.schema if accepted.answer else None,
        )
        self._run = self._engine.of(request)
        cut, scene = CUT.get(None) or Cut(), self._run.scene(draft.prompt.ids)
        header = cut.header if self._engine.script.by_header else ""
        rule = self._rule = self._run.rule_for(scene, header)
        if rule.refuse is not None:
            raise refused(rule.refuse)
        cut.after = rule.cut_after

    def write(self, draft: Draft) -> None:
        assert self._run is not None
        draft.engine = self._run

    async def commit(self, write: Write, draft: Draft, last: Response) -> None:
        if write.stored and self._rule is not None and self._rule.lose_store:
            raise StoreUnavailable("The store is lost, for a test.")


def _tools(accepted: Accepted) -> Iterator[Tool]:
    allowed = accepted.choice.names
    described = {tool.name: tool for tool in shown(accepted.tools)}
    for tool in accepted.tools:
        if tool.name in allowed or accepted.choice.may_answer:
            parameters = None if tool.callee.custom else dict(tool.parameters or {})
            about = described.get(tool.name)
            description = about.description if about else tool.description
            yield Tool(tool.name, tool.recipient, description, parameters)
    for built_in in accepted.built_in:
        for recipient in built_in.recipients:
            yield Tool(recipient, recipient, built_in.kind.replace("_", " "), None)
