"""What admission counts: the responses of each owner, and what it has left of its minute.

One server counts in its own memory; several front ends of one engine count together, by the same
seam (`fleet/counts.py`). Knows numbers; decides nothing.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from threading import RLock
from typing import Protocol

Rank = tuple[int, int, float]
"""The order of those who wait, the least first: how many responses the owner has running, when its
last turn was, and since when it waits."""


NEVER_USED = (0.0, -math.inf)
"""The level and time of a bucket that has had all the time there is to fill."""


class Level(Protocol):
    """One bucket's level, kept where several processes may read it."""

    def read(self) -> tuple[float, float]:
        """The level and the time at which it was true, which is endlessly long ago before the first
        `write`."""
        ...

    def write(self, level: float, at_s: float) -> None: ...


class OwnerCounts(Protocol):
    """The responses of one owner, over all front ends, and its buckets."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def background(self) -> int: ...

    @property
    def last_turn(self) -> int: ...

    @property
    def requests(self) -> Level: ...

    @property
    def tokens(self) -> Level: ...

    def add(self, *, running: int = 0, waiting: int = 0, background: int = 0) -> None:
        """Count so many more, or less, in this process, of the owner alone."""
        ...

    def take_turn(self) -> None:
        """Note that the owner has its turn now."""
        ...


class Counts(Protocol):
    """The responses of all owners, over all front ends."""

    @property
    def shared(self) -> bool:
        """Whether other processes count here, too, so that numbers may change at any time."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def waiting_tokens(self) -> int: ...

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock, under which no other process reads or changes anything. It cannot be entered
        twice."""
        ...

    def add(self, owner: OwnerCounts, running: int, waiting: int, waiting_tokens: int) -> None:
        """Count so many more of an owner, or less, in this process: for the owner, and for all."""
        ...

    def owner(self, name: str) -> OwnerCounts:
        """The counts of one owner, which hold until it has nothing any more. Raises `ServerBusy`
        when there are too many owners at once."""
        ...

    def offer(self, owner: OwnerCounts | None, since_s: float, now_s: float) -> None:
        """Tell the other processes who is next in this one's line, if anybody is."""
        ...

    def offers(self, now_s: float) -> list[Rank]:
        """The ranks of those who are next in the others' lines."""
        ...


class LocalLevel:
    """A level in this process's memory."""

    __slots__ = ("_at_s", "_level")

    def __init__(self) -> None:
        self._level, self._at_s = NEVER_USED

    def read(self) -> tuple[float, float]:
        return self._level, self._at_s

    def write(self, level: float, at_s: float) -> None:
        self._level, self._at_s = level, at_s


class LocalOwner:
    """The responses of one owner, in a server that is alone."""

    def __init__(self, counts: LocalCounts) -> None:
        self.running = self.waiting = self.background = self.last_turn = 0
        self.requests, self.tokens = LocalLevel(), LocalLevel()
        self._counts = counts

    def add(self, *, running: int = 0, waiting: int = 0, background: int = 0) -> None:
        self.running += running
        self.waiting += waiting
        self.background += background

    def take_turn(self) -> None:
        self._counts.turns += 1
        self.last_turn = self._counts.turns


class LocalCounts:
    """The responses of all owners, in a server that is alone."""

    shared = False
    lock = RLock()  # it is entered without a call of Python's

    def __init__(self) -> None:
        self.running = self.waiting = self.waiting_tokens = self.turns = 0
        self._owners: dict[str, LocalOwner] = {}

    def add(self, owner: OwnerCounts, running: int, waiting: int, waiting_tokens: int) -> None:
        self.running += running
        self.waiting += waiting
        self.waiting_tokens += waiting_tokens
        assert isinstance(owner, LocalOwner)
        owner.running += running
        owner.waiting += waiting

    def owner(self, name: str) -> LocalOwner:
        return self._owners.get(name) or self._owners.setdefault(name, LocalOwner(self))

    def offer(self, owner: OwnerCounts | None, since_s: float, now_s: float) -> None:
        pass

    def offers(self, now_s: float) -> list[Rank]:
        return []
