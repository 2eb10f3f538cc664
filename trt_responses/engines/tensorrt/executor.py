"""The seam below the batch: computes one decode step of all slots, or a chunk of one.

Rows of numbers only: no requests, no thread and no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Floats = NDArray[np.float32]

EXACT_TOKENS = 64
"""Maximum tokens of a call that cannot overflow an expert's capacity; a call that overflowed is
repeated in pieces of this size."""


class ExecutorFault(RuntimeError):
    """The executor can no longer compute; the message is a sentence."""


class Rows(NamedTuple):
    """The rows of one call, valid until the next: the likeliest ids, best first, and all logits on
    demand."""

    values: Floats
    """The logits of the candidates, [rows, top]."""
    ids: Ids
    """The ids of the candidates, [rows, top]."""
    lse: Floats
    """The log-sum-exp of each whole row, [rows]."""
    overflow: int
    """Tokens above the capacity of the fullest expert; if not 0, the numbers are wrong."""
    logits: Callable[[int], Floats]
    """All logits of one row, copied on demand."""


class Executor(Protocol):
    """N static slots. Token t of a slot is in its row t, and rows after `lens` or `at` are ignored:
    a slot is rewound by passing a smaller length."""

    slots: int
    length: int
    """The capacity of a slot in tokens."""
    chunk: int
    """The maximum tokens of one `prefill`."""
    top: int
    """The number of candidates in a row."""
    vocabulary: int

    def decode(self, ids: Ids, lens: Ids, needed: range | None = None) -> Rows:
        """Compute one more token for every slot, one row each; idle slots write after their end.
        Slots outside `needed` may be skipped, and their rows must not be read."""
        ...

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        """Compute a chunk of one slot, after its first `at` tokens. Returns the row of the last
        token."""
        ...

    def close(self) -> None: ...
