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

    from trt_responses.engine.base import Guide, GuideKind
    from trt_responses.language.gate import Gate
    from trt_responses.language.reader import Reader
    from trt_responses.schema.compile import Form

    Guides = Mapping[GuideKind, frozenset[int]]
    """The guides that an engine has, each with the ids that may end one."""

RESERVE = 512
"""Tokens that a thought leaves for the answer, or half of all, if that is less."""

Name = Literal["free", "thought", "header", "body"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that a turn may be: the answer, or a call of one tool."""

    kind: Literal["answer", "call", "built_in"]
    name: str = ""
    """The model's name of the tool."""
    form: Form | None = None
    """What its text must be; None leaves that to the model."""
    what: str = "the schema"
    """The form, as a fault names it."""
    raw: bool = False
    """A call's text is written as it is, and not as JSON."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked of one turn. As it stands, nothing is."""

    choices: Sequence[Choice] | None = None
    """All that it may be; None leaves that to the model."""
    strict: Sequence[Choice] = ()
    """Calls that are guided as soon as the model has begun one by itself."""
    thought: int | None = None
    """Tokens of the thought, at most; of 0 there is none."""
    offered: Sequence[Choice] = ()
    """A call of each tool that is offered."""
    begun: tuple[int, ...] = ()
    """What an answer that is not steered begins with."""
    calls: int = 1
    """The most calls in it."""
    recipients: Collection[str] = ()
    """Whom the calls after the first may be to."""


class Budget(NamedTuple):
    """How many tokens the whole run may take, and its thought. A thought of 0 is left out."""

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
    """It is asked again after each segment, with what the reader has read. Its `str` is for the
    log."""

    def next(self, reader: Reader) -> Segment | None:
        """The segment to generate now, or None when the run is over."""
        ...


class Free:
    """Nothing is steered: one segment, to the model's own end."""

    def __init__(
        self, max_tokens: int, stop_ids: tuple[int, ...] = (), begun: tuple[int, ...] = ()
    ) -> None:
        """`begun` is forced: what the client has the answer begin with."""
        self._segment: Segment | None = Segment(max_tokens, stop_ids, begun)

    def __str__(self) -> str:
        return "free"

    def next(self, reader: Reader) -> Segment | None:
        segment, self._segment = self._segment, None
        return segment


class Resumed:
    """A plan for a turn that follows a tool's answer: its first segment opens the message, as the
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
