"""Continues a turn that ended without anything for its client, once in a response.

Such a turn called a tool that the request does not offer, or ended after its thought. Knows the
reader and the renderer; knows no tool, no engine and no HTTP.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection

from trt_responses.errors import InvalidRequest
from trt_responses.language.fragments import Repaired
from trt_responses.language.messages import Message
from trt_responses.language.reader import Span
from trt_responses.run.generation import Generation
from trt_responses.run.turns import Turn, Turns, is_thought
from trt_responses.setup.server import Server

LEAST = 64
"""The fewest tokens of the context that must be left to go on."""


def install(server: Server) -> None:
    server.second_chance = SecondChance


class SecondChance:
    """Decides whether a response gets one more turn, and makes it."""

    def __init__(self, callees: Collection[str], built_in: Collection[str], turns: Turns) -> None:
        """`callees` are the recipients of calls of functions, `built_in` the names of the server's
        tools."""
        self._callees = callees
        self._built_in = built_in
        self._turns = turns
        self._left = True

    async def turn(self, generation: Generation) -> Turn | None:
        """One more turn, or None without room for it."""
        notes, reader, machine = generation.notes, generation.reader, generation.machine
        continuation, self._left = notes.continuation, False
        assert continuation is not None, "wanted only with one"
        calls, span = len(notes.tool_runs), reader.messages[-1]
        room = self._turns.bounds.context_tokens - generation.context_used
        if span.recipient is None:
            ids = continuation.reopened(generation.written)
            if ids is None or room < LEAST:
                return None
            prompt = array("I", (*generation.base, *ids))
            machine.take(Repaired("no_answer"))
            reader.answer(())
            reader.messages[-1] = span  # nothing was answered
            return Turn(self._turns.plan(room, reader, calls), prompt)
        text, channel = self._no_such_tool(span.recipient), span.channel or "analysis"
        message = Message("tool", text, name=span.recipient, recipient="assistant", channel=channel)
        try:
            behind = await continuation.answer(message, reader, at_most=max(1, room - LEAST))
        except InvalidRequest:
            return None
        reader.answer(behind.ids, behind.stored)
        return Turn(self._turns.plan(room - len(behind.ids), reader, calls), behind.prompt)

    def wanted(self, generation: Generation) -> bool:
        """Whether the turn that has ended was of no use to its client, and the chance is left."""
        if not self._left or generation.notes.continuation is None:
            return False
        reader, machine = generation.reader, generation.machine
        for fragment in reader.finish(stopped=True):
            machine.take(fragment)
        if machine.unanswered or not reader.messages:
            return False
        if any(span.recipient in self._callees or _is_answer(span) for span in reader.messages):
            return False
        last = reader.messages[-1]
        if last.recipient is None:
            return is_thought(last)
        return machine.is_unknown(last.recipient, last.channel)

    def _no_such_tool(self, recipient: str) -> str:
        functions = sorted(name for name in self._callees if "." in name)
        offered = ", ".join((*sorted(self._built_in), *functions))
        remedy = f"The tools are: {offered}." if offered else "There are no tools: answer the user."
        return f"There is no tool named '{recipient:.64}'. {remedy}"


def _is_answer(span: Span) -> bool:
    return span.recipient is None and span.channel not in ("analysis", "commentary")
