"""Requirements on a turn, and the sequence of engine requests (segments) that a dialect plans.

A run is a sequence of segments. Each one extends the counted ids, may force ids, and defines what
ends it. No request and no engine here; the meaning of ids is the dialect's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine import Guide, GuideKind
    from trt_responses.language.gate import Gate
    from trt_responses.language.reader import Reader
    from trt_responses.schema.compile import Form

    Guides = Mapping[GuideKind, frozenset[int]]
    """The guides that an engine supports, each with the ids that may end it."""

Name = Literal["free", "thought", "header", "body"]


class Unguided(ValueError):
    """The reason why the arguments of a call cannot be guided, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One allowed outcome of a turn: the answer, or a call of one tool."""

    kind: Literal["answer", "call", "built_in"]
    name: str = ""
    """The model's name of the tool."""
    form: Form | None = None
    """The form of its text; None if unconstrained."""
    what: str = "the schema"
    """The name of the form in error messages."""
    raw: bool = False
    """Whether a call's text is plain and not JSON."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Requirements on one turn; by default none."""

    choices: Sequence[Choice] | None = None
    """The allowed outcomes; None if the model may choose freely."""
    strict: Sequence[Choice] = ()
    """Calls that are guided once the model has begun one by itself."""
    thought: int | None = None
    """The maximum number of reasoning tokens; 0 for no reasoning."""
    offered: Sequence[Choice] = ()
    """A call of each offered tool."""
    begun: tuple[int, ...] = ()
    """Ids forced at the start of an answer that is not steered."""
    calls: int = 1
    """The maximum number of calls in the turn."""
    recipients: Collection[str] = ()
    """Allowed recipients of the calls after the first."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One engine request of a run. If it has no room for a token, the run ends incomplete."""

    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    guide: Guide | None = None
    gate: Gate | None = None
    banned_ids: tuple[int, ...] = ()
    name: Name = "free"


class SteeringPlan(Protocol):
    """The segments of a run, in order, each planned after the reader has read the one before. Its
    `str` is for the log."""

    def next(self, reader: Reader) -> Segment | None:
        """The next segment to generate, or None when the run is over."""
        ...


class Free:
    """A plan without steering: one segment, until the model stops."""

    def __init__(
        self, max_tokens: int, stop_ids: tuple[int, ...] = (), begun: tuple[int, ...] = ()
    ) -> None:
        """`begun`: forced ids, the beginning of the answer that the client gave."""
        self._segment: Segment | None = Segment(max_tokens, stop_ids, begun)

    def __str__(self) -> str:
        return "free"

    def next(self, reader: Reader) -> Segment | None:
        segment, self._segment = self._segment, None
        return segment


class Resumed:
    """A plan for a turn after a tool result. Its first segment opens the message; for the first
    turn the prompt does that."""

    def __init__(self, plan: SteeringPlan, opening: tuple[int, ...]) -> None:
        self._plan = plan
        self._opening = opening

    def __str__(self) -> str:
        return f"{self._plan}, after a tool"

    def next(self, reader: Reader) -> Segment | None:
        segment, opening = self._plan.next(reader), self._opening
        self._opening = ()
        if segment is None or not opening:
            return segment
        left = segment.max_tokens - len(opening)
        return replace(segment, max_tokens=left, forced=opening + segment.forced)
