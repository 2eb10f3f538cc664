"""Guides by llguidance, with the embedded engine's grammars: masks of the allowed next ids.

The vocabulary and grammars only: no sampling.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llguidance import LLMatcher, LLTokenizer
    from numpy.typing import NDArray

    from trt_responses.engine import GuideKind
    from trt_responses.tokens.vocabulary import Vocabulary

ENDS = frozenset({CONTROL.return_, CONTROL.call, CONTROL.end, CONTROL.endoftext})
"""The ids that may end a guide. No other control id is allowed inside one."""
GUIDES: Mapping[GuideKind, frozenset[int]] = dict.fromkeys(("json_schema", "regex", "lark"), ENDS)
KEPT = 64
"""Maximum compiled grammars."""
NEEDS_EXTRA = (
    "Guides need llguidance, which is not installed: pip install 'trt-responses[tensorrt]'."
)


class GuideFault(ValueError):
    """The guide cannot be compiled, or cannot continue; the message is a sentence."""


class Following:
    """One request's state in its guide."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self) -> NDArray[np.bool_]:
        """A mask of the allowed next ids, over the whole vocabulary."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=VOCABULARY_SIZE, bitorder="little").view(np.bool_)

    def take(self, token_id: int) -> None:
        """Advance by one id."""
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GuideFault(f"The guide failed: {self._matcher.get_error()}")


class Guides:
    """Compiles grammars to matchers, with a cache, since headers repeat."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._fresh: OrderedDict[str, LLMatcher] = OrderedDict()

    def load(self) -> None:
        """Load llguidance's tokenizer before serving: that holds the GIL for half a second."""
        try:
            tokeniser(self._vocabulary)
        except ModuleNotFoundError:
            raise StartupError(NEEDS_EXTRA) from None

    def follow(self, grammar: str) -> Following:
        """The start state of a guide with this grammar. Slow: never call it on the event loop."""
        matcher = self._fresh.pop(grammar, None) or self._compile(grammar)
        self._fresh[grammar] = matcher
        if len(self._fresh) > KEPT:
            self._fresh.popitem(last=False)
        return Following(matcher.deep_copy())

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher  # needs the extra

        matcher = LLMatcher(tokeniser(self._vocabulary), grammar, log_level=0)
        if matcher.is_error():
            raise GuideFault(f"The guide is not supported: {matcher.get_error()}")
        return matcher


class _Words:
    """The vocabulary in llguidance's form."""

    eos_token_id = CONTROL.return_
    bos_token_id = CONTROL.startoftext
    special_token_ids = range(FIRST_CONTROL_ID, VOCABULARY_SIZE)

    def __init__(self, vocabulary: Vocabulary) -> None:
        names = (vocabulary.control_name(n).encode() for n in self.special_token_ids)
        self.tokens = [*vocabulary.token_bytes, *names]
        self._encode = vocabulary.encode_plain

    def __call__(self, text: bytes | str) -> list[int]:
        words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._encode(words)


@cache
def tokeniser(vocabulary: Vocabulary) -> LLTokenizer:
    """llguidance's tokenizer for the vocabulary, created once."""
    from llguidance import LLTokenizer, TokenizerWrapper

    wrapped = TokenizerWrapper(_Words(vocabulary))
    return LLTokenizer(wrapped, n_vocab=VOCABULARY_SIZE, eos_token=sorted(ENDS))
