"""The sampler draws from the whole vocabulary's distribution, though it sees the likeliest only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.engine import GenerateOptions
from trt_responses.engines.tensorrt.sampler import (
    NothingAllowed,
    Part,
    Row,
    Sampler,
    drawn,
    likeliest,
    rest_bounds,
    scored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]

VOCABULARY = 60
TOP = 8
DRAWS = 3000
PLAIN = GenerateOptions(1, ())


def row_of(logits: Floats, top: int = TOP, fetched: Callable[[], None] = lambda: None) -> Row:
    """What a graph gives for these logits."""
    ids = np.argsort(-logits, kind="stable")[:top]

    def whole() -> Floats:
        fetched()
        return logits.copy()

    lse = float(np.float32(np.log(np.exp(logits.astype(np.float64)).sum())))
    return Row(logits[ids], ids, lse, whole)


def softmax(logits: Floats, options: GenerateOptions, allowed: NDArray[np.bool_] | None) -> Doubles:
    """The distribution, from all logits and the long way round: the truth here."""
    scaled = logits.astype(np.float64) / options.temperature
    if allowed is not None:
        scaled[~allowed] = -np.inf
    chances = np.exp(scaled - scaled.max())
    order = np.argsort(-chances, kind="stable")
    kept = len(chances) if options.top_k <= 0 else options.top_k
    order = order[:kept]
    shares = chances[order] / chances[order].sum()
    inside = np.cumsum(shares) - shares < options.top_p
    order, shares = order[inside], shares[inside]
    sure = shares >= options.min_p * shares[0]
    found = np.zeros(len(chances))
    found[order[sure]] = shares[sure] / shares[sure].sum()
    return found


def chi_square_bound(freedom: int) -> float:
    """The 99.9 % quantile, by Wilson and Hilferty."""
    return float(freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3)


@dataclass(frozen=True)
class Wish:
    options: GenerateOptions
    spread: float = 2.0
    masked: bool = False


def wish(spread: float = 2.0, masked: bool = False, **given: Any) -> Wish:
    return Wish(replace(PLAIN, **given), spread, masked)


WISHES = {
    "plain": wish(),
    "flat": wish(spread=0.3),
    "cool": wish(temperature=0.6),
    "hot": wish(temperature=1.7),
    "nucleus": wish(top_p=0.8),
    "nucleus of a flat row": wish(spread=0.3, top_p=0.7),
    "hot nucleus": wish(temperature=1.5, top_p=0.9),
    "three": wish(top_k=3),
    "more than the candidates": wish(top_k=20),
    "min_p": wish(min_p=0.1),
    "min_p beyond the candidates": wish(spread=0.3, min_p=0.3),
    "all together": wish(temperature=1.3, top_k=15, top_p=0.9, min_p=0.02),
    "bans": wish(banned_ids=tuple(range(0, VOCABULARY, 3))),
    "guided": wish(masked=True),
    "guided, cool": wish(masked=True, temperature=0.7, top_p=0.9),
}


@pytest.mark.parametrize("name", WISHES)
def test_draws_are_distributed_as_a_softmax_over_the_whole_vocabulary(name: str) -> None:
    options, spread, masked = (getattr(WISHES[name], f) for f in ("options", "spread", "masked"))
    noise = np.random.default_rng(7)
    logits = (noise.standard_normal(VOCABULARY) * spread).astype(np.float32)
    allowed = noise.random(VOCABULARY) < 0.3 if masked else None
    expected_from = np.ones(VOCABULARY, np.bool_) if allowed is None else allowed.copy()
    expected_from[list(options.banned_ids)] = False
    expected = softmax(logits, options, expected_from) * DRAWS
    sampler, row = Sampler(options, 11, VOCABULARY), row_of(logits)
    found = np.bincount([sampler.pick(row, allowed) for _ in range(DRAWS)], minlength=VOCABULARY)
    assert found[expected == 0].sum() == 0
    often = expected >= 5
    parts_found = [*found[often], found[~often].sum()]
    parts_expected = [*expected[often], max(expected[~often].sum(), 1e-9)]
    distance = sum(
        (f - e) ** 2 / max(e, 1) for f, e in zip(parts_found, parts_expected, strict=True)
    )
    assert distance < chi_square_bound(max(len(parts_found) - 1, 1))


@settings(max_examples=300)
@given(
    seed=st.integers(0, 10_000),
    number=st.floats(0, 0.999999),
    spread=st.floats(0.01, 60),
    temperature=st.sampled_from([1e-6, 0.001, 0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.5]),
    top_k=st.sampled_from([0, 1, 5, 30]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_what_candidates_decide_the_whole_row_decides_likewise(
    seed: int,
    number: float,
    spread: float,
    temperature: float,
    top_p: float,
    top_k: int,
    min_p: float,
) -> None:
    options = replace(PLAIN, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    logits = np.random.default_rng(seed).standard_normal(VOCABULARY) * spread
    order = np.argsort(-logits, kind="stable")
    relative = logits[order] - logits[order[0]]
    lse = float(np.log(np.exp(relative).sum()))
    low, high = rest_bounds(relative[:TOP], lse, VOCABULARY, temperature)
    weights = np.exp(relative / temperature)
    rest = float(weights[TOP:].sum())
    assert low <= rest * (1 + 1e-9) + 1e-12
    assert rest <= high * (1 + 1e-9) + 1e-12
    whole = drawn(Part(order, weights, 0.0, 0.0), options, number)
    assert whole is not None
    few = drawn(Part(order[:TOP], weights[:TOP], low, high), options, number)
    assert few in (None, whole)
    middle = drawn(Part(order[:TOP], weights[:TOP], rest, rest), options, number)
    assert middle in (None, whole)


def test_a_sure_row_is_decided_without_the_others() -> None:
    calls: list[None] = []
    logits = np.full(VOCABULARY, -20, np.float32)
    logits[:3] = (2, 1, 0)
    row = row_of(logits, fetched=lambda: calls.append(None))
    sampler = Sampler(replace(PLAIN, temperature=0.8, top_p=0.99), 1, VOCABULARY)
    assert {sampler.pick(row) for _ in range(200)} == {0, 1, 2}
    assert not calls


@pytest.mark.parametrize("temperature", [1e-9, 1e-3, 2.0])
@pytest.mark.parametrize("steepness", [0.0, 1000.0])
def test_no_temperature_and_no_row_overflows(temperature: float, steepness: float) -> None:
    logits = (np.arange(VOCABULARY) * steepness).astype(np.float32)
    with np.errstate(over="raise"):
        row = Row(logits[::-1][:TOP], np.arange(VOCABULARY)[::-1][:TOP], logits[-1], logits.copy)
        token_id = Sampler(replace(PLAIN, temperature=temperature), 2, VOCABULARY).pick(row)
    assert token_id == VOCABULARY - 1 or not steepness


def test_greedy_takes_the_likeliest_that_is_allowed() -> None:
    logits = np.arange(VOCABULARY, dtype=np.float32)
    options = replace(PLAIN, temperature=0.0)
    assert Sampler(options, 0, VOCABULARY).pick(row_of(logits)) == VOCABULARY - 1
    banned = replace(options, banned_ids=tuple(range(VOCABULARY - TOP, VOCABULARY)))
    assert Sampler(banned, 0, VOCABULARY).pick(row_of(logits)) == VOCABULARY - TOP - 1
    only = np.zeros(VOCABULARY, np.bool_)
    only[4] = True
    assert Sampler(options, 0, VOCABULARY).pick(row_of(logits), only) == 4


def test_nothing_allowed_is_said() -> None:
    row, nothing = row_of(np.zeros(VOCABULARY, np.float32)), np.zeros(VOCABULARY, np.bool_)
    with pytest.raises(NothingAllowed):
        Sampler(PLAIN, 0, VOCABULARY).pick(row, nothing)


def test_a_presence_penalty_counts_once_and_a_frequency_penalty_each_time() -> None:
    logits = np.zeros(4, np.float32)
    logits[:] = (3.0, 2.0, 0.0, -9.0)
    once = replace(PLAIN, temperature=0.0, presence_penalty=1.5)
    sampler = Sampler(once, 0, 4)
    assert [sampler.pick(row_of(logits, 2)) for _ in range(4)] == [0, 1, 0, 0]
    each = replace(PLAIN, temperature=0.0, frequency_penalty=1.5)
    sampler = Sampler(each, 0, 4)
    assert [sampler.pick(row_of(logits, 2)) for _ in range(5)] == [0, 1, 0, 1, 0]


def test_a_negative_penalty_lifts_an_id_from_outside_the_candidates() -> None:
    logits = np.array([5, 4, 3, 2.9], np.float32)
    sampler = Sampler(replace(PLAIN, temperature=0.0, presence_penalty=-2.0), 0, 4)
    only = np.array([False, False, False, True])
    assert sampler.pick(row_of(logits, 2), only) == 3
    logits[3] = 3.5
    assert sampler.pick(row_of(logits, 2)) == 3


def test_a_seed_gives_its_own_draws_again_and_another_seed_others() -> None:
    row = row_of(np.random.default_rng(0).standard_normal(VOCABULARY).astype(np.float32))
    draws = [
        [sampler.pick(row) for _ in range(30)]
        for sampler in (Sampler(PLAIN, seed, VOCABULARY) for seed in (5, 5, 6))
    ]
    assert draws[0] == draws[1] != draws[2]


def test_log_probabilities_are_of_the_whole_vocabulary_for_any_id() -> None:
    logits = np.random.default_rng(3).standard_normal(VOCABULARY).astype(np.float32)
    truth = logits - np.log(np.exp(logits.astype(np.float64)).sum())
    row = row_of(logits)
    for token_id in (int(row.ids[0]), int(logits.argmin())):
        entry = scored(row, token_id, 3)
        assert entry.token_id == token_id
        assert entry.logprob == pytest.approx(truth[token_id], abs=1e-5)
        assert [n for n, _ in entry.top] == row.ids[:3].tolist()
        assert [v for _, v in entry.top] == pytest.approx(truth[row.ids[:3]].tolist(), abs=1e-5)


def test_the_likeliest_of_all_weights_leave_the_exact_rest() -> None:
    weights = np.array([0.0, 3.0, 1.0, 2.0, 0.5])
    part = likeliest(weights, 2)
    assert part.ids.tolist() == [1, 3]
    assert (part.rest_low, part.rest_high) == (1.5, 1.5)
    assert likeliest(weights, 5).ids.tolist() == [1, 3, 2, 4]  # what has no weight is left out
