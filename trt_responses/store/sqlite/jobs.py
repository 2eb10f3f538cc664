"""Jobs and frames as rows. Each function is a part of one transaction.

Knows the tables; knows no thread and no event loop. Who has no lease has no job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.store.base import Frames, Job
from trt_responses.store.sqlite import rows

if TYPE_CHECKING:
    import sqlite3

    from trt_responses.store.base import Standing


def put(db: sqlite3.Connection, job: Job, lease_until: float) -> None:
    db.execute(
        "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, 0)",
        (job.id, job.owner, job.body, job.created_at, lease_until),
    )


def load(db: sqlite3.Connection, job_id: str, now_s: float) -> Job | None:
    found = db.execute(
        "SELECT id, owner, body, created_at, cancel_asked, lease_until <= ? FROM jobs WHERE id = ?",
        (now_s, job_id),
    ).fetchone()
    if found is None:
        return None
    response_id, owner, body, created_at, cancel_asked, lost = found
    return Job(response_id, owner, body, created_at, bool(cancel_asked), bool(lost))


def renew(
    db: sqlite3.Connection, job_id: str, body: bytes | None, now_s: float, until: float
) -> Standing:
    renewed = db.execute(
        "UPDATE jobs SET lease_until = ?, body = coalesce(?, body) "
        "WHERE id = ? AND lease_until > ?",
        (until, body, job_id, now_s),
    )
    if not renewed.rowcount:
        return "gone"
    asked = db.execute("SELECT cancel_asked FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return "cancel" if asked == (1,) else "held"


def cancel(db: sqlite3.Connection, job_id: str, owner: str, now_s: float) -> bool:
    asked = db.execute(
        "UPDATE jobs SET cancel_asked = 1 WHERE id = ? AND owner = ? AND lease_until > ?",
        (job_id, owner, now_s),
    )
    return asked.rowcount > 0


def take(db: sqlite3.Connection, job_id: str, now_s: float) -> bool:
    """Remove a job that is still its server's; whether it was."""
    taken = db.execute("DELETE FROM jobs WHERE id = ? AND lease_until > ?", (job_id, now_s))
    return taken.rowcount > 0


# --- frames -----------------------------------------------------------------------------------


def append(db: sqlite3.Connection, response_id: str, squeezed: Frames, at_most: int) -> None:
    """What follows a response's frames, if it is there; the oldest leave when there are too many.

    Frames whose beginning has left are of no use to anybody, and are not kept.
    """
    if rows.owner_of(db, response_id) is None or squeezed.first != _kept(db, response_id):
        return
    db.execute(
        "INSERT INTO frames (id, first, count, data, ended) VALUES (?, ?, ?, ?, ?)",
        (response_id, squeezed.first, squeezed.count, squeezed.data, squeezed.ended),
    )
    db.execute("UPDATE totals SET frame_bytes = frame_bytes + ?", (len(squeezed.data),))
    while db.execute("SELECT frame_bytes FROM totals").fetchone()[0] > at_most:
        (oldest,) = db.execute("SELECT id FROM frames ORDER BY n LIMIT 1").fetchone()
        if db.execute("SELECT 1 FROM frames WHERE id <> ? LIMIT 1", (oldest,)).fetchone() is None:
            return
        rows.drop_frames(db, oldest)


def _kept(db: sqlite3.Connection, response_id: str) -> int:
    """How many are kept, which is the number of the next."""
    count = db.execute("SELECT max(first + count) FROM frames WHERE id = ?", (response_id,))
    return count.fetchone()[0] or 0


def beyond(db: sqlite3.Connection, response_id: str, number: int) -> list[Frames]:
    """The squeezed pieces that hold greater numbers, and the last in any case."""
    found = db.execute(
        "SELECT first, count, data, ended FROM frames WHERE id = ? AND "
        "(first + count > ? OR first = (SELECT max(first) FROM frames WHERE id = ?)) "
        "ORDER BY first",
        (response_id, number + 1, response_id),
    ).fetchall()
    return [Frames(first, count, data, bool(ended)) for first, count, data, ended in found]
