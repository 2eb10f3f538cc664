"""What the front ends of a fleet count together, in a file that all have mapped into memory.

Each front end has a column of its own, which it alone writes, and which the fleet clears when it
has died: a killed front end's responses are counted no more. Turns and what is left of a minute are
an owner's, in any process. A lock on the file, which the kernel takes from the dead, makes it one
act to read and to change. Knows numbers; knows no response and no limit.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trt_responses.errors import ServerBusy
from trt_responses.features.limits.counts import NEVER_USED, OwnerCounts, Rank

COUNTS = "counts"
"""The file's name in a fleet's folder."""
OWNERS = 4096
"""The most owners that are counted at once; beyond, the one that was counted longest ago is
forgotten."""
LOCK_TRIES, LOCK_WAIT_S = 100, 0.0001
"""The tries to take the lock, and the seconds between them. It is held for microseconds. A process
that was stopped with it must not stop the others: after these tries they go on without it, and may
count a request or a turn wrongly."""
OFFER_S = 0.25
"""Seconds after which an offer is of a process that hangs, and is skipped."""

DIGEST_BYTES = 16
TURNS = struct.Struct("=Q")
OWNER = struct.Struct("=Qdddd")
"""An owner's row: its last turn; level and time of its requests, and of its tokens."""
LAST_TURN, LEVEL = struct.Struct("=Q"), struct.Struct("=dd")
HEAD = struct.Struct("=IIQIdd")
"""The head of a column: running, waiting, the tokens that wait; of its offer the owner's row from 1
on, since when it waits, and when it was offered."""
TOTALS, OFFER = struct.Struct("=IIQ"), struct.Struct("=Idd")
CELL = struct.Struct("=III")
"""The cell of one owner in one column: running, waiting, in the background."""

DIGESTS_AT = TURNS.size
OWNERS_AT = DIGESTS_AT + OWNERS * DIGEST_BYTES
COLUMNS_AT = OWNERS_AT + OWNERS * OWNER.size
COLUMN_BYTES = HEAD.size + OWNERS * CELL.size


def make_counts(path: Path, columns: int) -> None:
    """Make the file, with a column for each front end."""
    path.write_bytes(bytes(COLUMNS_AT + columns * COLUMN_BYTES))


class SharedCounts:
    """The counts as one front end sees and changes them."""

    shared = True

    def __init__(self, path: Path, number: int) -> None:
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)
        columns = (len(self._map) - COLUMNS_AT) // COLUMN_BYTES
        self._columns = [COLUMNS_AT + column * COLUMN_BYTES for column in range(columns)]
        self._own = self._columns[number]
        self._rows: dict[str, int] = {}

    def close(self) -> None:
        self._map.close()
        self._file.close()

    def clear(self) -> None:
        """Clear this column: nothing of it runs or waits any more."""
        with self.lock:
            self._map[self._own : self._own + COLUMN_BYTES] = bytes(COLUMN_BYTES)

    @property
    @contextmanager
    def lock(self) -> Iterator[None]:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_WAIT_S)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def running(self) -> int:
        return self._total(0)

    @property
    def waiting(self) -> int:
        return self._total(1)

    @property
    def waiting_tokens(self) -> int:
        return self._total(2)

    def _total(self, which: int) -> int:
        counts, unpack = self._map, TOTALS.unpack_from
        return sum([unpack(counts, at)[which] for at in self._columns])

    def add(self, owner: OwnerCounts, running: int, waiting: int, waiting_tokens: int) -> None:
        owner.add(running=running, waiting=waiting)
        runs, waits, tokens = TOTALS.unpack_from(self._map, self._own)
        own = (runs + running, waits + waiting, tokens + waiting_tokens)
        TOTALS.pack_into(self._map, self._own, *own)

    def owner(self, name: str) -> SharedOwner:
        digest = hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES
        ).digest()
        row = self._rows.get(name)
        if row is None or self._digest(row) != digest:
            row = self._find(digest)
            if row is None:
                row = self._new_row(digest)
            if len(self._rows) >= OWNERS:
                self._rows.clear()
            self._rows[name] = row
        return SharedOwner(self, row)

    def _digest(self, row: int) -> bytes:
        at = DIGESTS_AT + row * DIGEST_BYTES
        return self._map[at : at + DIGEST_BYTES]

    def _find(self, digest: bytes) -> int | None:
        at = DIGESTS_AT
        while (at := self._map.find(digest, at, OWNERS_AT)) >= 0:
            row, odd = divmod(at - DIGESTS_AT, DIGEST_BYTES)
            if not odd:
                return row
            at += 1
        return None

    def _new_row(self, digest: bytes) -> int:
        """A free row, or that of the owner who has had nothing for the longest time."""
        row = self._find(bytes(DIGEST_BYTES))
        if row is None:
            idle = [row for row in range(OWNERS) if not any(self.cells(row))]
            row = min(idle, key=self._last_used_s, default=None)
        if row is None:
            raise ServerBusy(f"{OWNERS} owners are served at once: try again.")
        at = DIGESTS_AT + row * DIGEST_BYTES
        self._map[at : at + DIGEST_BYTES] = digest
        OWNER.pack_into(self._map, OWNERS_AT + row * OWNER.size, 0, *NEVER_USED, *NEVER_USED)
        return row

    def _last_used_s(self, row: int) -> float:
        return max(self.level(row, which).read()[1] for which in range(2))

    def cells(self, row: int) -> tuple[int, int, int]:
        """The numbers of an owner that run, wait and are in the background, over all columns."""
        at = HEAD.size + row * CELL.size
        running = waiting = background = 0
        for column in self._columns:
            cell = CELL.unpack_from(self._map, column + at)
            running, waiting = running + cell[0], waiting + cell[1]
            background += cell[2]
        return running, waiting, background

    def add_cells(self, row: int, more: tuple[int, int, int]) -> None:
        at = self._own + HEAD.size + row * CELL.size
        running, waiting, background = CELL.unpack_from(self._map, at)
        own = (running + more[0], waiting + more[1], background + more[2])
        CELL.pack_into(self._map, at, *own)

    def last_turn(self, row: int) -> int:
        turn: int = LAST_TURN.unpack_from(self._map, OWNERS_AT + row * OWNER.size)[0]
        return turn

    def take_turn(self, row: int) -> None:
        turn = TURNS.unpack_from(self._map)[0] + 1
        TURNS.pack_into(self._map, 0, turn)
        LAST_TURN.pack_into(self._map, OWNERS_AT + row * OWNER.size, turn)

    def level(self, row: int, which: int) -> SharedLevel:
        at = OWNERS_AT + row * OWNER.size + LAST_TURN.size + which * LEVEL.size
        return SharedLevel(self._map, at)

    def offer(self, owner: OwnerCounts | None, since_s: float, now_s: float) -> None:
        row = owner.row + 1 if isinstance(owner, SharedOwner) else 0
        OFFER.pack_into(self._map, self._own + TOTALS.size, row, since_s, now_s)

    def offers(self, now_s: float) -> list[Rank]:
        found = []
        for column in self._columns:
            row, since_s, offered_s = OFFER.unpack_from(self._map, column + TOTALS.size)
            if column != self._own and row and offered_s + OFFER_S > now_s:
                found.append((self.cells(row - 1)[0], self.last_turn(row - 1), since_s))
        return found


class SharedOwner:
    """One owner's row."""

    __slots__ = ("_counts", "row")

    def __init__(self, counts: SharedCounts, row: int) -> None:
        self._counts = counts
        self.row = row

    @property
    def running(self) -> int:
        return self._counts.cells(self.row)[0]

    @property
    def waiting(self) -> int:
        return self._counts.cells(self.row)[1]

    @property
    def background(self) -> int:
        return self._counts.cells(self.row)[2]

    @property
    def last_turn(self) -> int:
        return self._counts.last_turn(self.row)

    @property
    def requests(self) -> SharedLevel:
        return self._counts.level(self.row, 0)

    @property
    def tokens(self) -> SharedLevel:
        return self._counts.level(self.row, 1)

    def add(self, *, running: int = 0, waiting: int = 0, background: int = 0) -> None:
        self._counts.add_cells(self.row, (running, waiting, background))

    def take_turn(self) -> None:
        self._counts.take_turn(self.row)


class SharedLevel:
    """A bucket's level in the map."""

    __slots__ = ("_at", "_map")

    def __init__(self, counts_map: mmap.mmap, at: int) -> None:
        self._map, self._at = counts_map, at

    def read(self) -> tuple[float, float]:
        level, at_s = LEVEL.unpack_from(self._map, self._at)
        return level, at_s

    def write(self, level: float, at_s: float) -> None:
        LEVEL.pack_into(self._map, self._at, level, at_s)
