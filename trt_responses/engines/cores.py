"""How many cores engines that run on the CPU take."""

from __future__ import annotations

import os


def spare_cores() -> int:
    """All but one of the cores this process may use.

    llama.cpp's threads spin until the slowest is there: on two cores of which something else
    wants a part, two threads gave 13 to 53 tokens/s where one gave 545.
    """
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not everywhere
        usable = os.cpu_count() or 1
    return max(1, usable - 1)
