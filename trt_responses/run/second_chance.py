"""Continues a turn that ended without anything for its client, once in a response.

Such a turn called a tool that the request does not offer, or ended after its thought. Knows the
reader and the renderer; knows no tool, no engine and no HTTP.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.language.fragments import Repaired
from trt_responses.language.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from trt_responses.dialect import Continuation
    from trt_responses.language.messages import FunctionTool
    from trt_responses.language.reader import Reader, Span
    from trt_responses.language.steering import SteeringPlan
    from trt_responses.log.machine import Machine

    NextPlan = Callable[[int, int, int, bool], SteeringPlan]
    """Of a later turn: for so many tokens, behind so many that were written and so many that were
    thought; whether all calls of the server's tools are spent."""

LEAST = 64
"""The fewest tokens of the context that must be left to go on."""


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
        thought = sum(span.content_tokens for span in reader.messages if _is_thought(span))
        spent = calls >= self.bounds.max_calls
        return self.plan_of(left, len(reader.kept), thought, spent)


class SecondChance:
    """Decides whether a response gets one more turn, and makes its prompt and plan."""

    def __init__(
        self,
        offered: Sequence[FunctionTool],
        callees: Collection[str],
        built_in: Collection[str],
        turns: Turns,
        continuation: Continuation | None,
    ) -> None:
        """`offered` are the functions that the model sees, `callees` the recipients of their calls,
        `built_in` the names of the server's tools. Without a `continuation` there is no chance."""
        self.offered = offered
        self._callees = callees
        self._built_in = built_in
        self._turns = turns
        self.continuation = continuation
        self._prompt: array[int] | None = None

    def take_prompt(self) -> array[int] | None:
        """The whole prompt of the next turn, where it does not go on from the ids before."""
        prompt, self._prompt = self._prompt, None
        return prompt

    async def turn(
        self, prompt: Sequence[int], within: int, reader: Reader, machine: Machine, calls: int
    ) -> SteeringPlan | None:
        """The plan of one more turn, or None without room for it. `prompt` is followed by what the
        reader has kept from `within` on; `calls` of the server's tools were run."""
        continuation, span = self.continuation, reader.messages[-1]
        assert continuation is not None, "wanted only with one"
        self.continuation = None
        room = self._turns.bounds.context_tokens - len(prompt) - len(reader.kept) + within
        if span.recipient is None:
            ids = continuation.reopened(reader.kept[within:])
            if ids is None or room < LEAST:
                return None
            self._prompt = array("I", (*prompt, *ids))
            machine.take(Repaired("no_answer"))
            reader.answer(())
            reader.messages[-1] = span  # nothing was answered
        else:
            text, channel = self._no_such_tool(span.recipient), span.channel or "analysis"
            message = Message(
                "tool", text, name=span.recipient, recipient="assistant", channel=channel
            )
            try:
                behind = await continuation.answer(message, reader, at_most=max(1, room - LEAST))
            except InvalidRequest:
                return None
            reader.answer(behind.ids, behind.held)
            self._prompt = behind.prompt
            room -= len(behind.ids)
        return self._turns.plan(room, reader, calls)

    def wanted(self, reader: Reader, machine: Machine) -> bool:
        """Whether the turn that has ended was of no use to its client, and the chance is left."""
        if self.continuation is None or machine.unanswered or not reader.messages:
            return False
        if any(span.recipient in self._callees or _is_answer(span) for span in reader.messages):
            return False
        last = reader.messages[-1]
        if last.recipient is None:
            return _is_thought(last)
        return machine.is_unknown(last.recipient, last.channel)

    def _no_such_tool(self, recipient: str) -> str:
        functions = sorted(name for name in self._callees if "." in name)
        offered = ", ".join((*sorted(self._built_in), *functions))
        remedy = f"The tools are: {offered}." if offered else "There are no tools: answer the user."
        return f"There is no tool named '{recipient:.64}'. {remedy}"


def _is_answer(span: Span) -> bool:
    return span.recipient is None and span.channel not in ("analysis", "commentary")


def _is_thought(span: Span) -> bool:
    return span.channel == "analysis" and span.recipient is None
