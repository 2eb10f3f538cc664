"""Tables that all readers of one checkpoint share: signs of ids, and ids that are text alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from trt_responses.dialects.templates.families import Family
from trt_responses.dialects.templates.pieces import core
from trt_responses.dialects.templates.read.bodies import marks_of
from trt_responses.dialects.templates.tokeniser import Tokeniser
from trt_responses.tokens.pieces import escaped

LONGEST_OPENING = 32
"""Maximum ids behind a mark that opens a thought in a prompt."""
WHITE = " \t\r\n"

Sign = Literal[
    "end",
    "foreign",
    "thought",
    "thought_end",
    "call",
    "call_end",
    "section",
    "section_end",
    "frame",
    "inner",
]


class Tables(NamedTuple):
    """Tables that all readers of a checkpoint share."""

    family: Family
    token_bytes: Sequence[bytes]
    controls: Mapping[int, str]
    signs: Mapping[int, Sign]
    """The sign of each structural id; every other id is text."""
    plain: Mapping[int, bytes]
    """Ids that are text alone in any message, as pieces of JSON."""
    in_text: tuple[str, ...]
    in_thought: tuple[str, ...]
    """Marks that are not one token, by the place of the search."""
    meaning: Mapping[str, Sign]
    """The sign of each such mark."""
    inner: frozenset[str]
    """The marks inside a call that are one token."""

    @classmethod
    def of(cls, family: Family, tokeniser: Tokeniser, stop_ids: Collection[int] = ()) -> Tables:
        """The tables of a checkpoint. `stop_ids`: ids that end a turn besides the family's."""
        named = _named(family)
        signs: dict[int, Sign] = {}
        meaning: dict[str, Sign] = {}
        for sign, spelling in named:
            if (token_id := tokeniser.id_of(spelling)) is not None:
                signs[token_id] = sign
            elif spelling:
                meaning[spelling] = sign
        signs |= dict.fromkeys(stop_ids, "end")
        text, thought = (
            tuple(mark for mark, sign in meaning.items() if sign in signs_there)
            for signs_there in (_IN_TEXT, _IN_THOUGHT)
        )
        inner = (
            frozenset(one for one in marks_of(family.calls) if tokeniser.id_of(one) is not None)
            if family.calls
            else frozenset[str]()
        )
        plain = _plain(tokeniser, frozenset(mark[0] for mark in (*text, *thought)))
        known = tokeniser.token_bytes, tokeniser.controls
        return cls(family, *known, signs, plain, text, thought, meaning, inner)

    def begins(self, prompt: Sequence[int]) -> Literal["thought", "text"]:
        """Whether a prompt's end opens a thought."""
        if self.family.thought is None:
            return "text"
        last = prompt[-LONGEST_OPENING:]
        opening, closing = self.family.thought
        if opening in self.in_text or closing in self.in_thought:
            raw = b"".join(self.token_bytes[n] for n in last if 0 <= n < len(self.token_bytes))
            opened, closed = map(raw.decode("utf-8", "replace").rfind, (opening, closing))
            return "thought" if opened > closed else "text"
        signs = (self.signs.get(token_id) for token_id in reversed(last))
        found = next((one for one in signs if one in ("thought", "thought_end", "end")), None)
        return "thought" if found == "thought" else "text"


_IN_TEXT: Collection[Sign] = ("call", "section", "section_end", "thought", "frame")
_IN_THOUGHT: Collection[Sign] = ("call", "section", "thought_end")


def _named(family: Family) -> Iterator[tuple[Sign, str]]:
    """The family's marks; of two with one spelling the later counts."""
    calls, thought = family.calls, family.thought
    yield from (("foreign", mark) for mark in family.foreign)
    yield from (("frame", mark) for mark in family.frames)
    if calls is not None:
        yield from (("inner", mark) for mark in marks_of(calls))
        begin, end = map(core, calls.section or ("", ""))
        yield from (("section_end", end), ("section", begin))
        yield from (("call_end", calls.close.strip()), ("call", calls.open.strip()))
    if thought is not None:
        yield from (("thought", thought[0]), ("thought_end", thought[1]))
    yield from (("end", mark) for mark in family.terminators)


def _plain(tokeniser: Tokeniser, first: frozenset[str]) -> dict[int, bytes]:
    """The ids that are text alone. `first`: characters that may begin a mark; ids with one are
    excluded."""
    table = {}
    for token_id, raw in enumerate(tokeniser.token_bytes):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            continue
        ends_white = not text or text[-1] in WHITE
        if not ends_white and token_id not in tokeniser.controls and first.isdisjoint(text):
            table[token_id] = escaped(text)
    return table
