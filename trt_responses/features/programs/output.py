"""The output items of programs and of their calls.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from trt_responses.features.programs.items import written
from trt_responses.features.tool_items.output import OutputCustomCall
from trt_responses.frozen import dataclass
from trt_responses.wire.output import (
    HostedStatus,
    OutputBeside,
    OutputFunctionCall,
    OutputHostedCall,
)


@dataclass(frozen=True)
class OutputProgram(OutputHostedCall):
    """A program. The API gives it no status; it has one here, which is not written down."""

    id: str
    call_id: str
    code: str
    fingerprint: str
    _status: HostedStatus = "in_progress"
    type: Literal["program"] = "program"
    is_code = False
    channel = "commentary"

    @property
    def status(self) -> HostedStatus:  # type: ignore[override]
        return self._status

    def text(self) -> str:
        return written(self.code)


ResultStatus = Literal["completed", "incomplete"]


@dataclass(frozen=True)
class OutputProgramResult(OutputBeside):
    """What a program has printed, beside the program."""

    id: str
    call_id: str
    result: str = ""
    status: ResultStatus = "incomplete"
    type: Literal["program_output"] = "program_output"


@dataclass(frozen=True)
class OutputLaterResult(OutputHostedCall):
    """The same of a program that an earlier response has written."""

    id: str
    call_id: str
    result: str = ""
    status: ResultStatus = "incomplete"
    type: Literal["program_output"] = "program_output"
    is_code = False
    channel = "commentary"

    def text(self) -> str:
        return ""


@dataclass(frozen=True)
class Caller:
    """The program that makes a call."""

    caller_id: str
    type: Literal["program"] = "program"


@dataclass(frozen=True)
class ProgramsCall(OutputFunctionCall, OutputBeside):
    """A program's call of a function of the client."""

    caller: Caller = field(default_factory=lambda: Caller(""))


@dataclass(frozen=True)
class ProgramsNamespacedCall(ProgramsCall):
    """The same of a function that stands in a namespace."""

    namespace: str = ""


@dataclass(frozen=True)
class ProgramsCustomCall(OutputCustomCall, OutputBeside):
    """A program's call of a custom tool of the client."""

    caller: Caller = field(default_factory=lambda: Caller(""))


@dataclass(frozen=True)
class ProgramsNamespacedCustomCall(ProgramsCustomCall):
    """The same of a custom tool that stands in a namespace."""

    namespace: str = ""
