"""The turns of a response: the bounds over all of them, what makes the next one, and notes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass as mutable
from dataclasses import field
from typing import NamedTuple

from trt_responses.dialect import Continuation
from trt_responses.frozen import dataclass
from trt_responses.language.messages import FunctionTool
from trt_responses.language.reader import Reader, Span
from trt_responses.language.steering import SteeringPlan
from trt_responses.log.fold import Output
from trt_responses.run.ending import usage
from trt_responses.wire.response import Usage

UsageOf = Callable[[int, Reader, Output, Sequence[int | None]], Usage]
NextPlan = Callable[[int, int, int, bool], SteeringPlan]
"""Of a later turn: for so many tokens, behind so many that were written and so many that were
thought; whether all calls of the server's tools are spent."""


class Turn(NamedTuple):
    """One more turn of a response."""

    plan: SteeringPlan
    prompt: array[int] | None = None
    """The whole prompt, where it does not go on from the ids before."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds over all turns of a response."""

    context_tokens: int
    max_output_tokens: int | None
    max_calls: int


class Turns(NamedTuple):
    """Makes the plans of a response's later turns."""

    plan_of: NextPlan
    bounds: Bounds

    def plan(self, room: int, reader: Reader, calls: int) -> SteeringPlan:
        """The plan of the next turn, within what is left of the output and of the context, after so
        many calls of the server's tools."""
        written = len(reader.kept) - sum(span.answer_tokens for span in reader.messages)
        most = self.bounds.max_output_tokens
        left = room if most is None else min(room, most - written)
        thought = sum(span.content_tokens for span in reader.messages if is_thought(span))
        spent = calls >= self.bounds.max_calls
        return self.plan_of(left, len(reader.kept), thought, spent)


def is_thought(span: Span) -> bool:
    """Whether a message of the model is a thought."""
    return span.channel == "analysis" and span.recipient is None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call that the server ran, without its text."""

    tool: str
    failed: bool
    duration_ns: int
    answer_bytes: int
    began_ns: int = 0


@mutable(slots=True)
class Notes:
    """The notes of one run."""

    continuation: Continuation | None = None
    """What goes on behind the prompt; None behind ids that the client has rendered."""
    offered: Sequence[FunctionTool] = ()
    """The functions that the model sees."""
    tool_runs: list[ToolRun] = field(default_factory=list)
    usage_of: UsageOf = usage
    """The tokens of a prompt, and of what was written behind it."""
