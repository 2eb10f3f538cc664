"""An answer before which its conversation is made short, in the same log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trt_responses.features.turn_usage.usage import InputTokensByTurn, OutputTokensByTurn
from trt_responses.log.fold import Output
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation
from trt_responses.wire.response import Usage


class CompactedFirst(Generation):
    """Has a summary made before its first turn. Verdicts and pauses reach that too."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._aside: Generation | None = None
        self._used_first: Usage | None = None

    async def make_first(self, other: Generation) -> End:
        """Make something in the same log before the first turn."""
        self.requested_ns, self._aside = self._clock_ns(), other
        try:
            return await other.end()
        finally:
            self._used_first = other.usage(())
            self.abort()
            self._aside = None

    def begin_from(self, prompt_ids: Sequence[int]) -> None:
        """Have the answer go on from another prompt than the one that was planned."""
        self.prompt_ids = self.base = prompt_ids
        self.prompt_tokens = len(prompt_ids)

    def decide(self, end: End) -> bool:
        if not super().decide(end):
            return False
        if self._aside is not None:
            self._aside.decide(end)
        return True

    def pause(self) -> bool:
        return (self._aside is not None and self._aside.pause()) or super().pause()

    def abort(self) -> None:
        if self._aside is not None:
            self._aside.abort()
        super().abort()

    def usage(self, output: Output) -> Usage:
        first = self._used_first
        if first is not None and not self.cached_tokens:  # there was no answer
            return first
        used = super().usage(output)
        return used if first is None else usage_of_both(first, used)


def usage_of_both(before: Usage, then: Usage) -> Usage:
    """The usage of a preparation and of the answer behind it, turn by turn."""
    read, wrote = then.input_tokens_details, then.output_tokens_details
    inputs: Sequence[int] = (then.input_tokens,)
    hits: Sequence[int] = (read.cached_tokens,)
    outputs: Sequence[int] = (then.output_tokens,)
    answers: Sequence[int] = (0,)
    latencies: Sequence[int] = (0,)
    answered = 0
    if isinstance(read, InputTokensByTurn) and isinstance(wrote, OutputTokensByTurn):
        inputs, hits = read.input_tokens_per_turn, read.cached_tokens_per_turn
        outputs, answers = wrote.output_tokens_per_turn, wrote.tool_output_tokens_per_turn
        latencies, answered = wrote.tool_latency_ms_per_turn, wrote.tool_output_tokens
    cached = before.input_tokens_details.cached_tokens
    into = InputTokensByTurn(
        cached + read.cached_tokens,
        input_tokens_per_turn=(before.input_tokens, *inputs),
        cached_tokens_per_turn=(cached, *hits),
    )
    out = OutputTokensByTurn(
        wrote.reasoning_tokens,
        tool_output_tokens=answered,
        output_tokens_per_turn=(before.output_tokens, *outputs),
        tool_output_tokens_per_turn=(0, *answers),
        tool_latency_ms_per_turn=(0, *latencies),
    )
    return Usage(
        before.input_tokens + then.input_tokens,
        before.output_tokens + then.output_tokens,
        before.total_tokens + then.total_tokens,
        into,
        out,
    )
