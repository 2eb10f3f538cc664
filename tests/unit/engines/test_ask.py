"""What is asked of an engine to learn which options of sampling it does nothing with."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from trt_responses.engines.ask import ignored_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import GenerateOptions

VOCABULARY = 50


class Sampler:
    """A model of fifty ids that honours all options but those it is told to leave out. It likes to
    repeat what it reads."""

    def __init__(self, ignored: frozenset[str] = frozenset(), *, silent: bool = False) -> None:
        self._ignored = ignored
        self._silent = silent
        self._own = Random(1)

    async def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> list[int]:
        if self._silent:
            return []
        ignored = self._ignored
        random = self._own if options.seed is None or "seed" in ignored else Random(options.seed)
        logits = [8.0 if n == prompt_ids[-1] % VOCABULARY else -n / 100 for n in range(VOCABULARY)]
        if "banned_ids" not in ignored:
            logits = [-99.0 if n in options.banned_ids else v for n, v in enumerate(logits)]
        least_p = 0.0 if "min_p" in ignored else options.min_p
        penalty = 0.0 if "frequency_penalty" in ignored else options.frequency_penalty
        said: list[int] = []
        for _ in range(options.max_tokens):
            left = [v - penalty * said.count(n) for n, v in enumerate(logits)]
            if options.temperature == 0 or least_p == 1:
                said.append(max(range(VOCABULARY), key=left.__getitem__))
            else:
                said += random.choices(range(VOCABULARY), [2.0 ** (v / 2) for v in left])
        return said


@pytest.mark.parametrize(
    ("ignored", "found"),
    [
        (set(), set()),
        ({"banned_ids"}, {"banned_ids"}),
        ({"seed"}, {"seed"}),
        ({"min_p"}, {"min_p"}),
        ({"frequency_penalty"}, {"frequency_penalty", "presence_penalty"}),
        ({"seed", "banned_ids"}, {"seed", "banned_ids"}),
    ],
    ids=["none", "bans", "seed", "min_p", "penalties", "two"],
)
def test_each_option_that_is_ignored_is_named(ignored: set[str], found: set[str]) -> None:
    assert asyncio.run(ignored_options(Sampler(frozenset(ignored)))) == found


def test_an_engine_that_says_nothing_is_accused_of_nothing() -> None:
    assert asyncio.run(ignored_options(Sampler(silent=True))) == set()
