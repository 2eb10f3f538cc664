"""What is asked of a turn, and the row of engine requests that a dialect makes of it.

A run is a row of segments. Each extends the ids that count so far, may force ids of its own, and
says what ends it. Knows no request and no engine; which ids mean what is each dialect's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine import Guide, GuideKind
    from trt_responses.language.gate import Gate
    from trt_responses.language.reader import Reader
    from trt_responses.schema.compile import Form

    Guides = Mapping[GuideKind, frozenset[int]]
    """The guides that an engine has, each with the ids that may end one."""

RESERVE = 512
"""Tokens that a thought leaves for the answer; half of all, if that is less."""

Name = Literal["free", "thought", "header", "body"]


class Unguided(ValueError):
    """Says why the arguments of a call cannot be guided, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a turn: the answer, or a call of one tool."""

    kind: Literal["answer", "call", "built_in"]
    name: str = ""
    """The model's name of the tool."""
    form: Form | None = None
    """The form of its text; None leaves that to the model."""
    what: str = "the schema"
    """The name of the form, for faults."""
    raw: bool = False
    """Whether a call's text is written as it is, and not as JSON."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked of one turn; the defaults ask nothing."""

    choices: Sequence[Choice] | None = None
    """All choices of the turn; None leaves them to the model."""
    strict: Sequence[Choice] = ()
    """Calls that are guided as soon as the model has begun one by itself."""
    thought: int | None = None
    """The most tokens of the thought; with 0 there is none."""
    offered: Sequence[Choice] = ()
    """A call of each tool that is offered."""
    begun: tuple[int, ...] = ()
    """The ids with which an answer that is not steered begins."""
    calls: int = 1
    """The most calls in the turn."""
    recipients: Collection[str] = ()
    """Recipients to whom the calls after the first may go."""


class Budget(NamedTuple):
    """The most tokens of a whole run, and of its thought. A thought of 0 is left out."""

    tokens: int
    thought: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One engine request of a run. Without room for a token the run is over, and incomplete."""

    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    guide: Guide | None = None
    gate: Gate | None = None
    banned_ids: tuple[int, ...] = ()
    name: Name = "free"


class SteeringPlan(Protocol):
    """The segments of a run, one after another, each made when the reader has read the one before.
    Its `str` is for the log."""

    def next(self, reader: Reader) -> Segment | None:
        """The segment to generate now, or None when the run is over."""
        ...


class Free:
    """A plan that steers nothing: one segment, to the model's own end."""

    def __init__(
        self, max_tokens: int, stop_ids: tuple[int, ...] = (), begun: tuple[int, ...] = ()
    ) -> None:
        """`begun` is forced: the ids with which the client has the answer begin."""
        self._segment: Segment | None = Segment(max_tokens, stop_ids, begun)

    def __str__(self) -> str:
        return "free"

    def next(self, reader: Reader) -> Segment | None:
        segment, self._segment = self._segment, None
        return segment


class Resumed:
    """A plan for a turn that follows a tool's answer. Its first segment opens the message, as the
    prompt does for the first turn."""

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
