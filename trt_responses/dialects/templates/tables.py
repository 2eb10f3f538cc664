"""Tables that all readers of one checkpoint share: signs of ids, and ids that are text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.dialects.templates.read.bodies import marks_of
from trt_responses.tokens.pieces import escaped

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.tokeniser import Tokeniser

WHITE = " \t\r\n"

Sign = Literal["end", "foreign", "thought", "thought_end", "call", "call_end", "section", "inner"]


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

    @classmethod
    def of(cls, family: Family, tokeniser: Tokeniser, stop_ids: Collection[int] = ()) -> Tables:
        """The tables of a checkpoint. `stop_ids`: ids that end a turn besides the family's."""
        signs: dict[int, Sign] = {}
        calls, thought = family.calls, family.thought
        named: list[tuple[Sign, Sequence[str]]] = [("foreign", family.foreign)]
        if calls is not None:
            named += [("inner", marks_of(calls)), ("section", calls.section or ())]
            named += [("call", (calls.open,)), ("call_end", (calls.close,))]
        if thought is not None:
            named += [("thought", thought[:1]), ("thought_end", thought[1:])]
        named.append(("end", family.terminators))
        for sign, spellings in named:
            for spelling in spellings:
                if (token_id := tokeniser.id_of(spelling)) is not None:
                    signs[token_id] = sign
        signs |= dict.fromkeys(stop_ids, "end")
        spelled = {tokeniser.controls.get(token_id) for token_id in signs}
        opening = [] if calls is None else [calls.open, *(calls.section or ())[:1]]
        in_text = [*opening, *(thought or ())[:1]]
        in_thought = [*opening, *(thought or ())[1:]]
        sought = (
            tuple(mark for mark in marks if mark not in spelled) for marks in (in_text, in_thought)
        )
        text, thoughts = sought
        plain = _plain(tokeniser, frozenset(mark[0] for mark in (*text, *thoughts)))
        return cls(family, tokeniser.token_bytes, tokeniser.controls, signs, plain, text, thoughts)


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
