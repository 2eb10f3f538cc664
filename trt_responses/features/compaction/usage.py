"""The tokens of a response whose conversation was compacted before it was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.turn_usage.usage import InputTokensByTurn, OutputTokensByTurn
from trt_responses.wire import response as r

if TYPE_CHECKING:
    from collections.abc import Sequence


def usage_of_both(before: r.Usage, then: r.Usage) -> r.Usage:
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
    return r.Usage(
        before.input_tokens + then.input_tokens,
        before.output_tokens + then.output_tokens,
        before.total_tokens + then.total_tokens,
        into,
        out,
    )
