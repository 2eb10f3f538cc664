"""Tokens without a row of their own: those of a batch, and others to compare them with.

Knows the compact vocabulary and torch; knows no dialogue.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from scripts.demo import words
from scripts.demo.model import ExtraRows, Made
from trt_responses.prepare.demo_rows import pictures, properties
from trt_responses.tokens.control import FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from scripts.demo.rows import Codec, Example

SAMPLED = 768
"""How many of the others each batch has: each stands for many of its like."""
HARD_NEGATIVES, HARD_PLACES = 4, 48
"""Of each of so many places where one of them is to be written, the likeliest others join the
batch: of 200,000 one at least is likelier than the right one by chance, which a sample seldom
shows."""
MARGIN = 2.0
"""Nats by which training overstates them, so that they are rarer than it believes."""


class UnlistedTokens:
    """All unlisted tokens, with their pictures and properties. `whole`: each batch has all
    of them, as an engine does, in the place of a sample: a GPU can."""

    def __init__(
        self, known: Codec, seed: int, *, whole: bool = False, device: str = "cpu"
    ) -> None:
        self._first = known.first_unlisted
        self._rng = np.random.default_rng(seed)
        tokens = [words.spelled(token) for token in range(FIRST_CONTROL_ID)]
        self._pictures = torch.from_numpy(pictures(tokens)).bfloat16()
        self._properties = torch.from_numpy(properties(tokens)).bfloat16()
        self._owned = torch.tensor([token for token in known.used if token < FIRST_CONTROL_ID])
        self._free = np.setdiff1d(np.arange(FIRST_CONTROL_ID), np.array(known.used))
        self._all = self._all_rows(device) if whole else None
        self._row_of = np.arange(self._first + FIRST_CONTROL_ID)
        self._row_of[self._first + self._free] = self._first + np.arange(len(self._free))

    @property
    def whole(self) -> bool:
        return self._all is not None

    def _all_rows(self, device: str) -> ExtraRows:
        free = torch.from_numpy(self._free)
        pictures, properties = self._pictures[free], self._properties[free]
        return ExtraRows(
            pictures.to(device), properties.to(device), torch.zeros(len(free), device=device)
        )

    def with_extra_rows(
        self, rows: NDArray[np.int64], *, sampled: int = SAMPLED
    ) -> tuple[NDArray[np.int64], ExtraRows]:
        """The rows of a batch, numbered anew: unlisted tokens follow the model's own; and these."""
        if self._all is not None:
            return self._row_of[rows], self._all
        ours = np.unique(rows[rows >= self._first]) - self._first
        others = np.setdiff1d(self._rng.choice(self._free, sampled), ours)
        row_of = {int(token) + self._first: self._first + at for at, token in enumerate(ours)}
        found = rows.copy()
        for place in zip(*np.nonzero(rows >= self._first), strict=True):
            found[place] = row_of[int(rows[place])]
        ids = torch.from_numpy(np.concatenate((ours, others)))
        offsets = torch.zeros(len(ids))
        if len(others):
            offsets[len(ours) :] = math.log(len(self._free) / len(others)) + MARGIN
        return found, ExtraRows(self._pictures[ids].float(), self._properties[ids].float(), offsets)

    def ids(self, batch: Sequence[Example]) -> torch.Tensor:
        """The ids of a batch's unlisted tokens, in the order of their rows."""
        found = np.unique(np.concatenate([one.rows for one in batch]))
        return torch.from_numpy(found[found >= self._first].astype(np.int64) - self._first)

    def hard_negatives(
        self, hidden: torch.Tensor, targets: torch.Tensor, made: Made
    ) -> torch.Tensor:
        """The heads of the unlisted tokens that are the likeliest where another token is right:
        an id of `targets`, or -1 for one that has a row."""
        with torch.no_grad():
            picture = hidden.bfloat16() @ made.matrix.bfloat16()
            seen = hidden.bfloat16() @ made.properties.T.bfloat16()
            scores = picture @ self._pictures.T + seen @ self._properties.T
            scores[:, self._owned] = -torch.inf
            others = targets >= 0
            scores[others.nonzero()[:, 0], targets[others]] = -torch.inf
            found = scores.topk(HARD_NEGATIVES, dim=1).indices.flatten().unique()
            ids = found[~torch.isin(found, targets)]
        extra = ExtraRows(
            self._pictures[ids].float(), self._properties[ids].float(), torch.zeros(len(ids))
        )
        heads: torch.Tensor = made(extra)
        return heads
