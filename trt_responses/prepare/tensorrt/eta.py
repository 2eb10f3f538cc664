"""How much of a row of unequal pieces of work is left, by what the first of them took.

Knows sizes, names and a clock; knows nothing of what is being done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.prepare.phases import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BYTES_PER_S = 60e6
"""Bytes compiled in a second, measured on two cores; used only until the first piece is done."""
START_S = 1.0
"""Seconds that each piece takes however small it is: a process, and its packages."""


class Eta:
    """An estimate of the time left, corrected by what the pieces before took."""

    def __init__(self, clock: Callable[[], float], sizes: Mapping[str, float]) -> None:
        self._clock = clock
        self._work = {name: START_S + size / BYTES_PER_S for name, size in sizes.items()}
        self._began = clock()

    def begin(self, name: str) -> str:
        """Begin a piece. Returns its place among all, and the time that is left with it."""
        names = list(self._work)
        at = names.index(name)
        before = sum(self._work[n] for n in names[:at])
        rest = sum(self._work.values()) - before
        slower = (self._clock() - self._began) / before if before else 1.0
        return f"{at + 1} of {len(names)}, about {rounded(rest * slower)} left"
