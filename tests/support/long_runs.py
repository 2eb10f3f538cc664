"""A tokeniser with the folder for long runs, as a server has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.long_runs.runs import Runs
from trt_responses.tokens.tokenise import SLICE, Tokeniser

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.tokens.vocabulary import Vocabulary


def tokeniser_of(
    vocabulary: Vocabulary,
    *,
    slice_chars: int = SLICE,
    native: Callable[[str], list[int]] | None = None,
) -> Tokeniser:
    """A tokeniser that takes any text."""
    native = native or vocabulary.encode_plain
    runs = Runs(native, vocabulary.token_bytes)
    return Tokeniser(vocabulary, slice_chars=slice_chars, native=native, long_runs=runs)
