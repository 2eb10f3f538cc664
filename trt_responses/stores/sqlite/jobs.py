"""Jobs and frames as rows. Each function is part of one transaction.

Tables only: no threads and no event loop. A server without the lease has lost the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.store import Job
from trt_responses.stores.sqlite import rows
from trt_responses.stores.whole import Frames

if TYPE_CHECKING:
    import sqlite3

    from trt_responses.stores.whole import Standing


LOST = (
    "lease_until + CASE WHEN source <> x'' AND deaths < :deaths THEN :takeover ELSE 0 END <= :now"
)
"""SQL condition: no server may take over the job any more."""


class Times(NamedTuple):
    """The current time, and the times that jobs depend on."""

    now: float
    lease: float
    takeover: float
    deaths: int


def put(db: sqlite3.Connection, job: Job, lease_until: float) -> None:
    """Insert a job under a fresh lease."""
    db.execute(
        "INSERT OR REPLACE INTO jobs (id, owner, body, created_at, lease_until, source, model) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (job.id, job.owner, job.body, job.created_at, lease_until, job.source, job.model),
    )


def load(db: sqlite3.Connection, job_id: str, times: Times) -> Job | None:
    """A job in its current state, or None."""
    row = db.execute(
        f"SELECT id, owner, body, created_at, cancel_asked, {LOST} FROM jobs WHERE id = :id",
        {"id": job_id, **times._asdict()},
    ).fetchone()
    if row is None:
        return None
    response_id, owner, body, created_at, cancel_requested, lost = row
    return Job(response_id, owner, body, created_at, bool(cancel_requested), bool(lost))


def renew(
    db: sqlite3.Connection, job_id: str, body: bytes | None, term: int, times: Times
) -> Standing:
    """Renew a job's lease, and replace its snapshot if `body` is given."""
    renewed = db.execute(
        "UPDATE jobs SET lease_until = ?, body = coalesce(?, body) "
        "WHERE id = ? AND term = ? AND lease_until > ?",
        (times.lease, body, job_id, term, times.now),
    )
    if not renewed.rowcount:
        return "gone"
    flag = db.execute("SELECT cancel_asked FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return "cancel" if flag == (1,) else "held"


def cancel(db: sqlite3.Connection, job_id: str, owner: str, times: Times) -> bool:
    """Request the cancellation of a job. Returns whether the job exists."""
    updated = db.execute(
        f"UPDATE jobs SET cancel_asked = 1 WHERE id = :id AND owner = :owner AND NOT ({LOST})",
        {"id": job_id, "owner": owner, **times._asdict()},
    )
    return updated.rowcount > 0


def left(db: sqlite3.Connection, model: str, times: Times) -> str | None:
    """The id of a job that may be taken over, or None."""
    row = db.execute(
        "SELECT id FROM jobs WHERE lease_until <= :now AND source <> x'' AND model = :model "
        f"AND NOT ({LOST}) ORDER BY lease_until LIMIT 1",
        {"model": model, **times._asdict()},
    ).fetchone()
    return None if row is None else row[0]


def take(db: sqlite3.Connection, model: str, times: Times) -> Job | None:
    """Take over a job whose lease has expired. Returns None if there is none."""
    if (job_id := left(db, model, times)) is None:
        return None
    db.execute(
        "UPDATE jobs SET term = term + 1, deaths = deaths + 1, lease_until = ? WHERE id = ?",
        (times.lease, job_id),
    )
    row = db.execute(
        "SELECT id, owner, body, created_at, cancel_asked, source, term FROM jobs WHERE id = ?",
        (job_id,),
    ).fetchone()
    *fields, cancel_requested, source, term = row
    job = replace(Job(*fields), cancel_requested=bool(cancel_requested), source=source, model=model)
    pieces = db.execute("SELECT ids FROM frames WHERE id = ? ORDER BY first", (job_id,)).fetchall()
    ids = b"".join(piece for (piece,) in pieces)
    return replace(job, term=term, ids=ids, frames=_stored_frames(db, job_id))


def leave(db: sqlite3.Connection, job_id: str, term: int, now_s: float, *, to_others: bool) -> None:
    """Give up a job's lease, for other servers to take over, or for good."""
    db.execute(
        "UPDATE jobs SET lease_until = ?, deaths = deaths - 1, source = iif(?, source, x'') "
        "WHERE id = ? AND term = ? AND lease_until > ?",
        (now_s, to_others, job_id, term, now_s),
    )


def finish(db: sqlite3.Connection, job_id: str, term: int, now_s: float) -> bool:
    """Remove a job if this term holds its lease. Returns whether it did."""
    deleted = db.execute(
        "DELETE FROM jobs WHERE id = ? AND term = ? AND lease_until > ?", (job_id, term, now_s)
    )
    return deleted.rowcount > 0


def is_of(db: sqlite3.Connection, job_id: str, term: int, times: Times) -> bool:
    """Whether a job still has this term and is not lost."""
    row = db.execute(
        f"SELECT 1 FROM jobs WHERE id = :id AND term = :term AND NOT ({LOST})",
        {"id": job_id, "term": term, **times._asdict()},
    )
    return row.fetchone() is not None


# --- frames -----------------------------------------------------------------------------------


def append(db: sqlite3.Connection, response_id: str, squeezed: Frames, at_most: int) -> None:
    """Append frames to a stored response or a job. Drops the oldest above `at_most` bytes.

    Frames whose beginning was dropped are useless and are ignored.
    """
    if rows.owner_of(db, response_id) is None or squeezed.first != _stored_frames(db, response_id):
        return
    db.execute(
        "INSERT INTO frames (id, first, count, data, ended, ids) VALUES (?, ?, ?, ?, ?, ?)",
        (
            response_id,
            *(squeezed.first, squeezed.count, squeezed.data, squeezed.ended, squeezed.ids),
        ),
    )
    db.execute("UPDATE totals SET frame_bytes = frame_bytes + ?", (len(squeezed.data),))
    while db.execute("SELECT frame_bytes FROM totals").fetchone()[0] > at_most:
        (oldest,) = db.execute("SELECT id FROM frames ORDER BY n LIMIT 1").fetchone()
        if db.execute("SELECT 1 FROM frames WHERE id <> ? LIMIT 1", (oldest,)).fetchone() is None:
            return
        rows.drop_frames(db, oldest)


def _stored_frames(db: sqlite3.Connection, response_id: str) -> int:
    """The number of stored frames, which is the number of the next one."""
    count = db.execute("SELECT max(first + count) FROM frames WHERE id = ?", (response_id,))
    return count.fetchone()[0] or 0


def beyond(db: sqlite3.Connection, response_id: str, number: int) -> list[Frames]:
    """The compressed pieces with greater numbers, and always the last piece."""
    pieces = db.execute(
        "SELECT first, count, data, ended FROM frames WHERE id = ? AND "
        "(first + count > ? OR first = (SELECT max(first) FROM frames WHERE id = ?)) "
        "ORDER BY first",
        (response_id, number + 1, response_id),
    ).fetchall()
    return [Frames(first, count, data, bool(ended)) for first, count, data, ended in pieces]
