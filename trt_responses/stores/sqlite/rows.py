"""Records, blocks and their counts as rows. Each function is part of one transaction.

Tables only: no threads and no event loop.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.stores.at_rest.blocks import Packed
from trt_responses.stores.at_rest.record import checked, damaged, row_of, whole

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from trt_responses.store import Record
    from trt_responses.stores.at_rest.record import AtRest
    from trt_responses.stores.cache import BlockCache
    from trt_responses.stores.limits import Bounds
    from trt_responses.stores.whole import Spell

SWEPT_AT_ONCE = 500


class Now(NamedTuple):
    """The current time on the clock of ages and on the clock of leases."""

    s: float
    lease_s: float


def put(db: sqlite3.Connection, rest: AtRest, used_at: int) -> list[int]:
    """Insert a record. Returns the numbers of its blocks."""
    drop(db, rest.row.id)
    db.execute("DELETE FROM expired WHERE id = ?", (rest.row.id,))
    numbers = [_block(db, rest, place) for place in range(len(rest.packed))]
    db.executemany(
        "INSERT INTO shares VALUES (?, ?) "
        "ON CONFLICT (block) DO UPDATE SET count = count + excluded.count",
        Counter(numbers).items(),
    )
    row = rest.row
    db.execute(
        "INSERT INTO records (id, owner, body, blocks, prior_count, input_count, continuable, "
        "date, created_at, used_at, seal, version, vocabulary) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row.id, row.owner, row.body, array("q", numbers).tobytes()),
            *(row.prior_count, row.input_count, row.continuable, row.date),
            *(row.created_at, used_at, rest.seal, row.version, row.vocabulary),
        ),
    )
    _count(db, 1, len(row.body))
    return numbers


def _block(db: sqlite3.Connection, rest: AtRest, place: int) -> int:
    digest = rest.packed[place].digest
    row = db.execute("SELECT n FROM blocks WHERE digest = ?", (digest,)).fetchone()
    if row is not None:
        return int(row[0])
    data = rest.data(place)
    number = db.execute("INSERT INTO blocks (digest, data) VALUES (?, ?)", (digest, data)).lastrowid
    assert number is not None
    _count(db, 0, len(data))
    return number


def drop(db: sqlite3.Connection, response_id: str) -> None:
    """Delete a record, if it exists, and each block that no other record uses."""
    row = db.execute(
        "SELECT n, length(body), blocks FROM records WHERE id = ?", (response_id,)
    ).fetchone()
    if row is None:
        return
    number, size, blocks = row
    db.execute("DELETE FROM records WHERE n = ?", (number,))
    counts = Counter(array("q", blocks))
    db.executemany(
        "UPDATE shares SET count = count - ? WHERE block = ?",
        [(count, block) for block, count in counts.items()],
    )
    named = json.dumps([*counts])
    left = "SELECT block FROM shares WHERE count = 0 AND block IN (SELECT value FROM json_each(?))"
    size_left = f"SELECT sum(length(data)) FROM blocks WHERE n IN ({left})"
    freed = db.execute(size_left, (named,)).fetchone()
    db.execute(f"DELETE FROM blocks WHERE n IN ({left})", (named,))
    db.execute(f"DELETE FROM shares WHERE block IN ({left})", (named,))
    _count(db, -1, -size - (freed[0] or 0))


def _count(db: sqlite3.Connection, records: int, size: int) -> None:
    db.execute("UPDATE totals SET records = records + ?, bytes = bytes + ?", (records, size))


def touch(db: sqlite3.Connection, used: Iterable[tuple[int, str]]) -> None:
    """Update the time of the last use of records."""
    db.executemany("UPDATE records SET used_at = max(used_at, ?) WHERE id = ?", used)


# --- eviction ---------------------------------------------------------------------------------


def evict(db: sqlite3.Connection, bounds: Bounds, now: Now, dropped: Counter[str]) -> None:
    """Drop old records, then the least recently used, until the rest fits. Counts in `dropped`."""
    sweep(db, bounds, now, dropped)
    while True:
        size, records = totals(db)
        if records <= 1 or (size <= bounds.max_bytes and records <= bounds.max_records):
            return
        least = db.execute("SELECT id, owner FROM records ORDER BY used_at LIMIT 1").fetchone()
        expire(db, bounds, *least)
        dropped["room"] += 1


def totals(db: sqlite3.Connection) -> tuple[int, int]:
    """The stored bytes and the number of records."""
    size, records = db.execute("SELECT bytes, records FROM totals").fetchone()
    return size, records


def sweep(db: sqlite3.Connection, bounds: Bounds, now: Now, dropped: Counter[str]) -> None:
    """Drop old records and old jobs without a lease."""
    if bounds.max_age_s is None:
        return
    oldest = now.s - bounds.max_age_s
    for response_id, owner in db.execute(
        "SELECT id, owner FROM records WHERE created_at <= ? LIMIT ?", (oldest, SWEPT_AT_ONCE)
    ).fetchall():
        expire(db, bounds, response_id, owner)
        dropped["age"] += 1
    for job_id, owner in db.execute(
        "SELECT id, owner FROM jobs WHERE created_at <= ? AND lease_until <= ? LIMIT ?",
        (oldest, now.lease_s, SWEPT_AT_ONCE),
    ).fetchall():
        db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
        expire(db, bounds, job_id, owner)


def expire(db: sqlite3.Connection, bounds: Bounds, response_id: str, owner: str) -> None:
    """Drop a record with its frames, and remember its id as expired."""
    drop(db, response_id)
    drop_frames(db, response_id)
    db.execute("INSERT OR REPLACE INTO expired (id, owner) VALUES (?, ?)", (response_id, owner))
    db.execute(
        "DELETE FROM expired WHERE n <= (SELECT max(n) FROM expired) - ?", (bounds.max_expired,)
    )


def drop_frames(db: sqlite3.Connection, response_id: str) -> None:
    """Delete the frames of a response."""
    size = db.execute("SELECT sum(length(data)) FROM frames WHERE id = ?", (response_id,))
    (freed,) = size.fetchone()
    if freed is not None:
        db.execute("DELETE FROM frames WHERE id = ?", (response_id,))
        db.execute("UPDATE totals SET frame_bytes = frame_bytes - ?", (freed,))


# --- reading ----------------------------------------------------------------------------------


def owner_of(db: sqlite3.Connection, response_id: str) -> str | None:
    """The owner of the record or job, or None."""
    row = db.execute(
        "SELECT owner FROM records WHERE id = ?1 UNION ALL SELECT owner FROM jobs WHERE id = ?1",
        (response_id,),
    ).fetchone()
    return None if row is None else str(row[0])


def ids_of(db: sqlite3.Connection, owner: str) -> list[str]:
    """The ids of an owner's records and jobs."""
    found = db.execute(
        "SELECT id FROM records WHERE owner = ?1 UNION SELECT id FROM jobs WHERE owner = ?1",
        (owner,),
    )
    return [str(name) for (name,) in found]


def owners(db: sqlite3.Connection) -> list[str]:
    """The owners of records."""
    return [str(owner) for (owner,) in db.execute("SELECT DISTINCT owner FROM records")]


def replace(db: sqlite3.Connection, rest: AtRest) -> list[int] | None:
    """Put a record in place of the stored one of its version. Returns the numbers of its blocks;
    None if there is none."""
    row = rest.row
    used = db.execute(
        "SELECT used_at FROM records WHERE id = ? AND owner = ? AND version = ?",
        (row.id, row.owner, row.version),
    ).fetchone()
    return None if used is None else put(db, rest, used[0])


def follows(db: sqlite3.Connection, row: Record) -> bool:
    """Whether a conversation is the next version of the stored one."""
    stored = db.execute(
        "SELECT version FROM records WHERE id = ? AND owner = ?", (row.id, row.owner)
    ).fetchone()
    return row.version == (stored[0] if stored else 0) + 1


def load(
    db: sqlite3.Connection, response_id: str, cache: BlockCache[int], spell: Spell
) -> Record | None:
    """The record with its blocks, or None."""
    columns = db.execute(
        "SELECT id, owner, body, prior_count, input_count, continuable, date, created_at, version, "
        "vocabulary, blocks, seal FROM records WHERE id = ?",
        (response_id,),
    ).fetchone()
    if columns is None:
        return None
    *fields, blocks, seal = columns
    row = row_of(*fields)
    numbers = array("q", blocks)
    cached = cache.get_many(numbers)
    missing = sorted({number for number in numbers if number not in cached})
    read = {number: checked(packed, response_id, spell) for number, packed in _read(db, missing)}
    cache.keep(read.items())
    try:
        return whole(row, [cached.get(n) or read[n] for n in numbers], seal)
    except KeyError:
        raise damaged(response_id) from None


def _read(db: sqlite3.Connection, numbers: Sequence[int]) -> Iterable[tuple[int, Packed]]:
    for number, digest, data in db.execute(
        "SELECT n, digest, data FROM blocks WHERE n IN (SELECT value FROM json_each(?))",
        (json.dumps(numbers),),
    ):
        yield number, Packed(digest, data)
