"""Each kind of store as the tests of all of them need it: opened twice, restarted, killed, aged.

A `History` is what stays when a server goes: nothing, a file, or a Redis server.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from abc import ABC, abstractmethod
from array import array
from base64 import b64encode
from collections import Counter
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import redis

from trt_responses.errors import StoreUnavailable
from trt_responses.features.encryption.keys import StoreKeys
from trt_responses.features.encryption.store import EncryptedStore
from trt_responses.store import Block, Record
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.redis.store import RedisStore
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.stores.whole import WholeStore

NOW = 1_800_000_000.0
AGE_S = 1000.0
LEASE_S = 30.0
FREE = Bounds(max_age_s=AGE_S, lease_s=LEASE_S)


class Bytes(NamedTuple):
    accounted: int
    held: int


class History(ABC):
    """One history, and the servers' stores that are opened on it."""

    lasts = True
    """Whether it outlives a server."""
    bounded = True
    """Whether a store drops records for want of room; a database bounds itself."""

    more_bytes = 0
    """That a small record takes beside those of the file's format."""

    def __init__(self) -> None:
        self.now_s = NOW

    @abstractmethod
    def store(self, bounds: Bounds = FREE) -> WholeStore: ...

    @abstractmethod
    def bytes(self, store: WholeStore) -> Bytes:
        """The bytes that the store reports, and the bytes that a count finds."""

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def killed(self) -> None:
        """Go on with what would be there if every server had been killed at this moment."""
        assert self.lasts, "nothing is left of it"


class MemoryHistory(History):
    lasts = False

    def store(self, bounds: Bounds = FREE) -> WholeStore:
        return MemoryStore(bounds, clock_s=lambda: self.now_s, spell=letters)

    def bytes(self, store: WholeStore) -> Bytes:
        kept = cast("MemoryStore", store)
        # private: counted anew, so that it can be compared with what the store says
        records, blocks, more = kept._records.values(), kept._blocks, kept._more
        named = Counter(digest for record in records for digest in record.blocks)
        assert named.keys() == blocks.keys()
        assert more == {digest: n - 1 for digest, n in named.items() if n > 1}
        bodies = sum(len(record.body) for record in records)
        return Bytes(kept.size_bytes, bodies + sum(map(len, blocks.values())))


class SqliteHistory(History):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._lives = count()
        self.path = folder / "0" / "history.db"

    def store(self, bounds: Bounds = FREE) -> WholeStore:
        return SqliteStore(self.path, bounds, clock_s=lambda: self.now_s, spell=letters)

    def bytes(self, store: WholeStore) -> Bytes:
        db = sqlite3.connect(self.path)
        try:
            [(accounted,)] = db.execute("SELECT bytes FROM totals")
            [(held,)] = db.execute(
                "SELECT (SELECT total(length(body)) FROM records) + "
                "(SELECT total(length(data)) FROM blocks)"
            )
            named = Counter[int]()
            for (blocks,) in db.execute("SELECT blocks FROM records"):
                named.update(array("q", blocks))
            assert named == dict(db.execute("SELECT block, count FROM shares"))
            assert named.keys() == {n for (n,) in db.execute("SELECT n FROM blocks")}
        finally:
            db.close()
        return Bytes(accounted, int(held))

    def killed(self) -> None:
        """The files as they are now are what a killed server leaves to the next."""
        there = self.path.parent
        self.path = self._folder / str(next(self._lives) + 1) / self.path.name
        shutil.copytree(there, self.path.parent, ignore=shutil.ignore_patterns("*-shm"))


class EncryptedHistory(SqliteHistory):
    """The file, and the keys that every server of it has."""

    more_bytes = 200

    def __init__(self, folder: Path, keys: bytes = b64encode(bytes(32))) -> None:
        super().__init__(folder)
        self.keys = keys

    def store(self, bounds: Bounds = FREE) -> WholeStore:
        keys = StoreKeys(lambda: self.keys)
        return cast("WholeStore", EncryptedStore(super().store(bounds), keys, letters))


class RedisHistory(History):
    bounded = False

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self._begun_s = self.now_s
        with redis.Redis.from_url(url) as server:
            server.flushall()

    def store(self, bounds: Bounds = FREE) -> WholeStore:
        return RedisStore(self.url, bounds, spell=letters)

    def bytes(self, store: WholeStore) -> Bytes:
        """Its accounts are the numbers of holders: as many blocks' bytes as records name. Redis
        expires a record without a word to its blocks, which then count one holder too many, and
        expire as the last of them."""
        may_be_more = self.now_s > self._begun_s + AGE_S * 0.9
        with redis.Redis.from_url(self.url) as server:
            named, bodies = dict[bytes, int](), 0
            for key in server.keys("trt:r:*"):
                body, digests = server.hmget(key, "body", "blocks")
                bodies += len(body)
                for (digest,) in struct.iter_unpack("20s", digests):
                    named[b"trt:b:" + digest] = named.get(b"trt:b:" + digest, 0) + 1
            there = {key: server.hmget(key, "n", "d") for key in server.keys("trt:b:*")}
        assert named.keys() <= there.keys()
        accounted = sum(
            len(data)
            for key, (holders, data) in there.items()
            if (more := int(holders) - named.get(key, 0)) == 0 or (more > 0 and may_be_more)
        )
        return Bytes(bodies + accounted, bodies + sum(len(d) for _, d in there.values()))

    def advance(self, seconds: float) -> None:
        """Moves every expiry nearer: the server's clock cannot be set."""
        super().advance(seconds)
        with redis.Redis.from_url(self.url) as server:
            for key in server.keys("trt:*"):
                if (left := server.pttl(key)) > 0:
                    server.pexpire(key, int(left - seconds * 1000))
            for key in server.keys("trt:j:*"):
                server.hincrby(key, "until", int(-seconds * 1000))
            for name in server.zrange("trt:l", 0, -1):
                server.zincrby("trt:l", -seconds * 1000, name)


class PostgresHistory(History):
    bounded = False
    TABLES = "records, blocks, loose, expired, jobs, frames, locks"

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        with self._server() as server:
            if server.execute("SELECT to_regclass('trt_responses.records')").fetchone() != (None,):
                tables = ", ".join(f"trt_responses.{name}" for name in self.TABLES.split(", "))
                server.execute(f"TRUNCATE {tables}")

    def _server(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def execute(self, statement: str) -> None:
        with self._server() as server:
            server.execute(statement)

    def value(self, statement: str) -> Any:
        with self._server() as server:
            return server.execute(statement).fetchone()[0]

    def store(self, bounds: Bounds = FREE) -> WholeStore:
        from trt_responses.stores.postgres.store import PostgresStore

        return PostgresStore(self.url, bounds, letters)

    def bytes(self, store: WholeStore) -> Bytes:
        """Its accounts are the blocks that records name."""
        with self._server() as server:
            (bodies, accounted, held) = server.execute(
                "SELECT (SELECT coalesce(sum(length(body)), 0) FROM trt_responses.records), "
                "(SELECT coalesce(sum(length(data)), 0) FROM trt_responses.blocks b WHERE EXISTS "
                "(SELECT FROM trt_responses.records r WHERE b.n = ANY(r.blocks))), "
                "(SELECT coalesce(sum(length(data)), 0) FROM trt_responses.blocks)"
            ).fetchone()
        return Bytes(int(bodies + accounted), int(bodies + held))

    def advance(self, seconds: float) -> None:
        """Moves every end nearer: the server's clock cannot be set."""
        super().advance(seconds)
        with self._server() as server:
            for table, column in (
                ("records", "expires_at"),
                ("jobs", "expires_at"),
                ("jobs", "lease_until"),
                ("locks", "lease_until"),
            ):
                server.execute(
                    f"UPDATE trt_responses.{table} SET {column} = {column} - %s", [seconds]
                )


def block(text: str, kind: str = "user") -> Block:
    """A message whose ids tell its text, so that no two are alike unless their texts are."""
    ids = b"".join(struct.pack("=I", ord(letter)) for letter in text)
    return Block(kind, f'{{"text": "{text}"}}'.encode(), ids)  # type: ignore[arg-type]


def letters(ids: bytes) -> bytes:
    """What such ids say: stores that are given it keep no text."""
    return "".join(map(chr, array("I", ids))).encode()


def record(
    name: str, *blocks: Block, owner: str = "ann", body: str = "", at: float = NOW
) -> Record:
    whole = f'{{"id": "{name}", "body": "{body}"}}'.encode()
    return Record(name, owner, whole, blocks, 0, len(blocks), True, "2026-02-03", int(at))


async def filled(store: WholeStore, size_bytes: int = 30_000) -> list[str]:
    """Put records of about so many bytes until the disk is full; what was kept."""
    kept = list[str]()
    while True:
        noise = Random(len(kept)).randbytes(size_bytes).hex()
        try:
            await store.put(record(f"r{len(kept)}", block(noise)))
        except StoreUnavailable:
            return kept
        kept.append(f"r{len(kept)}")
