"""Harmony's plans of runs: their sequences of engine requests.

All follow one order: thought, header, body. No request and no engine here, only the supported
guides and the ids that end them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.dialects.guided import RESERVE, GuidedGate, Words
from trt_responses.engine import Guide
from trt_responses.frozen import dataclass
from trt_responses.language.gate import Gate
from trt_responses.language.steering import Segment
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trt_responses.dialects.guided import Follower
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import Guides, Name
    from trt_responses.schema.compile import Form
    from trt_responses.tokens.vocabulary import Vocabulary

NAMED = 8
"""The maximum headers of a plan in a log line."""

MESSAGE_ENDS = frozenset({CONTROL.end, CONTROL.return_, CONTROL.call, CONTROL.endoftext})
"""The ids with which models end a message, the correct one or not."""
THOUGHT_ENDS = MESSAGE_ENDS | {CONTROL.start, CONTROL.channel, CONTROL.message, CONTROL.constrain}
"""The ids that end reasoning. A header ends it too: the plan chooses the header."""
CONTROL_IDS = range(FIRST_CONTROL_ID, VOCABULARY_SIZE)


class Language:
    """Turns short fixed words into ids, and ids into bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.token_bytes = vocabulary.token_bytes
        self._encode = vocabulary.encode_plain
        self.thought = (CONTROL.channel, *self.ids("analysis"), CONTROL.message)
        self.assistant = (CONTROL.start, *self.ids("assistant"))
        self.message = (CONTROL.message,)
        self.json_message = (CONTROL.constrain, *self.ids("json"), CONTROL.message)

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._encode(text))


class Budget(NamedTuple):
    """The maximum tokens of a run and of its reasoning; 0 for no reasoning."""

    tokens: int
    thought: int | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """The body after a header: its opening ids, the form of its text, and its terminator."""

    opening: tuple[int, ...]
    closing: int
    form: Form | None = None
    what: str = "the schema"


class StepwisePlan(ABC):
    """A plan whose segments come from a generator, in order."""

    def __init__(
        self, language: Language, guides: Guides, bodies: Mapping[str, Body], budget: Budget
    ) -> None:
        """`bodies` by what stands before them: headers, or recipients of calls."""
        self._language = language
        self._guides = guides
        self._bodies = bodies
        self._budget = budget
        self._segments = self._turn()
        self._reader: Reader | None = None

    def next(self, reader: Reader) -> Segment | None:
        self._reader = reader
        return None if reader.ended else next(self._segments, None)

    @abstractmethod
    def _turn(self) -> Iterator[Segment]: ...

    def _left(self, forced: Sequence[int] = ()) -> int:
        assert self._reader is not None
        return self._budget.tokens - len(self._reader.kept) - len(forced)

    def _body(self, body: Body, forced: tuple[int, ...] = ()) -> Segment:
        left = self._left(forced)
        if body.form is not None:
            guide = Guide(body.form.kind, body.form.source)
            follower = body.form.follow()
            return self._guided(
                "body", guide, follower, forced, (body.closing,), left - 1, body.what
            )
        return Segment(
            left,
            tuple(sorted(MESSAGE_ENDS)),
            forced,
            gate=Gate(MESSAGE_ENDS, (body.closing,)),
            name="body",
        )

    def _guided(
        self,
        name: Name,
        guide: Guide,
        follower: Follower,
        forced: tuple[int, ...],
        closing: tuple[int, ...],
        max_tokens: int,
        what: str,
    ) -> Segment:
        """A guided segment. It bans all control ids except those that end this engine's guides."""
        ends = self._guides[guide.kind]
        return Segment(
            max_tokens,
            tuple(sorted(ends)),
            forced,
            guide,
            GuidedGate(ends | MESSAGE_ENDS, closing, follower, self._language.token_bytes, what),
            tuple(token_id for token_id in CONTROL_IDS if token_id not in ends),
            name,
        )


class Steered(StepwisePlan):
    """A plan of a thought, one of the allowed headers, and its body. A single header is forced;
    several are guided."""

    def __str__(self) -> str:
        return f"steered to {_some(self._bodies)}"

    def _turn(self) -> Iterator[Segment]:
        forced: tuple[int, ...] = ()
        thought = self._thought()
        if thought.max_tokens > 0:
            yield thought
            forced = self._language.assistant
        forced = (*forced, CONTROL.channel)
        if len(self._bodies) == 1:
            header = next(iter(self._bodies))
            forced += self._language.ids(header)
        else:
            words = Words(tuple(self._bodies))
            yield self._header(words, forced)
            header, forced = words.text.decode(), ()
        body = self._bodies[header]
        yield self._body(body, forced + body.opening)

    def _thought(self) -> Segment:
        """The thought's segment; its terminator takes a token too."""
        forced, limit = self._language.thought, self._budget.thought
        reserve = min(RESERVE, self._budget.tokens // 2)
        left = self._left(forced) - reserve - 1
        return Segment(
            left if limit is None else min(left, limit),
            tuple(sorted(THOUGHT_ENDS)),
            forced,
            gate=Gate(THOUGHT_ENDS, (CONTROL.end,), may_be_cut=True),
            name="thought",
        )

    def _header(self, words: Words, forced: tuple[int, ...]) -> Segment:
        guide = Guide("regex", header_pattern(tuple(self._bodies)))
        left = self._left(forced)
        return self._guided("header", guide, words, forced, (), left, "a header that is allowed")


class Watched(StepwisePlan):
    """A plan that guides the body of a strict tool's call, after the model wrote the header itself.
    The engine stops at every `<|message|>`, so that the plan can check the header."""

    STOPS = (CONTROL.return_, CONTROL.call, CONTROL.message)

    def __str__(self) -> str:
        return f"watched for {_some(self._bodies)}"

    def _turn(self) -> Iterator[Segment]:
        assert self._reader is not None
        while True:
            before = len(self._reader.kept)
            yield Segment(self._left(), self.STOPS)
            if self._reader.kept[before:][-1:] != [CONTROL.message]:
                return  # the engine ended the turn elsewhere than after a header
            body = self._bodies.get(self._reader.recipient or "")
            if body is not None:
                yield self._body(body)
                return


def _some(names: Collection[str]) -> str:
    listed = [name.strip() for _, name in zip(range(NAMED), names, strict=False)]
    return " | ".join([*listed, *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])])


def header_pattern(headers: Sequence[str]) -> str:
    """The headers as a regular expression that every engine's guide supports.

    A call's header ends with a space, so that no name is the beginning of another.
    """
    return "|".join(re.sub(r"([^A-Za-z0-9_ =-])", r"\\\1", header) for header in headers)
