"""Locks of conversations as rows. Each function is a part of one transaction.

Knows its table; knows no record. A lock whose lease is over is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.store import Lock

if TYPE_CHECKING:
    import sqlite3


def allow(
    db: sqlite3.Connection, conversation_id: str, owner: str, lock: Lock | None, now_s: float
) -> bool:
    """Whether whoever has this lock, or none, may change the conversation."""
    held = _held(db, conversation_id, owner, now_s)
    return held is None or held == lock


def take(db: sqlite3.Connection, lock: Lock, now_s: float, lease_s: float) -> bool:
    """Whether it is locked so now. What servers that died have left is removed."""
    db.execute("DELETE FROM locks WHERE lease_until <= ?", (now_s,))
    held = _held(db, lock.key, lock.owner, now_s)
    if held is not None and (held.writer != lock.writer or held.term > lock.term):
        return False
    db.execute(
        "INSERT OR REPLACE INTO locks (id, owner, writer, term, lease_until) "
        "VALUES (?, ?, ?, ?, ?)",
        (lock.key, lock.owner, lock.writer, lock.term, now_s + lease_s),
    )
    return True


def renew(db: sqlite3.Connection, lock: Lock, now_s: float, lease_s: float) -> bool:
    """Renew a lock. Returns whether it was still held."""
    held = _held(db, lock.key, lock.owner, now_s)
    return held == lock and take(db, lock, now_s, lease_s)


def free(db: sqlite3.Connection, lock: Lock) -> None:
    """Give a lock back."""
    db.execute(
        "DELETE FROM locks WHERE id = ? AND owner = ? AND writer = ? AND term = ?",
        (lock.key, lock.owner, lock.writer, lock.term),
    )


def _held(db: sqlite3.Connection, conversation_id: str, owner: str, now_s: float) -> Lock | None:
    found = db.execute(
        "SELECT writer, term FROM locks WHERE id = ? AND owner = ? AND lease_until > ?",
        (conversation_id, owner, now_s),
    ).fetchone()
    return None if found is None else Lock(conversation_id, owner, *found)
