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
"""The most tokens of one call that can never overflow an expert's capacity; a call that overflowed
is made again in pieces of this size."""


class ExecutorFault(RuntimeError):
    """The executor can compute no more; the message is a sentence."""


class Rows(NamedTuple):
    """The rows of one call, valid until the next: the likeliest ids of each, best first, and all
    logits on demand."""

    values: Floats
    """The logits of the candidates, [rows, top]."""
    ids: Ids
    """The ids of the candidates, [rows, top]."""
    lse: Floats
    """The log-sum-exp of each whole row, [rows]."""
    overflow: int
    """The tokens by which the fullest expert was over its capacity: above 0 the numbers are
    wrong."""
    logits: Callable[[int], Floats]
    """All logits of one row, which are copied only now."""


class Executor(Protocol):
    """N static slots. Token t of a slot stands in its row t, whatever stands behind `lens` or `at`
    changes nothing: so a slot is rewound by saying a smaller number."""

    @property
    def slots(self) -> int: ...

    @property
    def length(self) -> int:
        """The number of tokens that one slot holds."""
        ...

    @property
    def chunk(self) -> int:
        """The most tokens of one `prefill`."""
        ...

    @property
    def top(self) -> int:
        """The number of candidates in a row."""
        ...

    @property
    def vocabulary(self) -> int: ...

    def decode(self, ids: Ids, lens: Ids, asked: range | None = None) -> Rows:
        """Compute one more token for every slot, a row for each; idle slots write behind their end.
        Slots outside `asked` may be left out, and their rows must not be read."""
        ...

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        """Compute a chunk of one slot, behind the `at` tokens that are there. The one row is that
        of the last token."""
        ...

    def close(self) -> None: ...
