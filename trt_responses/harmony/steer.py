"""The plan of a run: which engine requests it is made of.

A run is a row of segments. Each extends the ids that count so far, may force ids of its own, and
says what ends it. A plan is asked again after each segment, with what the reader has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trt_responses.harmony.vocabulary import CONTROL

if TYPE_CHECKING:
    from trt_responses.engine.base import Guide
    from trt_responses.harmony.read import Reader


@dataclass(frozen=True, slots=True)
class Segment:
    """One engine request of a run."""

    max_tokens: int
    stop_ids: tuple[int, ...] = (CONTROL.return_, CONTROL.call)
    forced: tuple[int, ...] = ()
    guide: Guide | None = None


class Plan(Protocol):
    def next(self, reader: Reader) -> Segment | None:
        """The segment to generate now, or None when the run is over."""
        ...


class Free:
    """Nothing is steered: one segment, to the model's own end."""

    def __init__(self, max_tokens: int) -> None:
        self._segment: Segment | None = Segment(max_tokens)

    def next(self, reader: Reader) -> Segment | None:
        segment, self._segment = self._segment, None
        return segment
