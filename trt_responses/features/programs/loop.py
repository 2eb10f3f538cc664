"""Runs the programs of a response: until the next calls of the client's tools, or to the end.

A program that waits ends its response. The next one runs it again from its start, with the outputs
of the calls that it has made: nothing of it is kept but its items.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trt_responses.features.hosted_tools.hosted_calls import Outcome, Runner
from trt_responses.features.hosted_tools.loop import ToolLoop
from trt_responses.features.hosted_tools.used import UsedTool
from trt_responses.features.programs.box import Programs
from trt_responses.features.programs.calls import LATER_RESULT, ProgramsToolCall
from trt_responses.features.programs.history import Waiting
from trt_responses.features.programs.items import NAME, written
from trt_responses.features.programs.output import Caller
from trt_responses.language.messages import FUNCTIONS
from trt_responses.language.reader import Span
from trt_responses.language.steering import Free
from trt_responses.log.item_events import Callee
from trt_responses.run.draft import Draft
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation
from trt_responses.run.turns import Turn
from trt_responses.tool import ToolAnswer, ToolCall

RECIPIENT, CHANNEL = FUNCTIONS + NAME, "commentary"


class ProgramLoop(ToolLoop):
    """The programs of one response."""

    def __init__(
        self,
        tools: Mapping[str, UsedTool],
        draft: Draft,
        programs: Programs,
        called: Mapping[str, Callee],
        waiting: Waiting | None,
    ) -> None:
        """`called` are the tools that programs may call; `waiting` is an earlier response's program
        whose calls have their outputs now."""
        super().__init__(tools, draft.turns, draft.parts.clock_ns)
        self.tools = tools
        self._programs = programs
        self._called = called
        self._waiting = waiting

    async def resume(self, generation: Generation) -> Turn | End | None:
        """Go on with the program that waits. An `End` where it waits again."""
        await self.first(generation)
        if (waiting := self._waiting) is None:
            return None
        began_ns = self._clock_ns()
        self._programs.recorded = waiting.calls
        self._programs.began_ms = int(waiting.fingerprint.partition(".")[0])
        call = ToolCall(written(waiting.code), "json", NAME)
        answer = await self._run(self.tools[RECIPIENT], call, generation)
        if self._call(answer, waiting.call_id, generation):
            return End("completed")
        reader, machine = generation.reader, generation.machine
        machine.call(Runner(LATER_RESULT, {"call_id": waiting.call_id}).call, "")
        at = len(reader.kept)
        reader.messages.append(Span(at, at, at, CHANNEL, RECIPIENT, None, False, None))
        self._answered_first += 1
        return await self._go_on_with(answer, generation, began_ns)

    async def turn(self, generation: Generation) -> Turn | None:
        """Run the program that ended the last turn."""
        reader, machine = generation.reader, generation.machine
        span = reader.messages[-1] if reader.messages else None
        if span is None or not (reader.ended and machine.unanswered):
            return None
        if (used := self.tools.get(span.recipient or "")) is None:
            return None  # another loop's
        began_ns = self._clock_ns()
        call = ToolCall(machine.call_text, span.content_type, NAME)
        answer = await self._run(used, call, generation)
        if answer.details.get("calls"):
            machine.answer(Outcome("completed"))
            program = generation.log.settled()[-1]
            self._call(answer, getattr(program, "call_id", ""), generation)
            return None
        return await self._go_on_with(answer, generation, began_ns)

    def _call(self, answer: ToolAnswer, call_id: str, generation: Generation) -> bool:
        """Tell the calls that a program waits for. Returns whether there are some."""
        calls = answer.details.get("calls", ())
        for call in calls:
            shape = partial(
                ProgramsToolCall, callee=self._called[call["name"]], caller=Caller(call_id)
            )
            generation.machine.call(shape, call["text"])
        generation.log.wake()
        return bool(calls)

    async def _go_on_with(self, answer: ToolAnswer, generation: Generation, began_ns: int) -> Turn:
        """The turn behind a result."""
        room = self._context_tokens - generation.context_used
        message = await self._message(answer, RECIPIENT, CHANNEL, generation, room)
        if message is None:
            generation.machine.answer(Outcome("incomplete", answer.text))
            return Turn(Free(0))
        text, behind = message
        room = self._go_on(behind, generation.reader, room)
        self._tell(answer, text, generation, began_ns)
        return self._next(room, generation)
