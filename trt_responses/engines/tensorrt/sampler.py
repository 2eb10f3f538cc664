"""Samples the next id from a row of candidates, by the distribution of the whole vocabulary.

The graph returns the likeliest logits and the log-sum-exp of all logits. So the mass of the others
is known at temperature 1, and is between two bounds at any other temperature. If a draw gives the
same id at both bounds, the others do not matter. Otherwise (the nucleus or the draw reaches into
them, or penalties may change their order) all logits of the row are fetched and the same number is
used again. So the result always equals a softmax over the whole vocabulary. No slots here.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from trt_responses.engine import Logprob

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from trt_responses.engine import GenerateOptions
    from trt_responses.engines.tensorrt.executor import Floats, Ids

    Doubles = NDArray[np.float64]
    Allowed = NDArray[np.bool_]

LARGEST = 600.0
"""The largest exponent of a weight; a larger one, of a broken model, would overflow."""
LSE_ERROR = 2.0**-14
"""The relative error of a sum of two hundred thousand float32 exponentials."""
LIKELY = 1024
"""The number of logits of a row that are sorted first, at a tenth of the cost of sorting all."""


class Row(NamedTuple):
    """One row of the executor's `Rows`."""

    values: Floats
    ids: Ids
    lse: float
    logits: Callable[[], Floats]


class NothingAllowed(ValueError):
    """Every id of the vocabulary is forbidden."""


class Part(NamedTuple):
    """The likeliest allowed ids, their weights, and bounds on the sum of all other weights."""

    ids: Ids
    weights: Doubles
    """The weights, best first, relative to the best one."""
    rest_low: float
    rest_high: float


class Sampler:
    """The sampler of one request, with its random numbers and the counts of sampled ids."""

    def __init__(self, options: GenerateOptions, seed: int, vocabulary: int) -> None:
        self._options = options
        self._random = random.Random(seed)
        self._vocabulary = vocabulary
        self._penalised = bool(options.presence_penalty or options.frequency_penalty)
        self._counts: Counter[int] = Counter()
        self._unbanned: Allowed | None = None
        if banned := [n for n in options.banned_ids if 0 <= n < vocabulary]:
            self._unbanned = np.ones(vocabulary, np.bool_)
            self._unbanned[banned] = False

    def pick(self, row: Row, allowed: Allowed | None = None) -> int:
        """The next id, among the allowed ones."""
        if self._unbanned is not None:
            allowed = self._unbanned if allowed is None else allowed & self._unbanned
        token_id = self._picked(row, allowed)
        if self._penalised:
            self._counts[token_id] += 1
        return token_id

    def _picked(self, row: Row, allowed: Allowed | None) -> int:
        number = self._random.random()
        if not self._penalised:
            part = self._candidates(row, allowed)
            if (place := self._drawn(part, number)) is not None:
                return int(part.ids[place])
        weights = self._all_weights(row, allowed)
        part = likeliest(weights, LIKELY)
        if (place := self._drawn(part, number)) is None:
            part = likeliest(weights, len(weights))
            place = self._drawn(part, number)
        assert place is not None  # all weights are present
        return int(part.ids[place])

    def _drawn(self, part: Part, number: float) -> int | None:
        return drawn(part, self._options, number) if len(part.ids) else None

    def _candidates(self, row: Row, allowed: Allowed | None) -> Part:
        values = row.values.astype(np.float64)
        ids, relative = row.ids, values - values[0]
        low, high = rest_bounds(relative, row.lse - float(values[0]), self._vocabulary, self._heat)
        if allowed is not None:
            mask = allowed[ids]
            ids, relative, low = ids[mask], relative[mask], 0.0  # all others may be forbidden
        return Part(ids, np.exp(relative / self._heat), low, high)

    def _all_weights(self, row: Row, allowed: Allowed | None) -> Doubles:
        logits = row.logits().astype(np.float64)
        if self._penalised:
            for token_id, count in self._counts.items():
                once, each = self._options.presence_penalty, self._options.frequency_penalty
                logits[token_id] -= once + each * count
        if allowed is not None:
            logits[~allowed] = -np.inf
        best = logits.max()
        if best == -np.inf:
            raise NothingAllowed("No id of the vocabulary is allowed here.")
        weights: Doubles = np.exp((logits - best) / self._heat)
        return weights

    @property
    def _heat(self) -> float:
        """The temperature; any value is right for a greedy choice."""
        return self._options.temperature if self._options.temperature > 0 else 1.0


def rest_bounds(relative: Doubles, lse: float, vocabulary: int, heat: float) -> tuple[float, float]:
    """Bounds on the sum of the weights of all ids but the candidates, at a temperature.

    At temperature 1 the log-sum-exp gives their sum, up to rounding. Otherwise the extremes are
    that all are equal, or that as few as possible have the mass, each as likely as the last
    candidate.
    """
    others, last = vocabulary - len(relative), float(relative[-1])
    if others <= 0:
        return 0.0, 0.0
    whole = math.exp(min(lse, LARGEST))
    plain = whole - float(np.exp(relative).sum())

    def extremes(mass: float) -> tuple[float, float]:
        spread = others * min(mass / others, 1.0) ** (1 / heat)
        return spread, mass * math.exp(min(last * (1 / heat - 1), LARGEST))

    most = others * math.exp(last / heat)
    low = min(extremes(max(plain - LSE_ERROR * whole, 0.0)))
    return min(low, most), min(max(extremes(max(plain + LSE_ERROR * whole, 0.0))), most)


def likeliest(weights: Doubles, count: int) -> Part:
    """The best weights in order, and the exact sum of the others."""
    if count < len(weights):
        ids = np.argpartition(-weights, count)[:count]
        rest = max(float(weights.sum() - weights[ids].sum()), 0.0)
    else:
        ids, rest = np.arange(len(weights)), 0.0
    ids = ids[np.lexsort((ids, -weights[ids]))]
    ids = ids[weights[ids] > 0]
    return Part(ids, weights[ids], rest, rest)


def drawn(part: Part, options: GenerateOptions, number: float) -> int | None:
    """The index that a number in [0, 1) selects; None if it depends on the other ids.

    Options apply in the order of all engines: top_k, top_p, min_p.
    """
    weights, low, high = part.weights, part.rest_low, part.rest_high
    if options.temperature <= 0:
        return 0
    if options.top_k > 0:
        if options.top_k > len(weights) and high > 0:
            return None
        weights, low, high = weights[: options.top_k], 0.0, 0.0
    sums = np.cumsum(weights)
    if options.top_p < 1:
        ends = _places(sums, low, high, options.top_p, "left")
        if ends is None:
            return None
        weights, low, high = weights[: ends + 1], 0.0, 0.0
    if options.min_p > 0:
        bar = options.min_p * weights[0]
        if weights[-1] >= bar and high > 0:
            return None
        weights, low, high = weights[weights >= bar], 0.0, 0.0
    return _places(sums[: len(weights)], low, high, number, "right")


def _places(
    sums: Doubles, low: float, high: float, share: float, side: Literal["left", "right"]
) -> int | None:
    """The index that a share of the total selects, if it is the same at both bounds and among these
    ids; else None."""
    total = float(sums[-1])
    first = int(np.searchsorted(sums, share * (total + low), side))
    last = int(np.searchsorted(sums, share * (total + high), side))
    if high == 0:
        return min(first, len(sums) - 1)  # rounding may put it after the last
    return first if first == last < len(sums) else None


def scored(row: Row, token_id: int, count: int) -> Logprob:
    """The log probability of an id before sampling options, and the likeliest alternatives."""
    places = np.flatnonzero(row.ids == token_id)
    value = row.values[places[0]] if places.size else row.logits()[token_id]
    top = zip(row.ids[:count].tolist(), (row.values[:count] - row.lse).tolist(), strict=True)
    return Logprob(token_id, float(value - row.lse), tuple(top))
