"""The tokens of a response of several turns, since tools ran here or its conversation was
compacted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from trt_responses.frozen import dataclass
from trt_responses.language.reader import Reader
from trt_responses.log.fold import Output
from trt_responses.run.ending import usage
from trt_responses.wire import response as r
from trt_responses.wire.response import InputTokensDetails, OutputTokensDetails


@dataclass(frozen=True)
class InputTokensByTurn(InputTokensDetails):
    """What each turn read that none had read before."""

    input_tokens_per_turn: tuple[int, ...] = ()
    cached_tokens_per_turn: tuple[int, ...] = ()


@dataclass(frozen=True)
class OutputTokensByTurn(OutputTokensDetails):
    """The same for what each turn wrote; the tool's are of the answer that the turn began with."""

    tool_output_tokens: int = 0
    output_tokens_per_turn: tuple[int, ...] = ()
    tool_output_tokens_per_turn: tuple[int, ...] = ()
    tool_latency_ms_per_turn: tuple[int, ...] = ()


def usage_by_turn(
    read: int,
    reader: Reader,
    output: Output,
    cached: Sequence[int | None],
    latency_ms: Sequence[int] = (),
) -> r.Usage:
    """The same as `usage` of a response whose tools ran here, turn by turn. `latency_ms` is how
    long each tool took."""
    plain = usage(read, reader, output, cached)
    answered = [span for span in reader.messages if span.answer_end]
    if not answered:
        return plain
    answers = [span.answer_tokens for span in answered]
    begins = [0, *(span.answer_end for span in answered)]
    ends = [*(span.end for span in answered), len(reader.kept)]
    outputs = [end - begin for begin, end in zip(begins, ends, strict=True)]
    inputs = [read, *answers]
    before = [0, *(read + span.end for span in answered)]
    hits = [
        min(max((reported or 0) - start, 0), size)
        for reported, start, size in zip_longest(cached, before, inputs, fillvalue=0)
    ]
    into = InputTokensByTurn(
        sum(hits),
        input_tokens_per_turn=tuple(inputs),
        cached_tokens_per_turn=tuple(hits),
    )
    out = OutputTokensByTurn(
        plain.output_tokens_details.reasoning_tokens,
        tool_output_tokens=sum(answers),
        output_tokens_per_turn=tuple(outputs),
        tool_output_tokens_per_turn=(0, *answers),
        tool_latency_ms_per_turn=(0, *latency_ms, *[0] * (len(answers) - len(latency_ms))),
    )
    return r.Usage(sum(inputs), sum(outputs), sum(inputs) + sum(outputs), into, out)
