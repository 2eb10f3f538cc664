"""llguidance over bytes: grammars that text is matched with, as far as each byte of it.

The only file of this room that names llguidance. A grammar is made here, or it is not: its row of
limits keeps one that is too large from being made.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import orjson
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from trt_responses.schema.patterns import PatternFault, translate
from trt_responses.schema.refusals import OutOfSteps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trt_responses.schema.patterns import Translated

BLANKS = 32
"""White space in a row between two marks. Our own guides write none, other engines' may."""
MAX_PATTERNS = 2_000
"""Different ones of one schema: each takes some 25 KB."""
AT_ONCE = 256
"""Bytes that a matcher takes before other threads get a turn: it computes without giving one."""
LEXER_ERROR = "lexer error"


def _limits(items_in_row: int, fuel: int) -> LLParserLimits:
    """Some milliseconds at most for a step, and some 40 MB for a text. The lexer's fuel is that of
    all texts of a grammar together, for its copies share one lexer: 10 to 20 ns for each unit. A
    thousand names take 20,000."""
    return LLParserLimits(
        max_items_in_row=items_in_row,
        initial_lexer_fuel=500_000,
        step_lexer_fuel=fuel,
        step_max_items=5_000,
        max_lexer_states=20_000,
        max_grammar_size=500_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


LIMITS = _limits(2_000, 200_000)
"""400 members that may be left out take 1,600 items."""
LARK_LIMITS = _limits(250, 100_000)
"""Of a client's own grammar, which may be as ambiguous as can be."""


class _Table:
    """A vocabulary as llguidance asks for one."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = (self.eos_token_id,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


class Pieces:
    """What matchers take in one step: each byte, and `longer` pieces that come often. A step costs
    much the same whatever its length; 100,000 pieces cost 20 MB and a quarter of a second."""

    def __init__(self, longer: Iterable[bytes] = ()) -> None:
        pieces = [*(bytes([n]) for n in range(256)), *(piece for piece in longer if len(piece) > 1)]
        self.ids = {piece: n for n, piece in enumerate(pieces)}
        self.plain = {piece: n for piece, n in self.ids.items() if _is_plain(piece)}
        """Those that read the same in each spelling of a text, by which a matcher knows them."""
        self.tokeniser = LLTokenizer(
            TokenizerWrapper(_Table((*pieces, b"<end>"))),
            n_vocab=len(pieces) + 1,
            eos_token=len(pieces),
            slices=[],
        )


@cache
def single_bytes() -> Pieces:
    """The pieces of a vocabulary that has each byte alone."""
    return Pieces()


class GrammarFault(ValueError):
    """llguidance's own word for why there is no such matcher, its first line."""


class _Lexer:
    """What the copies of a matcher share. Once it is over its limits it takes no byte any more."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = False


class Matcher:
    """A text so far."""

    __slots__ = ("_inner", "_lexer", "_pieces")

    def __init__(self, inner: LLMatcher, pieces: Pieces, lexer: _Lexer) -> None:
        self._inner = inner
        self._pieces = pieces
        self._lexer = lexer

    def copy(self) -> Matcher:
        return Matcher(self._inner.deep_copy(), self._pieces, self._lexer)

    def takes_plain(self, piece: bytes) -> bool:
        """Takes one of the plain pieces if it is lawful: the short way for nearly all of a text."""
        known = self._pieces.plain.get(piece)
        return known is not None and self._inner.try_consume_tokens([known]) == 1

    def take(self, piece: bytes) -> bool:
        """Whether the text goes on lawfully with all of it; if not, nothing of it is taken."""
        known = self._pieces.ids.get(piece)
        steps = [*piece] if known is None else [known]
        for begin in range(0, len(steps), AT_ONCE):
            part = steps[begin : begin + AT_ONCE]
            taken = self._inner.try_consume_tokens(part)
            if taken < len(part):
                self._look_at_lexer(part[taken])
                self._inner.rollback(begin + taken)
                return False
        return True

    def give_back(self, count: int) -> None:
        """So many bytes, which were taken one by one."""
        self._inner.rollback(count)

    @property
    def broken(self) -> bool:
        """Whether it met a limit of its own, so that it says nothing of the text any more."""
        return self._lexer.spent or self._inner.is_error()

    @property
    def accepts(self) -> bool:
        """Whether the text may end here."""
        if not self._inner.is_accepting():
            self._look_at_lexer(self._pieces.tokeniser.eos_token)
            return self.broken
        return True

    def may_begin(self) -> bool:
        """Whether there is any first byte at all. What a mask breaks off, engines break off at.
        To be asked once of a new matcher: a mask is what sets the limits of its lexer."""
        mask = self._inner.compute_bitmask()
        if self._inner.is_error():
            return False
        firsts = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        return all(self._inner.deep_copy().try_consume_tokens([byte]) == 1 for byte in firsts)

    def _look_at_lexer(self, refused: int) -> None:
        """A lexer that is over its limits refuses each byte without a word, until a matcher has to
        answer for it: a copy, for that is the end of it."""
        copy = self._inner.deep_copy()
        if not copy.consume_token(refused) and copy.get_error().startswith(LEXER_ERROR):
            self._lexer.spent = True


def matcher(grammar: str, pieces: Pieces | None = None, limits: LLParserLimits = LIMITS) -> Matcher:
    """Takes a while: for large grammars in a thread, where it lets the loop go on."""
    pieces = pieces or single_bytes()
    inner = LLMatcher(pieces.tokeniser, grammar, log_level=0, limits=limits)
    if inner.is_error():
        raise GrammarFault(inner.get_error().split("\n", 1)[0])
    return Matcher(inner, pieces, _Lexer())


def json_grammar(schema: Mapping[str, object]) -> str:
    """Of the texts of a schema, with some white space between their marks."""
    blanks = {"x-guidance": {"whitespace_pattern": f"[ \\t\\r\\n]{{0,{BLANKS}}}"}}
    return f"%llguidance {{}}\nstart: %json {orjson.dumps({**schema, **blanks}).decode()}"


class Expression:
    """A pattern of a schema, in linear time whatever the text. Raises `PatternFault`."""

    def __init__(self, pattern: str) -> None:
        self.translated = translate(pattern)
        sources = [(self.translated.source, False), *self.translated.looks]
        self._parts = [(_expression(source), negative) for source, negative in sources]

    def matches(self, text: str) -> bool:
        """Raises `OutOfSteps` where the pattern can be read in too many ways."""
        written = json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
        piece = written.encode("utf-8", "replace")
        return all(_fits(part, piece) is not negative for part, negative in self._parts)


class Expressions:
    """The patterns of one schema."""

    def __init__(self) -> None:
        self._known: dict[str, Expression | PatternFault] = {}

    def compile(self, pattern: str) -> Translated:
        """Raises `PatternFault`."""
        if pattern not in self._known:
            try:
                if len(self._known) >= MAX_PATTERNS:
                    raise PatternFault(f"it is one of more than {MAX_PATTERNS:,} patterns")
                self._known[pattern] = Expression(pattern)
            except PatternFault as fault:
                self._known[pattern] = fault
        found = self._known[pattern]
        if isinstance(found, PatternFault):
            raise found
        return found.translated

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found in a text; one that cannot be followed is found in every
        text."""
        with suppress(PatternFault):
            self.compile(pattern)
        found = self._known[pattern]
        return isinstance(found, PatternFault) or found.matches(text)


def opens_much(piece: bytes) -> bool:
    """Whether it has several marks, at each of which a matcher may open a thousand readings."""
    return sum(map(piece.count, b"[{:,")) > 2


def _is_plain(piece: bytes) -> bool:
    """Of ASCII alone, without an escape, and without DEL, which may stand as it is or escaped."""
    plain = piece.isascii() and b"\\" not in piece and b"\x7f" not in piece
    return plain and not opens_much(piece)


def _expression(source: str) -> Matcher:
    try:
        made = matcher(json_grammar({"type": "string", "pattern": source}))
    except GrammarFault as fault:
        raise PatternFault(f"it is too much to follow ({fault})") from None
    if not made.may_begin():
        raise PatternFault("it has too many beginnings")
    return made


def _fits(expression: Matcher, written: bytes) -> bool:
    copy = expression.copy()
    fits = copy.take(written) and copy.accepts
    if copy.broken:
        raise OutOfSteps
    return fits
