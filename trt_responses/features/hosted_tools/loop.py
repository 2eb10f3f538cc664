"""Runs the tools that a response calls, and lets the model go on with their answers.

A turn that ends with a call to an offered tool is followed by the tool's answer, as a message with
the author, the recipient and the channel of the call, and by another turn in the same log. Knows
the seam of tools, the reader and the renderer; knows no HTTP, no store and no concrete tool.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from trt_responses.dialect import Answered
from trt_responses.errors import InvalidRequest
from trt_responses.features.hosted_tools.hosted_calls import ROWS, Outcome, Runner
from trt_responses.features.hosted_tools.kinds import KINDS, tell_listing
from trt_responses.features.hosted_tools.used import UsedTool
from trt_responses.features.turn_usage.usage import usage_by_turn
from trt_responses.language.messages import Message
from trt_responses.language.reader import Reader, Span
from trt_responses.language.steering import Free
from trt_responses.log.fold import Output
from trt_responses.run.generation import Generation
from trt_responses.run.turns import ToolRun, Turn, Turns
from trt_responses.tool import ToolAnswer, ToolCall
from trt_responses.tools.session import Listing
from trt_responses.wire.output import HostedStatus
from trt_responses.wire.response import Usage

logger = logging.getLogger(__name__)

RESERVE = 256
"""Tokens of the context that a tool's answer leaves for the model to go on, or half of what is
left, if that is less."""
MAX_ANSWER_BYTES = 1024 * 1024
"""The most bytes of any tool's answer, before its tokens are counted."""
CALLS = KINDS["mcp"].kind.channel
"""The types of items that are calls waiting for an approval."""
GRACE_S = 5.0
"""Seconds after its deadline in which a tool may still answer by itself."""
INTERRUPTED = ToolAnswer("The user interrupted this call with a new message.", failed=True)
"""What the model reads of a call that was steered away from: it stays in the conversation."""
CUT = "\n[… {} characters are left out here: print less, or a part at a time. …]\n"


class Approved(NamedTuple):
    """A call that is run before anything is generated."""

    request_id: str
    label: str
    name: str
    arguments: str
    place: str
    """The place of the approval in the request, for faults."""

    def tool(self, tools: Mapping[str, UsedTool]) -> UsedTool | None:
        """The tool that is called, found by its server's name for it: the model's may be
        another."""
        facts = {"server_label": self.label, "name": self.name}
        return next(
            (used for used in tools.values() if facts.items() <= used.runner.facts.items()), None
        )


class ToolLoop:
    """The tools of one response. `turn` is called when the model has ended one."""

    def __init__(
        self,
        tools: Mapping[str, UsedTool],
        turns: Turns,
        clock_ns: Callable[[], int],
        listings: Sequence[Listing] = (),
        approved: Sequence[Approved] = (),
    ) -> None:
        """`listings` are sent first, and the `approved` calls are run before anything is generated.
        `tools` by the recipients of their calls."""
        self._tools = tools
        self._turns = turns
        self._anew: array[int] | None = None
        self._context_tokens = turns.bounds.context_tokens
        self._clock_ns = clock_ns
        self._listings = listings
        self._approved = approved
        self.begun = 0
        """The number of approved calls that were run, or may have been."""
        self._tool_ms: list[int] = []
        """Milliseconds that each answer took, in their order."""
        self._answered_first = 0
        """The number of calls whose answers stand before the first turn."""

    @property
    def recipients(self) -> Collection[str]:
        """The recipients of calls that are run here: such a call ends a turn."""
        return self._tools.keys()

    async def turn(self, generation: Generation) -> Turn | None:
        """Answer the call that ended the last turn. The next turn, or None when there is nothing to
        answer."""
        reader, machine = generation.reader, generation.machine
        span = reader.messages[-1] if reader.messages else None
        if span is None or not (reader.ended and machine.unanswered):
            return None
        if span.recipient is None or span.recipient not in self._tools:
            return None  # another loop's
        began_ns, used = self._clock_ns(), self._tools[span.recipient]
        call = ToolCall(machine.call_text, span.content_type, used.name)
        answer = await self._run(used, call, generation)
        room = self._context_tokens - generation.context_used
        message = await self._message(answer, span.recipient, span.channel, generation, room)
        if message is None:
            machine.answer(Outcome("incomplete", answer.text, answer.details))
            return Turn(Free(0))
        text, behind = message
        room = self._go_on(behind, reader, room)
        self._tell(answer, text, generation, began_ns)
        return self._next(room, generation)

    async def first(self, generation: Generation) -> Turn | None:
        """Tell of what the tools' servers offer, and run the calls of an earlier response that the
        client has approved. The turn behind their answers; None when there are none."""
        generation.notes.usage_of = self._usage
        for listing in self._listings:
            tell_listing(generation.machine, *listing)
        generation.log.wake()
        reader, machine = generation.reader, generation.machine
        room = self._context_tokens - generation.prompt_tokens
        for one in self._approved:
            began_ns, used = self._clock_ns(), one.tool(self._tools)
            assert used is not None, "looked for when the request was accepted"
            facts = {**used.runner.facts, "approval_request_id": one.request_id}
            machine.call(Runner("mcp", facts).call, one.arguments)
            call = ToolCall(one.arguments, "json", used.name)
            self.begun += 1
            answer = await self._run(used, call, generation)
            message = await self._message(answer, used.name, CALLS, generation, room)
            if message is None:
                machine.answer(Outcome("incomplete", answer.text, answer.details))
                return Turn(Free(0))
            at, (text, behind) = len(reader.kept), message
            reader.messages.append(Span(at, at, at, CALLS, used.name, None, False, None))
            room = self._go_on(behind, reader, room)
            self._answered_first += 1
            self._tell(answer, text, generation, began_ns)
        return self._next(room, generation) if self._approved else None

    def _usage(
        self, read: int, reader: Reader, output: Output, cached: Sequence[int | None]
    ) -> Usage:
        # The first turn that is generated reads the prompt too.
        hits = list(cached)
        hits = hits[:1] * self._answered_first + hits
        return usage_by_turn(read, reader, output, hits, self._tool_ms)

    def _go_on(self, behind: Answered, reader: Reader, room: int) -> int:
        """Have the reader go on behind an answer. The room that is left then."""
        reader.answer(behind.ids, behind.stored)
        if behind.prompt is None:
            if self._anew is not None:
                self._anew += behind.ids
            return room - len(behind.ids)
        logger.info("rendering the prompt again: it does not extend the previous one")
        self._anew = behind.prompt
        return self._context_tokens - len(behind.prompt)

    def _tell(self, answer: ToolAnswer, text: str, generation: Generation, began_ns: int) -> None:
        self._tool_ms.append((self._clock_ns() - began_ns) // 1_000_000)
        status: HostedStatus = "failed" if answer.failed else "completed"
        generation.machine.answer(Outcome(status, text, answer.details))

    async def _run(self, used: UsedTool, call: ToolCall, generation: Generation) -> ToolAnswer:
        began_ns = self._clock_ns()
        try:
            if generation.verdict is not None:  # an earlier one of several calls was interrupted
                raise asyncio.CancelledError
            deadline_s = used.tool.deadline_s + GRACE_S
            async with asyncio.timeout(deadline_s) as limit:
                waits = partial(_paused, limit, deadline_s)
                answer = await used.session.call(call._replace(waits=waits))
        except asyncio.CancelledError:
            if (verdict := generation.verdict) is None or verdict.reason != "steered":
                raise
            answer = INTERRUPTED
        except TimeoutError:
            answer = ToolAnswer("The tool gave no answer in time, and was ended.", failed=True)
        except Exception as fault:  # the model reads that a tool failed; the log says why
            logger.exception("failed to run tool %s", used.tool.name)
            answer = ToolAnswer(f"The tool failed ({type(fault).__name__}).", failed=True)
        duration_ns = self._clock_ns() - began_ns
        size = len(answer.text.encode("utf-8", "replace"))
        ran = ToolRun(used.tool.name, answer.failed, duration_ns, size, began_ns)
        generation.notes.tool_runs.append(ran)
        return answer

    async def _message(
        self,
        answer: ToolAnswer,
        recipient: str,
        channel: str | None,
        generation: Generation,
        room: int,
    ) -> tuple[str, Answered] | None:
        """The answer as a message that leaves room for the model to go on; None without room."""
        most = max(1, room - min(RESERVE, room // 2))
        text = shortened(answer.text, min(MAX_ANSWER_BYTES, most * 8))
        channel = channel or ROWS[self._tools[recipient].runner.kind].kind.channel
        continuation, reader = generation.notes.continuation, generation.reader
        assert continuation is not None, "who offers tools sends no ids"
        while True:
            message = Message("tool", text, name=recipient, recipient="assistant", channel=channel)
            try:
                behind = await continuation.answer(message, reader, at_most=most)
            except InvalidRequest:
                if len(text) <= len(CUT):
                    return None
                text = shortened(answer.text, len(text) // 2)
            else:
                return text, behind

    def _next(self, room: int, generation: Generation) -> Turn:
        calls = len(generation.notes.tool_runs)
        prompt, self._anew = self._anew, None
        return Turn(self._turns.plan(room, generation.reader, calls), prompt)


@contextmanager
def _paused(limit: asyncio.Timeout, deadline_s: float) -> Iterator[None]:
    limit.reschedule(None)
    yield
    limit.reschedule(asyncio.get_running_loop().time() + deadline_s)


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text, with a note of what is left out between them."""
    if len(text) <= most:
        return text
    half = max(0, most - len(CUT)) // 2
    cut = CUT.format(len(text) - 2 * half)
    return text[:half] + cut + text[len(text) - half :]
