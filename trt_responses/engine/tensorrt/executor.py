"""What computes: one decode step of every slot, or a chunk of one. The seam below the batch.

Knows rows of numbers; knows no request, no thread and no library.
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
"""So many tokens in one call can never overflow an expert's capacity: overflow re-runs in these."""


class ExecutorFault(RuntimeError):
    """The executor can compute no more; its message is a sentence."""


class Rows(NamedTuple):
    """What one call gave, good until the next: the likeliest ids of each row, best first, and the
    rest on demand."""

    values: Floats
    """Logits of the candidates, [rows, top]."""
    ids: Ids
    """The candidates, [rows, top]."""
    lse: Floats
    """The logarithm of the sum of all exponentials, [rows]."""
    overflow: int
    """By how many tokens an expert was asked for too much: above 0 the numbers are wrong."""
    logits: Callable[[int], Floats]
    """All logits of one row, copied only now."""


class Executor(Protocol):
    """N static slots. Token t of a slot stands in its row t, whatever stands behind `lens` or `at`
    changes nothing: so a slot is rewound by saying a smaller number."""

    @property
    def slots(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens that one slot holds."""
        ...

    @property
    def chunk(self) -> int:
        """Most tokens of one `prefill`."""
        ...

    @property
    def top(self) -> int:
        """Candidates in a row."""
        ...

    @property
    def vocabulary(self) -> int: ...

    def decode(self, ids: Ids, lens: Ids, asked: range | None = None) -> Rows:
        """One token more for every slot, a row for each; idle slots write behind their end. Slots
        outside `asked` may be left out, and what their rows hold is not to be read."""
        ...

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        """A chunk of one slot, behind the `at` tokens that are there; the one row is its last."""
        ...

    def close(self) -> None: ...
