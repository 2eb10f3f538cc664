"""Locks of conversations as rows. Each function is part of one transaction.

One table, no records. An expired lock does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.stores.whole import Lock

if TYPE_CHECKING:
    import sqlite3


def allow(
    db: sqlite3.Connection, conversation_id: str, owner: str, lock: Lock | None, now_s: float
) -> bool:
    """Whether the holder of `lock` may change the conversation; None: a writer without a lock."""
    current = _current(db, conversation_id, owner, now_s)
    return current is None or current == lock


def take(db: sqlite3.Connection, lock: Lock, now_s: float, lease_s: float) -> bool:
    """Take the lock. Returns whether it is held now. Removes the expired locks of dead servers."""
    db.execute("DELETE FROM locks WHERE lease_until <= ?", (now_s,))
    current = _current(db, lock.key, lock.owner, now_s)
    if current is not None and (current.writer != lock.writer or current.term > lock.term):
        return False
    db.execute(
        "INSERT OR REPLACE INTO locks (id, owner, writer, term, lease_until) "
        "VALUES (?, ?, ?, ?, ?)",
        (lock.key, lock.owner, lock.writer, lock.term, now_s + lease_s),
    )
    return True


def renew(db: sqlite3.Connection, lock: Lock, now_s: float, lease_s: float) -> bool:
    """Renew a lock. Returns whether it was still held."""
    current = _current(db, lock.key, lock.owner, now_s)
    return current == lock and take(db, lock, now_s, lease_s)


def free(db: sqlite3.Connection, lock: Lock) -> None:
    """Release a lock."""
    db.execute(
        "DELETE FROM locks WHERE id = ? AND owner = ? AND writer = ? AND term = ?",
        (lock.key, lock.owner, lock.writer, lock.term),
    )


def _current(db: sqlite3.Connection, conversation_id: str, owner: str, now_s: float) -> Lock | None:
    row = db.execute(
        "SELECT writer, term FROM locks WHERE id = ? AND owner = ? AND lease_until > ?",
        (conversation_id, owner, now_s),
    ).fetchone()
    return None if row is None else Lock(conversation_id, owner, *row)
