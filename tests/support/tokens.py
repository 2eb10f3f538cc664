"""The vocabulary, and texts as ids without an event loop."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from trt_responses.backends import dialects

if TYPE_CHECKING:
    from trt_responses.tokens.tokenise import Tokeniser


vocabulary = dialects.vocabulary
"""The one that apps take as well: each further one takes 65 MB, and its tables 35."""


def encoded(tokeniser: Tokeniser, text: str, at_most: int | None = None) -> array[int]:
    """The ids of a text, made without a pause."""
    ids: array[int] = array("I")
    for _ in tokeniser.steps(text, ids, at_most):
        pass
    return ids
