"""Estimates the time left for several unequal pieces of work, from the time of the first ones.
Works with sizes, names and seconds; does none of the work.
"""

from __future__ import annotations

from collections.abc import Mapping

from trt_responses.prepare.phases import rounded

BYTES_PER_S = 60e6
"""Bytes compiled per second, measured on two cores; used until the first piece is done."""
START_S = 1.0
"""Seconds for a piece of any size: to start a process and import its packages."""


def time_left(sizes: Mapping[str, float], name: str, spent_s: float) -> str:
    """The place of a piece, and the time left with its own. `spent_s`: the time of the pieces
    before it, which corrects the estimate."""
    work = {piece: START_S + size / BYTES_PER_S for piece, size in sizes.items()}
    names = list(work)
    at = names.index(name)
    before = sum(work[piece] for piece in names[:at])
    rest = sum(work.values()) - before
    slower = spent_s / before if before else 1.0
    return f"{at + 1} of {len(names)}, about {rounded(rest * slower)} left"
