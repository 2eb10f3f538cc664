"""Matchers: llguidance grammars over bytes.

The only file of this folder that imports llguidance. Its limits refuse grammars that are too large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache

import orjson
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from trt_responses.schema.patterns import PatternFault, Translated, translate
from trt_responses.schema.refusals import OutOfSteps

BLANKS = 32
"""Maximum white space between two tokens of JSON; other engines' guides may write some."""
MAX_PATTERNS = 2_000
"""Maximum distinct patterns of one schema: each takes about 25 KB."""
AT_ONCE = 256
"""Bytes per call of a matcher: it holds the GIL during the call."""
LEXER_ERROR = "lexer error"


def _limits(items_in_row: int, fuel: int) -> LLParserLimits:
    """Limits for a few milliseconds per step and about 40 MB per text. All copies of a matcher
    share one lexer and its fuel, 10 to 20 ns per unit. A thousand names take 20,000."""
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
"""400 optional members take 1,600 items."""
LARK_LIMITS = _limits(250, 100_000)
"""Limits for a client's grammar, which may be very ambiguous."""


class _Table:
    """A vocabulary in the form that llguidance expects."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = (self.eos_token_id,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


class Pieces:
    """The steps of matchers: single bytes and `longer`, frequent pieces. A step's cost hardly
    depends on its length; 100,000 pieces take 20 MB and a quarter of a second."""

    def __init__(self, longer: Iterable[bytes] = ()) -> None:
        pieces = [*(bytes([n]) for n in range(256)), *(piece for piece in longer if len(piece) > 1)]
        self.ids = {piece: n for n, piece in enumerate(pieces)}
        self.plain = {piece: n for piece, n in self.ids.items() if _is_plain(piece)}
        """Pieces without escapes, which a matcher can consume as they are."""
        self.tokeniser = LLTokenizer(
            TokenizerWrapper(_Table((*pieces, b"<end>"))),
            n_vocab=len(pieces) + 1,
            eos_token=len(pieces),
            slices=[],
        )


@cache
def single_bytes() -> Pieces:
    """Pieces of single bytes only."""
    return Pieces()


class GrammarFault(ValueError):
    """llguidance refused a grammar. The message is the first line of its reason."""


class _Lexer:
    """State shared by a matcher's copies. After its limits it accepts no more bytes."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = False


class Matcher:
    """Matches a text incrementally."""

    __slots__ = ("_inner", "_lexer", "_pieces")

    def __init__(self, inner: LLMatcher, pieces: Pieces, lexer: _Lexer) -> None:
        self._inner = inner
        self._pieces = pieces
        self._lexer = lexer

    def copy(self) -> Matcher:
        return Matcher(self._inner.deep_copy(), self._pieces, self._lexer)

    def takes_plain(self, piece: bytes) -> bool:
        """Consume a plain piece if allowed; False otherwise. The fast path for most of a text."""
        step = self._pieces.plain.get(piece)
        return step is not None and self._inner.try_consume_tokens([step]) == 1

    def take(self, piece: bytes) -> bool:
        """Consume a piece. Returns False, and consumes nothing, if the text may not continue with
        it."""
        step = self._pieces.ids.get(piece)
        steps = [*piece] if step is None else [step]
        for begin in range(0, len(steps), AT_ONCE):
            part = steps[begin : begin + AT_ONCE]
            consumed = self._inner.try_consume_tokens(part)
            if consumed < len(part):
                self._check_lexer(part[consumed])
                self._inner.rollback(begin + consumed)
                return False
        return True

    def give_back(self, count: int) -> None:
        """Roll back `count` bytes that were consumed one by one."""
        self._inner.rollback(count)

    @property
    def broken(self) -> bool:
        """Whether it reached a limit and can no longer judge the text."""
        return self._lexer.spent or self._inner.is_error()

    @property
    def accepts(self) -> bool:
        """Whether the text may end here."""
        if not self._inner.is_accepting():
            self._check_lexer(self._pieces.tokeniser.eos_token)
            return self.broken
        return True

    def may_begin(self) -> bool:
        """Whether a first byte is possible within the limits that engines have too. Call it once on
        a new matcher: computing the mask initialises the lexer's limits."""
        mask = self._inner.compute_bitmask()
        if self._inner.is_error():
            return False
        firsts = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        return all(self._inner.deep_copy().try_consume_tokens([byte]) == 1 for byte in firsts)

    def _check_lexer(self, refused: int) -> None:
        """Detect a lexer over its limits, which refuses every byte silently. Consumes the refused
        byte on a copy, because the error is final."""
        copy = self._inner.deep_copy()
        if not copy.consume_token(refused) and copy.get_error().startswith(LEXER_ERROR):
            self._lexer.spent = True


def matcher(grammar: str, pieces: Pieces | None = None, limits: LLParserLimits = LIMITS) -> Matcher:
    """A matcher for a grammar. Slow for large grammars: call it in a thread; it releases the
    GIL."""
    pieces = pieces or single_bytes()
    inner = LLMatcher(pieces.tokeniser, grammar, log_level=0, limits=limits)
    if inner.is_error():
        raise GrammarFault(inner.get_error().split("\n", 1)[0])
    return Matcher(inner, pieces, _Lexer())


def json_grammar(schema: Mapping[str, object]) -> str:
    """The grammar of a schema's texts, with some white space between tokens."""
    blanks = {"x-guidance": {"whitespace_pattern": f"[ \\t\\r\\n]{{0,{BLANKS}}}"}}
    return f"%llguidance {{}}\nstart: %json {orjson.dumps({**schema, **blanks}).decode()}"


class Expression:
    """A pattern of a schema, matched in linear time. Raises `PatternFault`."""

    def __init__(self, pattern: str) -> None:
        self.translated = translate(pattern)
        sources = [(self.translated.source, False), *self.translated.looks]
        self._parts = [(_expression(source), negative) for source, negative in sources]

    def matches(self, text: str) -> bool:
        """Whether the pattern occurs in a text. Raises `OutOfSteps` for too many alternatives."""
        written = json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
        piece = written.encode("utf-8", "replace")
        return all(_fits(part, piece) is not negative for part, negative in self._parts)


class Expressions:
    """The compiled patterns of one schema."""

    def __init__(self) -> None:
        self._known: dict[str, Expression | PatternFault] = {}

    def compile(self, pattern: str) -> Translated:
        """The translated pattern. Raises `PatternFault`."""
        if pattern not in self._known:
            try:
                if len(self._known) >= MAX_PATTERNS:
                    raise PatternFault(f"it is one of more than {MAX_PATTERNS:,} patterns")
                self._known[pattern] = Expression(pattern)
            except PatternFault as fault:
                self._known[pattern] = fault
        expression = self._known[pattern]
        if isinstance(expression, PatternFault):
            raise expression
        return expression.translated

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the pattern occurs in a text; True for an unsupported pattern."""
        with suppress(PatternFault):
            self.compile(pattern)
        expression = self._known[pattern]
        return isinstance(expression, PatternFault) or expression.matches(text)


def opens_much(piece: bytes) -> bool:
    """Whether it has several tokens at each of which a matcher may open a thousand alternatives."""
    return sum(map(piece.count, b"[{:,")) > 2


_OTHER = rb"[\0-+\--9;-Z\]-z|}~]*"
_is_plain = re.compile(rb"(?:%b[\[{:,]){0,2}%b" % (_OTHER, _OTHER)).fullmatch
"""Matches ASCII without escapes, and without DEL, which JSON may escape or not, that does not open
much: one call for each of 100,000 pieces at every start."""


def _expression(source: str) -> Matcher:
    try:
        expression = matcher(json_grammar({"type": "string", "pattern": source}))
    except GrammarFault as fault:
        raise PatternFault(f"it is too complex ({fault})") from None
    if not expression.may_begin():
        raise PatternFault("it has too many beginnings")
    return expression


def _fits(expression: Matcher, written: bytes) -> bool:
    copy = expression.copy()
    fits = copy.take(written) and copy.accepts
    if copy.broken:
        raise OutOfSteps
    return fits


PIECES = 100_000
"""The number of most frequent tokens that a matcher takes in one step."""


@lru_cache(maxsize=1)
def pieces_of(token_bytes: tuple[bytes, ...]) -> Pieces:
    """The pieces of a vocabulary, whose tokens stand in the order of their frequency."""
    return Pieces(token_bytes[:PIECES])
