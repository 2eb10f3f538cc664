"""Processes that make what a training learns from, where one cannot keep up with a GPU.

Knows processes; knows no conversation and no model.
"""

from __future__ import annotations

import itertools
import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.queues import Queue

T = TypeVar("T")
AHEAD = 48
"""What each process makes before it waits."""


@contextmanager
def making(count: int, make: Callable[[int], Iterator[T]]) -> Iterator[Iterator[T]]:
    """What `count` processes make, in turns and in a fixed order; none: this process makes it."""
    if count == 0:
        yield make(0)
        return
    spawn = multiprocessing.get_context("spawn")
    queues: list[Queue[T]] = [spawn.Queue(AHEAD) for _ in range(count)]
    makers = [
        spawn.Process(target=_fill, args=(queue, make, number), daemon=True)
        for number, queue in enumerate(queues)
    ]
    for maker in makers:
        maker.start()
    try:
        yield (queue.get() for queue in itertools.cycle(queues))
    finally:
        for maker in makers:
            maker.terminate()
            maker.join()


def _fill(queue: Queue[T], make: Callable[[int], Iterator[T]], number: int) -> None:
    for made in make(number):
        queue.put(made)
