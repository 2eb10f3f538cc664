"""The number of cores for engines on the CPU."""

from __future__ import annotations

import os


def spare_cores() -> int:
    """All but one of the cores that this process may use.

    llama.cpp's threads spin until the slowest has finished: on two busy cores, two threads gave 13
    to 53 tokens/s where one gave 545.
    """
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not on all systems
        usable = os.cpu_count() or 1
    return max(1, usable - 1)
