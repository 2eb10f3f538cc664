"""The SQLite store's file: its schema, its migrations, and its checks at start.

No records here. Each step of `MIGRATIONS` upgrades a file from its index to the next version.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Literal

from trt_responses import files
from trt_responses.errors import ApiError, StartupError, StoreUnavailable

Synchronous = Literal["normal", "full"]

APPLICATION_ID = 0x74727452
"""`trtR`, which identifies a store among SQLite files."""
BUSY_MS = 5_000
WAL_BYTES = 64 * 1024 * 1024
DAMAGED = " It is damaged or not a store: move it away to start with an empty one."

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE records (
            n INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            body BLOB NOT NULL,
            blocks BLOB NOT NULL,
            prior_count INTEGER NOT NULL,
            input_count INTEGER NOT NULL,
            continuable INTEGER NOT NULL,
            date TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            used_at INTEGER NOT NULL,
            seal BLOB NOT NULL
        )""",
        "CREATE INDEX records_by_use ON records (used_at)",
        "CREATE INDEX records_by_age ON records (created_at)",
        # a number is never reused, so that it always means the same block
        """CREATE TABLE blocks (
            n INTEGER PRIMARY KEY AUTOINCREMENT,
            digest BLOB NOT NULL UNIQUE,
            data BLOB NOT NULL
        )""",
        # a separate table: an update would rewrite the block's content
        "CREATE TABLE shares (block INTEGER PRIMARY KEY, count INTEGER NOT NULL)",
        """CREATE TABLE expired (
            n INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL
        )""",
        "CREATE TABLE totals (records INTEGER NOT NULL, bytes INTEGER NOT NULL, "
        "frame_bytes INTEGER NOT NULL)",
        "INSERT INTO totals VALUES (0, 0, 0)",
    ),
    (
        """CREATE TABLE jobs (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            body BLOB NOT NULL,
            created_at INTEGER NOT NULL,
            lease_until REAL NOT NULL,
            cancel_asked INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID""",
        """CREATE TABLE frames (
            n INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            first INTEGER NOT NULL,
            count INTEGER NOT NULL,
            data BLOB NOT NULL,
            ended INTEGER NOT NULL
        )""",
        "CREATE INDEX frames_by_id ON frames (id, first)",
    ),
    (  # blocks and bodies have a new format: older content is unreadable
        *(
            f"DELETE FROM {table}"
            for table in ("records", "blocks", "shares", "expired", "jobs", "frames")
        ),
        "UPDATE totals SET records = 0, bytes = 0, frame_bytes = 0",
    ),
    (),  # blocks may lack their text, which older servers cannot read
    ("ALTER TABLE records ADD COLUMN version INTEGER NOT NULL DEFAULT 0",),
    (  # another server can take over a job
        "ALTER TABLE jobs ADD COLUMN source BLOB NOT NULL DEFAULT x''",
        "ALTER TABLE jobs ADD COLUMN model TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE jobs ADD COLUMN term INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE frames ADD COLUMN ids BLOB NOT NULL DEFAULT x''",
    ),
    # all older records use gpt-oss's vocabulary, whose name is ''
    ("ALTER TABLE records ADD COLUMN vocabulary TEXT NOT NULL DEFAULT ''",),
    (  # locks of conversations, one writer each
        """CREATE TABLE locks (
            id TEXT NOT NULL,
            owner TEXT NOT NULL,
            writer TEXT NOT NULL,
            term INTEGER NOT NULL,
            lease_until REAL NOT NULL,
            PRIMARY KEY (id, owner)
        ) WITHOUT ROWID""",
    ),
    ("CREATE TABLE clocks (boot TEXT PRIMARY KEY, offset_s REAL NOT NULL) WITHOUT ROWID",),
)
VERSION = len(MIGRATIONS)
BACK = {9: ("DROP TABLE clocks",), 8: ("DROP TABLE locks",)}
"""Steps back, by the version from which they lead."""


def make_private(path: Path) -> None:
    """Create the file if it is missing, and deny other users access to it and to SQLite's files
    beside it. An existing file is not opened: closing it would release SQLite's locks on it."""
    files.make_private(path.parent)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for ending in ("", "-wal", "-shm", "-journal", "-reserve"):
        files.close_to_others(path.with_name(path.name + ending))


def identity(path: Path) -> object:
    """What only this file has, as long as it stands there; None if none does."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def connect(path: Path) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time; transactions are explicit."""
    return sqlite3.connect(
        path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
    )


def tuned(db: sqlite3.Connection, synchronous: Synchronous, log_bytes: int) -> sqlite3.Connection:
    """The connection, configured for writing. A WAL longer than `log_bytes` is checkpointed."""
    ((page_bytes,),) = db.execute("PRAGMA page_size")
    db.execute(f"PRAGMA wal_autocheckpoint = {max(1, log_bytes // page_bytes)}")
    db.execute(f"PRAGMA synchronous = {synchronous.upper()}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    db.execute("PRAGMA secure_delete = FAST")
    return db


def prepare(db: sqlite3.Connection, path: Path, boot: str = "", offset_s: float = 0.0) -> float:
    """Upgrade the file to the current version and check that it is writable. Raises a
    `StartupError` otherwise.

    Returns the offset between the machine's monotonic clock and the date. All servers use the
    offset of the first one since this `boot`: a lease must end at the same moment for all, even if
    the date was corrected between their starts.
    """
    try:
        _check_kind(db, path)
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only effective in a new file
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StartupError(f"The store {path} cannot be shared by processes here (no WAL).")
        db.execute("BEGIN IMMEDIATE")
        try:
            _migrate(db, path)
            if boot:
                db.execute("INSERT OR IGNORE INTO clocks VALUES (?, ?)", (boot, offset_s))
                noted = db.execute("SELECT offset_s FROM clocks WHERE boot = ?", (boot,))
                (offset_s,) = noted.fetchone()
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return offset_s
    except sqlite3.Error as error:
        raise StartupError(f"The store {path} cannot be used: {error}.{_remedy(error)}") from None
    except UnicodeDecodeError:  # an error message that quotes a damaged name
        raise StartupError(f"The store {path} cannot be used.{DAMAGED}") from None


def _check_kind(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise StartupError(f"{path} is an SQLite file of another program, not a store.")


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise StartupError(
            f"The store {path} has version {version}, written by a newer server, and this server "
            f"supports {VERSION}: run `trt-responses migrate --to {VERSION}` there, or upgrade."
        )
    for step in MIGRATIONS[version:]:
        for statement in step:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")  # always a write


def reverted(path: Path, to: int) -> None:
    """Revert the file to an earlier version. Raises a `StartupError`, and changes nothing, if
    that cannot be done."""
    oldest = min(BACK) - 1
    if not oldest <= to <= VERSION:
        raise StartupError(f"This server knows versions {oldest} to {VERSION} of a file, not {to}.")
    if not path.exists():
        raise StartupError(f"There is no store {path}.")
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        _check_kind(db, path)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > VERSION or version < to:
            raise StartupError(f"The store {path} has version {version}: it stays as it is.")
        for number in range(version, to, -1):
            for statement in BACK[number]:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {to}")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        why = "a server has it open: stop it first" if is_busy(error) else str(error)
        raise StartupError(f"The store {path} cannot be reverted: {why}.") from None
    finally:
        db.close()


def _remedy(error: sqlite3.Error) -> str:
    match _code(error):
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return DAMAGED
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return " The server must be able to write to it and to its directory."
        case _:
            return ""


def api_error(error: sqlite3.Error) -> ApiError:
    """The error for a client, for an SQLite error after the start."""
    match _code(error):
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable("The store's disk is full.", retry_after_s=60)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable("The store is busy with another server.", retry_after_s=1)
        case sqlite3.SQLITE_READONLY:
            return StoreUnavailable("The store cannot be written: it is read-only.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return ApiError("The store's file is damaged.")
        case _:
            return ApiError(f"The store failed: {error}.")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error means that another connection holds the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(fault: Exception) -> bool:
    """Whether the error means a full disk."""
    return isinstance(fault, sqlite3.Error) and _code(fault) == sqlite3.SQLITE_FULL


def _code(error: sqlite3.Error) -> int:
    """The primary error code, without the upper bits of extended codes."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
