"""What a run did, id by id: its prompt, its segments and its times.

A run has it made while it lives, and its listeners read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

from trt_responses.engine import Guide, Loss
from trt_responses.frozen import dataclass
from trt_responses.language.messages import FunctionTool
from trt_responses.language.reader import Reader
from trt_responses.language.steering import Segment
from trt_responses.log.item_events import Callee
from trt_responses.run.ending import End
from trt_responses.run.facts import RunFacts
from trt_responses.run.generation import Generation, Recorder

Outcome = Literal["completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class SegmentTrace:
    """What one engine request did."""

    name: str
    max_tokens: int
    forced: tuple[int, ...]
    guide: Guide | None
    kept: array[int]
    """The ids that count, behind those that were forced; closing ids of the gate are among them."""
    read: Sequence[int]
    """The ids that the reader was given behind the forced ones; it drops those that cannot be
    text."""
    discarded: Sequence[int]
    """The ids that the gate did not let through."""
    ended_by: int | None
    """The id that ended a steered segment; the gate put the right one in its place."""
    outcome: Outcome
    began_ns: int
    ended_ns: int
    lost: Loss | None = None
    """The way in which the engine went away; the next segment goes on from here, if any does."""
    metrics: Mapping[str, float] | None = None
    """The engine's own measurements, by its own names."""
    answer: Sequence[int] = ()
    """The tool's answer that the model was given before this segment."""

    def summary(self) -> str:
        """A line for the log: the request and its result, without the text."""
        guide = self.guide.kind if self.guide else "none"
        return (
            f"{self.name} forced={len(self.forced)} budget={self.max_tokens} "
            f"kept={len(self.forced) + len(self.kept)} discarded={len(self.discarded)} "
            f"guide={guide} {self.outcome}"
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """What one run did."""

    owner: str
    plan: str
    prompt_ids: Sequence[int]
    cached_tokens: int | None
    segments: Sequence[SegmentTrace]
    call_ends: bool
    """Whether the first call ended the turn."""
    callees: Mapping[str, Callee]
    """The tools that were offered, by each name that the model may write."""
    tools: Sequence[FunctionTool] = ()
    """The same, as the prompt shows them."""

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes in memory, about."""
        ids = sum([len(s.kept) + len(s.forced) + len(s.discarded) for s in self.segments])
        return 4096 + 4 * len(self.prompt_ids) + 4 * ids


def trace_of(facts: RunFacts) -> Trace:
    """The trace of a run that has ended."""
    assert isinstance(facts.trace, Trace), "made by the recorder"
    return facts.trace


class SegmentNotes:
    """The notes of a segment that goes on: where the reader stood at its beginning."""

    def __init__(self, segment: Segment, reader: Reader, now_ns: int) -> None:
        self._segment = segment
        self._reader = reader
        self._began_ns = now_ns
        self._kept_from = len(reader.kept)
        self._dropped_from = len(reader.dropped)
        last = reader.messages[-1] if reader.messages else None
        answered = last is not None and last.answer_end == self._kept_from
        self._answer = reader.kept[last.end : last.answer_end] if last and answered else ()

    def ended(self, end: End, now_ns: int, metrics: Mapping[str, float] | None) -> SegmentTrace:
        segment, reader, gate = self._segment, self._reader, self._segment.gate
        start = self._kept_from + len(segment.forced)
        kept = array("I", reader.kept[start:])
        dropped = reader.dropped[self._dropped_from :]
        return SegmentTrace(
            name=segment.name,
            max_tokens=segment.max_tokens,
            forced=tuple(reader.kept[self._kept_from : start]),
            guide=segment.guide,
            kept=kept,
            read=_merged(kept, [(max(0, place - start), token_id) for place, token_id in dropped]),
            discarded=tuple(gate.discarded) if gate else (),
            ended_by=gate.ended_by if gate else None,
            outcome=end.status,
            lost=end.lost,
            metrics=metrics,
            began_ns=self._began_ns,
            ended_ns=now_ns,
            answer=self._answer,
        )


def _trace(generation: Generation, owner: str) -> Trace:
    cached = generation.cached_tokens
    return Trace(
        owner,
        str(generation.plan),
        generation.prompt_ids,
        cached[0] if cached else None,
        tuple(one for one in generation.segments if isinstance(one, SegmentTrace)),
        generation.reader.call_ends,
        generation.machine.callees,
        generation.notes.offered,
    )


RECORDER = Recorder(SegmentNotes, _trace)


def _merged(kept: array[int], dropped: Sequence[tuple[int, int]]) -> Sequence[int]:
    """The ids in the order in which they came; each that was dropped has its place among the
    kept."""
    if not dropped:
        return kept
    ids: list[int] = []
    copied = 0
    for place, token_id in dropped:
        ids += kept[copied:place]
        copied = max(copied, place)
        ids.append(token_id)
    return [*ids, *kept[copied:]]
