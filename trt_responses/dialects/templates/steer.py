"""Plans of runs for template models: the same requirements as Harmony's, with other marks.

A thought ends at its mark. The plan closes it when its budget is spent, or when the model ends its
turn inside it or begins another author's. A call begins with its mark; then the name is guided to
the offered tools, and the arguments to their schema. An answer is guided from its first id. Works
on families and ids: no request and no engine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trt_responses.dialects.guided import RESERVE, GuidedGate, Words
from trt_responses.dialects.templates.call_form import CallForms
from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.gates import CallBegins, Signs
from trt_responses.dialects.templates.pieces import core, is_mark, pieces
from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.engine import Guide
from trt_responses.language.gate import Gate
from trt_responses.language.steering import Segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.tokeniser import Tokeniser
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import Choice, Guides, Name, Turn
    from trt_responses.schema.compile import Form

SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""The special characters of regular expressions."""
LEAST_TOKENS = 16
"""The tokens of a short call; with fewer left, none is begun."""
NO_CALLS = Calls("", "", "json")
"""The form of a family without calls: it has no marks."""
BEFORE_CALL = 8
"""Maximum ids of white space before a call's mark."""


class Places:
    """A family's marks as ids, and the texts around a call's name."""

    def __init__(self, family: Family, tokeniser: Tokeniser, stop_ids: Sequence[int]) -> None:
        self._encode = tokeniser.encode
        self._plain = tokeniser.marks.shielded
        self.family = family
        self.stops = tuple(dict.fromkeys(stop_ids))
        """Ids that end a turn, the template's first."""
        self.ends = frozenset(self.stops)
        foreign = map(tokeniser.id_of, family.foreign)
        self.foreign = frozenset(token_id for token_id in foreign if token_id is not None)
        """Ids that begin another author's turn."""
        self.controls = tuple(tokeniser.controls)
        self.signs = Signs(tokeniser.token_bytes, self.controls)
        controls = tokeniser.controls
        self.token_bytes = tuple(
            b"" if token_id in controls else raw
            for token_id, raw in enumerate(tokeniser.token_bytes)
        )
        thought, calls = family.thought, family.calls or NO_CALLS
        self.thought = None if thought is None else tuple(map(self.ids, thought))
        self.call_open, self.call_close = self.ids(calls.open), self.ids(calls.close)
        self.around = calls.before_name, calls.after_name
        """The texts before and after a call's name."""
        self.forms = CallForms(calls, tokeniser.id_of) if calls.tags else None
        """Forms of arguments that are not JSON."""
        self.marks: Mapping[int, bytes] = {} if self.forms is None else self.forms.marks
        """Control ids that arguments may contain, with their stand-ins in a followed text."""
        self.argument_bytes = [*self.token_bytes]
        for token_id, stand_in in self.marks.items():
            self.argument_bytes[token_id] = stand_in
        self.several = calls.several and bool(calls.open)
        """Whether a steered turn may have several calls."""
        self.first_call = self.call_open
        if calls.section is not None:
            self._begin_section(calls, calls.section, tokeniser.id_of(calls.open) is not None)
        self.bare = not self.call_open
        """Whether the name of a tool shows that a call begins."""
        self.marked = len(self.call_open) == 1 and self.call_open[0] in controls
        """Whether a token shows that a call begins; else the text does."""
        self.banned = self.call_open[:1] if self.marked else ()
        """The id without which no call begins, where there is one."""
        self.separated = calls.body == "named" or any(map(is_mark, pieces(calls.after_name)))
        """Whether a mark of its own follows a call's name."""
        words = "" if calls.tags is not None else calls.after_arguments
        self.tail = (*self.ids(words), *self.call_close)
        """The ids that close a call after its arguments."""

    def _begin_section(self, calls: Calls, section: tuple[str, str], marked: bool) -> None:
        """Take the section's mark for the mark of a call, unless each call has one of its own."""
        mark = core(section[0])
        if marked:
            self.first_call = (*self.ids(section[0].lstrip()), *self.call_open)
            return
        self.call_open = self.first_call = self.ids(mark)
        before = section[0].partition(mark)[2] + calls.open + calls.before_name
        self.around = before, calls.after_name
        self.call_close = self.ids(calls.close + section[1])
        self.several = False

    def heads(self, calls: Sequence[Choice], *, first: bool = True) -> list[str]:
        """The texts that begin one of these calls, as `signs` spells them."""
        if self.bare:
            before, behind = self.around
            return [self.signs.text(self.ids(f"{before}{one.name}{behind[:1]}")) for one in calls]
        ways = (self.first_call, self.call_open) if first else (self.call_open,)
        return [*dict.fromkeys(map(self.signs.text, ways))]

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text of the family, marks included."""
        return tuple(self._encode(text)) if text else ()

    def head(self, name: str) -> tuple[int, ...]:
        """The ids between a call's mark and its arguments."""
        before, behind = self.around
        return self.ids(before + self._plain(name) + behind)


class TurnPlan:
    """The plan of one turn: its thought, then its answer or its calls."""

    def __init__(self, turn: Turn, places: Places, guides: Guides, tokens: int) -> None:
        """`tokens`: the most of the whole turn, with those already written."""
        self._turn = turn
        self._places = places
        self._guides = guides
        self._tokens = tokens
        self._reader: Reader | None = None
        self._segments = self._plan()

    def __str__(self) -> str:
        if self._turn.choices is None:
            return "watched" if self._turn.strict else "free"
        named = [choice.name or choice.kind for choice in self._turn.choices]
        return f"steered to {' | '.join(named)}"

    def next(self, reader: Reader) -> Segment | None:
        self._reader = reader
        return None if reader.ended else next(self._segments, None)

    def _plan(self) -> Iterator[Segment]:
        choices = self._turn.choices
        if choices is None:
            yield from self._watched() if self._turn.strict else [self._free(self._turn.begun)]
            return
        forced, thought = self._thought()
        if thought is not None:
            yield thought
        calls = [choice for choice in choices if choice.kind == "call"]
        answer = next((choice for choice in choices if choice.kind == "answer"), None)
        if answer is None:
            yield from self._calls(calls, (*forced, *self._places.first_call))
        elif not calls:
            yield self._answer(answer, forced)
        elif answer.form is None and not any(call.form for call in calls):
            yield self._free(forced)
        else:
            yield from self._either(answer, calls, forced)

    # --- a thought ----------------------------------------------------------------------------

    def _thought(self) -> tuple[tuple[int, ...], Segment | None]:
        """The ids to force after the thought, and the thought's segment."""
        places, reader = self._places, self._reader
        assert reader is not None
        if places.thought is None:
            return (), None
        opened, closed = places.thought
        begun = isinstance(reader, TemplateReader) and reader.thinking
        forced = () if begun else (*opened, *places.ids("\n"))
        limit = self._turn.thought
        left = self._left(forced) - min(RESERVE, self._tokens // 2) - len(closed)
        most = left if limit is None else min(left, limit)
        behind = places.ids("\n\n")
        if most > 0 and len(closed) == 1:
            ends = places.ends | places.foreign | {closed[0], *places.banned}
            gate = Gate(ends, closed, may_be_cut=True)
            return behind, Segment(most, tuple(ends), forced, gate=gate, name="thought")
        if begun:
            return (*closed, *behind), None
        if places.family.switch is None:
            return (*forced, *places.ids("\n"), *closed, *behind), None
        return (), None

    # --- an answer ----------------------------------------------------------------------------

    def _free(self, forced: tuple[int, ...]) -> Segment:
        """An unsteered segment; without tools the call mark is banned."""
        banned = () if self._turn.offered else self._places.banned
        return Segment(self._left(forced), self._places.stops, forced, banned_ids=banned)

    def _answer(self, answer: Choice, forced: tuple[int, ...]) -> Segment:
        places = self._places
        if answer.form is not None:
            return self._guided(answer.form, forced, (places.stops[0],), answer.what)
        return Segment(
            self._left(forced),
            places.stops,
            forced,
            gate=Gate(places.ends, (places.stops[0],)),
            banned_ids=places.banned,
            name="body",
        )

    def _either(
        self, answer: Choice, calls: Sequence[Choice], forced: tuple[int, ...]
    ) -> Iterator[Segment]:
        gate = self._gate(calls, holds=True)
        yield self._trial(gate, forced)
        if gate.head:
            yield from self._begun(gate, calls)
        else:
            yield self._answer(answer, ())

    def _gate(self, calls: Sequence[Choice], *, holds: bool, first: bool = True) -> CallBegins:
        places = self._places
        heads = places.heads(calls, first=first)
        return CallBegins(heads, places.signs, anchored=holds or places.bare, holds=holds)

    def _trial(self, gate: CallBegins, forced: tuple[int, ...]) -> Segment:
        """A segment that ends with the head of a call, or where an answer begins."""
        most = min(self._left(forced), BEFORE_CALL + gate.longest)
        return Segment(most, self._places.stops, forced, gate=gate, name="header")

    # --- calls --------------------------------------------------------------------------------

    def _watched(self) -> Iterator[Segment]:
        """Unsteered until the model begins a call; then its name and its arguments are guided."""
        places, begun, calls = self._places, self._turn.begun, self._turn.offered
        assert self._reader is not None
        if places.marked:
            mark = places.call_open
            yield Segment(self._left(), (*places.stops, mark[-1]), begun)
            if tuple(self._reader.kept[-len(mark) :]) == mark:
                yield from self._calls(calls, ())
            return
        if places.bare and begun:
            yield self._free(begun)
            return
        gate = self._gate(calls, holds=False)
        yield Segment(self._left(), places.stops, begun, gate=gate)
        if gate.head:
            yield from self._begun(gate, calls)

    def _begun(self, gate: CallBegins, calls: Sequence[Choice]) -> Iterator[Segment]:
        """Segments for calls of which the model has begun the first one."""
        places = self._places
        forced = places.signs.ids(gate.rest, places.ids)
        if not places.bare:
            yield from self._calls(calls, forced)
            return
        call = calls[places.heads(calls).index(gate.head)]
        yield self._arguments(call, (*forced, *places.ids(places.around[1][1:])))

    def _calls(self, calls: Sequence[Choice], forced: tuple[int, ...]) -> Iterator[Segment]:
        """Segments for calls. Forced ids or the model have already begun the first one."""
        places = self._places
        for number in range(self._turn.calls):
            if number:
                if not places.several or self._left() < LEAST_TOKENS:
                    return
                gate = self._gate(calls, holds=True, first=False)
                yield self._trial(gate, ())
                if not gate.head:
                    return
                forced = places.signs.ids(gate.rest, places.ids)
            before, behind = places.around
            if len(calls) == 1:
                call, forced = calls[0], (*forced, *places.head(calls[0].name))
            else:
                ending = "" if places.separated else behind
                words = Words([call.name + ending for call in calls])
                yield self._header(words, (*forced, *places.ids(before)))
                name = words.text.decode().removesuffix(ending)
                call = next(one for one in calls if one.name == name)
                forced = () if ending else places.ids(behind)
            yield self._arguments(call, forced)

    def _header(self, words: Words, forced: tuple[int, ...]) -> Segment:
        escaped = (SIGNS.sub(r"\\\g<0>", word.decode()).replace("\n", "\\n") for word in words.all)
        guide = Guide("regex", "|".join(escaped))
        gate_ends = self._guides["regex"]
        gate = GuidedGate(
            gate_ends | self._places.ends,
            (),
            words,
            self._places.token_bytes,
            "the name of a tool that is allowed",
        )
        return self._segment(guide, gate, forced, "header", self._left(forced))

    def _arguments(self, call: Choice, forced: tuple[int, ...]) -> Segment:
        places = self._places
        if call.form is not None:
            return self._guided(call.form, forced, places.tail, call.what, places.marks)
        close = {*places.call_close[-1:]}
        if not close & {*places.controls} - {*places.marks}:  # text, or a mark inside calls too
            return self._free(forced)
        ends = places.ends | close
        gate = Gate(ends, places.call_close)
        return Segment(self._left(forced), tuple(ends), forced, gate=gate, name="body")

    # --- guides -------------------------------------------------------------------------------

    def _guided(
        self,
        form: Form,
        forced: tuple[int, ...],
        closing: tuple[int, ...],
        what: str,
        marks: Collection[int] = (),
    ) -> Segment:
        """A guided segment. `marks`: control ids allowed in the text."""
        guide, places = Guide(form.kind, form.source), self._places
        ends = self._guides[form.kind] | places.ends
        token_bytes = places.argument_bytes if marks else places.token_bytes
        gate = GuidedGate(ends, closing, form.follow(), token_bytes, what)
        most = self._left(forced) - len(closing)
        return self._segment(guide, gate, forced, "body", most, marks)

    def _segment(
        self,
        guide: Guide,
        gate: Gate,
        forced: tuple[int, ...],
        name: Name,
        most: int,
        marks: Collection[int] = (),
    ) -> Segment:
        ends = self._guides[guide.kind]
        free = {*ends, *marks}
        banned = tuple(token_id for token_id in self._places.controls if token_id not in free)
        return Segment(
            most,
            tuple(sorted(ends)),
            forced,
            guide,
            gate,
            banned,
            name,
        )

    def _left(self, forced: Sequence[int] = ()) -> int:
        assert self._reader is not None
        return self._tokens - len(self._reader.kept) - len(forced)
