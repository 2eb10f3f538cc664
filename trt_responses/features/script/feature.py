"""Has each run of a script's server play the script: which rule, and with which tools."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError
from trt_responses.feature import Step
from trt_responses.features.script.cut import CUT
from trt_responses.features.script.rules import Request, Tool
from trt_responses.steering.tools import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.accept.accepted import Accepted
    from trt_responses.features.script.engine import RunEngine, ScriptEngine
    from trt_responses.run.draft import Draft


class Scripted:
    """The feature of a server whose engine plays a script."""

    reads = ("input", "prompt_ids", "previous_response_id", "conversation")

    def __init__(self, engine: ScriptEngine) -> None:
        self._engine = engine
        self._numbers = count(1)

    def accept(self, accepted: Accepted) -> Step | None:
        return ScriptedStep(self._engine, next(self._numbers))


class ScriptedStep(Step):
    """Plays one run."""

    order = 90
    moves = False

    def __init__(self, engine: ScriptEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._run: RunEngine | None = None

    async def planned(self, draft: Draft) -> None:
        accepted = draft.accepted
        request = Request(
            accepted.echo.model,
            self._number,
            tuple(_tools(accepted)),
            not accepted.choice.may_answer,
        )
        self._run = self._engine.of(request)
        rule = self._run.rule_for(self._run.scene(draft.prompt.ids))
        if (refusal := rule.refuse) is not None:
            raise ApiError(
                refusal.message,
                status=refusal.status,
                code=refusal.code,
                type="server_error" if refusal.status >= 500 else "invalid_request_error",
                retry_after_s=refusal.retry_after,
            )
        if rule.cut_after is not None and (cut := CUT.get(None)) is not None:
            cut.after = rule.cut_after

    def write(self, draft: Draft) -> None:
        assert self._run is not None
        draft.engine = self._run


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
