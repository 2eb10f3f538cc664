"""The tool with which a model writes programs, and its items as a client sends them back."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from trt_responses.wire.base import NonEmpty
from trt_responses.wire.choice import FolderChoice
from trt_responses.wire.past_calls import CallText, PastCall
from trt_responses.wire.tools import FolderTool

NAME: Final = "programmatic_tool_calling"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program, in Python."}},
    "required": ["code"],
    "additionalProperties": False,
}


class ProgramTool(FolderTool):
    """A tool that runs the model's programs where its Python runs, and is offered with that."""

    type: Literal["programmatic_tool_calling"]
    of_kind = "code_interpreter"

    @property
    def hosted(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return NAME


class ProgramChoice(FolderChoice):
    """A program must be written."""

    type: Literal["programmatic_tool_calling"]


class Program(PastCall):
    """A program that the model wrote."""

    prefix = "prog"
    type: Literal["program"]
    call_id: NonEmpty
    code: str
    fingerprint: str

    def text(self) -> CallText:
        return CallText(NAME, written(self.code), None, self.call_id)

    @staticmethod
    def digested(item: Any) -> tuple[str, ...]:
        return ("program", item.call_id, item.code)


class ProgramOutput(PastCall):
    """What a program has printed."""

    prefix = "progo"
    type: Literal["program_output"]
    call_id: NonEmpty
    result: str
    status: str | None = None

    def text(self) -> CallText:
        return CallText(None, None, self.result, self.call_id)


ITEMS: dict[str, type[PastCall]] = {"program": Program, "program_output": ProgramOutput}


def written(code: str) -> str:
    """A program as the model writes it."""
    return json.dumps({"code": code}, ensure_ascii=False)
