"""Estimates the time left for several unequal pieces of work, from the time of the first ones.
Works with sizes, names and a clock; does none of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trt_responses.prepare.phases import rounded

BYTES_PER_S = 60e6
"""Bytes compiled per second, measured on two cores; used until the first piece is done."""
START_S = 1.0
"""Seconds for a piece of any size: to start a process and import its packages."""


class Eta:
    """An estimate of the time left, corrected by the time of earlier pieces."""

    def __init__(self, clock: Callable[[], float], sizes: Mapping[str, float]) -> None:
        self._clock = clock
        self._work = {name: START_S + size / BYTES_PER_S for name, size in sizes.items()}
        self._began = clock()

    def begin(self, name: str) -> str:
        """Begin a piece. Returns its place and the time left, with its own."""
        names = list(self._work)
        at = names.index(name)
        before = sum(self._work[n] for n in names[:at])
        rest = sum(self._work.values()) - before
        slower = (self._clock() - self._began) / before if before else 1.0
        return f"{at + 1} of {len(names)}, about {rounded(rest * slower)} left"
