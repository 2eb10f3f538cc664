"""An executor without a model: the next logits are a hash of what its cache holds. For tests only.

It keeps the tensor contract as the real ones do: every row of a step writes where it is told, idle
ones too, and what stands behind the end of a slot is left as it is. So an engine that forgets to
write an id, reads another's slot, or trusts a stale one, says something else than it would alone.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from trt_responses.engines.tensorrt.executor import ExecutorFault, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.engines.tensorrt.executor import Floats, Ids

Call = tuple[Literal["decode", "prefill"], tuple[int, ...]]
"""The slots' lengths before a decode step; or a chunk's slot, place and size."""


@dataclass
class HashExecutor:
    """`spread` is how far apart the logits are: far apart is a model that is sure."""

    slots: int = 3
    length: int = 64
    chunk: int = 8
    top: int = 16
    vocabulary: int = 200
    spread: float = 4.0
    overflows: Callable[[int], bool] = lambda size: False
    """Whether a chunk of that size asks an expert for too much."""
    before: Callable[[], None] = lambda: None
    """Called before each step: to wait, or to fail."""
    calls: list[Call] = field(default_factory=list)
    closed: bool = False
    fetched: int = 0
    """Whole rows that were asked for."""

    def __post_init__(self) -> None:
        self._cache = np.zeros((self.slots, self.length), np.int64)

    def decode(self, ids: Ids, lens: Ids, needed: range | None = None) -> Rows:
        """What is not asked is rubbish here."""
        self.before()
        assert ids.shape == lens.shape == (self.slots,)
        assert (lens >= 0).all()
        assert (lens < self.length).all(), "a row wrote behind its slot's end"
        self.calls.append(("decode", tuple(lens.tolist())))
        self._cache[np.arange(self.slots), lens] = ids
        rows = self._rows([row[: n + 1] for row, n in zip(self._cache, lens, strict=True)], 0)
        for slot in set(range(self.slots)) - set(needed or range(self.slots)):
            rows.lse[slot] = np.nan
        return rows

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        self.before()
        assert 0 < len(ids) <= self.chunk
        assert at + len(ids) <= self.length
        self.calls.append(("prefill", (slot, at, len(ids))))
        over = self.overflows(len(ids))
        self._cache[slot, at : at + len(ids)] = 0 if over else ids  # what it wrote is worth nothing
        return self._rows([self._cache[slot, : at + len(ids)]], int(over))

    def close(self) -> None:
        self.closed = True

    def logits(self, ids: Ids) -> Floats:
        """What the model says after these ids."""
        noise = np.random.default_rng(zlib.crc32(ids.tobytes()))
        return noise.standard_normal(self.vocabulary, np.float32) * np.float32(self.spread)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """What it would say alone."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(np.asarray(ids, np.int64)).argmax()))
        return ids[len(prompt) :]

    def _rows(self, held: Sequence[Ids], overflow: int) -> Rows:
        logits = np.stack([self.logits(ids) for ids in held])
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : self.top]
        values = np.take_along_axis(logits, ids, axis=1)
        lse = np.log(np.exp(logits.astype(np.float64)).sum(axis=1)).astype(np.float32)

        def row(place: int) -> Floats:
            self.fetched += 1
            copy: Floats = logits[place].copy()
            return copy

        return Rows(values, ids, lse, overflow, row)


def fails(message: str, after: int = 0) -> Callable[[], None]:
    """A step that fails, behind so many that do not."""
    steps = iter(range(after))

    def before() -> None:
        if next(steps, None) is None:
            raise ExecutorFault(message)

    return before
