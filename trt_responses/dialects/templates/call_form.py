"""Forms of call arguments that are not JSON: a grammar for guides, and a matcher to check them.

The matcher follows a text with the grammar that guides the engine. A complete text is converted to
JSON by the reader, and the schema's judge judges that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import orjson

from trt_responses.dialects.templates.call_grammar import STAND_INS, arguments_grammar
from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.pieces import pieces
from trt_responses.dialects.templates.read.bodies import BODIES, marks_of
from trt_responses.language.steering import Unguided
from trt_responses.schema.compile import Form
from trt_responses.schema.matching import GrammarFault, Matcher, matcher

KEPT = 64
"""Cached forms."""
NAME = "f"
"""Placeholder name of the function while its arguments are judged."""


class CallForms:
    """Creates the forms of one checkpoint's call arguments, with a cache by schema."""

    def __init__(self, calls: Calls, id_of: Callable[[str], int | None]) -> None:
        """`id_of` returns the id of a mark that is one token."""
        self._calls = calls
        marks = [(mark, id_of(mark)) for mark in marks_of(calls)]
        self._ids = {mark: token_id for mark, token_id in marks if token_id is not None}
        self._signs = {mark: chr(STAND_INS + n) for n, mark in enumerate(self._ids)}
        self.marks: Mapping[int, bytes] = {
            token_id: self._signs[mark].encode() for mark, token_id in self._ids.items()
        }
        """The stand-in for each mark in a followed text."""
        self._mark_of = {sign: mark for mark, sign in self._signs.items()}
        self._parts = re.compile(f"([{''.join(self._mark_of)}])" if self._mark_of else "$.").split
        self._grammar = lru_cache(KEPT)(self._make_grammar)

    def form(self, of_json: Form, schema: Mapping[str, object]) -> Form:
        """The form that corresponds to the JSON form of the same arguments. Raises `Unguided`."""
        source, matcher = self._grammar(of_json.source, orjson.dumps(schema))
        as_json = partial(self._as_json, schema)
        return Form("lark", source, matcher, of_json.judge, of_json.left, as_json)

    def _make_grammar(self, guide: str, schema: bytes) -> tuple[str, Matcher]:
        schemas = orjson.loads(guide), orjson.loads(schema)
        source = arguments_grammar(self._calls, *schemas, self._ids, self._by_id)
        followed = arguments_grammar(self._calls, *schemas, self._ids, self._by_sign)
        try:
            return source, matcher(f"%llguidance {{}}\n{followed}")
        except GrammarFault as fault:
            raise Unguided(f"it is too complex for a guide ({fault})") from None

    def _as_json(self, schema: Mapping[str, object], text: str) -> str:
        """The JSON that the reader makes of a text."""
        collector = _Collector()
        calls = self._calls
        body = BODIES[calls.body](calls, {NAME: schema}, collector, self._ids)
        for part in (*pieces(calls.before_name), NAME, *pieces(calls.after_name)):
            if not body.mark(part):
                body.feed(part)
        for part in self._parts(text):
            if (mark := self._mark_of.get(part)) is None:
                body.feed(part)
            else:
                body.mark(mark)
        body.finish(closed=True)
        return "".join(collector.pieces)

    def _by_id(self, mark: str) -> str:
        return f"<[{self._ids[mark]}]>"

    def _by_sign(self, mark: str) -> str:
        return f'"{self._signs[mark]}"'


class _Collector:
    """Collects the arguments that a body reads."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def opened(self, name: str) -> None:
        """Ignore the name."""

    def arguments(self, text: str) -> None:
        self.pieces.append(text)

    def fault(self) -> None:
        """Ignore a fault: the grammar allows none."""
