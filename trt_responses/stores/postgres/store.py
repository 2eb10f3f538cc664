"""The store on a PostgreSQL server, shared by front ends on many machines.

Each change is one transaction, committed before it is reported. Old records are swept by the front
ends; the size is the database's own concern. Recently read blocks are cached here; each read asks
the server whether the record still exists. While it is unreachable every method raises
`StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

from trt_responses.errors import ApiError, StartupError, StoreUnavailable
from trt_responses.store import Block, Expired, Found, Job, Record
from trt_responses.stores.at_rest.blocks import Packed, all_unpacked
from trt_responses.stores.at_rest.frames import squeezed, stretched
from trt_responses.stores.at_rest.record import (
    AtRest,
    at_rest,
    checked,
    damaged,
    row_of,
    seal_of,
    whole,
)
from trt_responses.stores.cache import BlockCache
from trt_responses.stores.limits import MIB, Bounds
from trt_responses.stores.postgres.connections import (
    READ_ONLY,
    RETRY_AFTER_S,
    Connection,
    Connections,
    first_line,
)
from trt_responses.stores.postgres.formats import reverted, upgraded
from trt_responses.stores.postgres.objects import MARK, is_large, lost, objects_of
from trt_responses.stores.whole import Frames, Lock, Spell, Standing, Usage, says_nothing

logger = logging.getLogger(__name__)

ANSWER_S = 5.0
CONNECTIONS = 16
"""Maximum connections of one process, unless the URL's `connections` says otherwise."""
OWN_OPTIONS = ("connections", "objects")
"""Of the URL: the number of connections, and the address of an object store for large blocks."""
CACHE_BYTES = 32 * MIB
SLOW_BYTES = 8 * 1024
"""Compressed size from which a body is unpacked in a thread."""
MEASURE_EVERY_S = 10.0
SWEEP_EVERY_S, SWEPT_AT_ONCE = 30.0, 500
OLDEST = 120_000
"""PostgreSQL 12."""

RECORD = (
    "SELECT id, owner, body, prior_count, input_count, continuable, date, created_at, version, "
    "vocabulary, blocks, seal, coalesce(expires_at <= trt_responses.now(), false) "
    "FROM trt_responses.records WHERE id = %s AND owner = %s"
)
JOB = (
    "SELECT j.id, j.owner, j.body, j.created_at, j.cancel_requested, "
    "trt_responses.is_lost(j, %s, %s), coalesce(greatest(expires_at, lease_until) <= "
    "trt_responses.now() AND expires_at IS NOT NULL, false) "
    "FROM trt_responses.jobs j WHERE j.id = %s AND j.owner = %s"
)
PUT = (
    "SELECT * FROM trt_responses.put(%s::text, %s::float8, %s::int, %s::text, %s::int, "
    "%s::text[], %b::bytea[], %b::bytea[], %s::int[], %s::int[], %s::bool[], %s::text[], "
    "%s::bigint[], %s::int[], %s::text[], %s::int[], %b::bytea[], %b::bytea[], "
    "%s::bigint, %s::bigint, %b::bytea, %s::bool, %b::bytea)"
)
ALONE = (
    "SELECT pg_advisory_xact_lock_shared(29298, hashtext(%s)), "
    "pg_advisory_xact_lock(29299, hashtext(%s))"
)
LEFT_S = (
    "SELECT expires_at - trt_responses.now() FROM trt_responses.records "
    "WHERE id = %s AND owner = %s AND version = %s"
)
VERSION = "UPDATE trt_responses.records SET version = %s WHERE id = %s"
PUT_JOB = (
    "INSERT INTO trt_responses.jobs (id, owner, body, created_at, source, model, lease_until, "
    "expires_at) VALUES (%s, %s, %s, %s, %s, %s, trt_responses.now() + %s::float8, "
    "trt_responses.now() + %s::float8) ON CONFLICT (id) DO UPDATE SET "
    "lease_until = excluded.lease_until"
)
RENEW = (
    "UPDATE trt_responses.jobs SET lease_until = trt_responses.now() + %s::float8, "
    "body = coalesce(%b::bytea, body) WHERE id = %s AND term = %s "
    "AND lease_until > trt_responses.now() RETURNING cancel_requested"
)
CANCEL = (
    "UPDATE trt_responses.jobs j SET cancel_requested = true WHERE j.id = %s AND j.owner = %s "
    "AND NOT trt_responses.is_lost(j, %s, %s) RETURNING 1"
)
LEAVE = (
    "UPDATE trt_responses.jobs SET lease_until = trt_responses.now(), deaths = deaths - 1, "
    "source = CASE WHEN %s THEN source ELSE ''::bytea END "
    "WHERE id = %s AND term = %s AND lease_until > trt_responses.now()"
    " RETURNING 1"
)
BEYOND = (
    "SELECT first, count, data, ended FROM trt_responses.frames f WHERE id = %s AND "
    "(first + count > %s OR first = (SELECT max(first) FROM trt_responses.frames WHERE id = f.id)) "
    "AND (EXISTS (SELECT FROM trt_responses.records r WHERE r.id = f.id AND r.owner = %s) "
    "OR EXISTS (SELECT FROM trt_responses.jobs j WHERE j.id = f.id AND j.owner = %s)) "
    "ORDER BY first"
)
SIZE = (
    "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'trt_responses'::regnamespace"
)


class PostgresStore:
    """Records on a shared PostgreSQL server that expire by age. A record stored with a `spell`
    reads as damaged without it."""

    def __init__(
        self,
        url: str,
        bounds: Bounds | None = None,
        spell: Spell = says_nothing,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        url, own = parted(url)
        self._url = url
        self._spell = spell
        self._bounds = bounds or Bounds()
        self.lease_s, self.takeover_s = self._bounds.lease_s, self._bounds.takeover_s
        self._waits = (self.takeover_s, self._bounds.max_deaths)
        """What decides whether a job is lost."""
        self.usage = Usage(shared=True)
        self._measured_s = -MEASURE_EVERY_S
        self._cache: BlockCache[int] = BlockCache(CACHE_BYTES, self.usage)
        try:
            self._server = Connections(url, connections_in(own), answer_s)
        except psycopg.Error as error:
            raise StartupError(f"The store {self._where()}: {first_line(error)}.") from None
        where = own.get("objects")
        self.objects = objects_of(where, self._server) if where else None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._prepare(lambda connection: upgraded(connection, self._where()))
        if self.objects is not None:
            await self.objects.bucket.start()
        self._sweeping = asyncio.create_task(self._sweep_forever())

    async def migrate(self, to: int) -> None:
        """Take the tables back to an earlier format. No server may run."""
        await self._prepare(lambda connection: reverted(connection, to, self.objects))
        await self._stop_parts()

    async def _prepare(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            connection = await self._server.connect()
            try:
                if connection.info.server_version < OLDEST:
                    raise StartupError(f"PostgreSQL at {self._where()} is older than 12.")
                await work(connection)
            finally:
                await connection.close()
        except (psycopg.Error, OSError) as error:
            raise StartupError(
                f"Cannot use PostgreSQL at {self._where()}: {first_line(error)}."
            ) from None

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
            self._sweeping = None
        await self._stop_parts()
        self._cache.clear()

    async def _stop_parts(self) -> None:
        await self._server.close()
        if self.objects is not None:
            await self.objects.bucket.stop()

    async def check(self) -> None:
        if await self._value("SELECT pg_is_in_recovery()"):
            await self._server.close()  # the next connection may find the primary
            raise StoreUnavailable(READ_ONLY, retry_after_s=RETRY_AFTER_S)
        if (now_s := time.monotonic()) >= self._measured_s + MEASURE_EVERY_S:
            self._measured_s = now_s
            self.usage.holds(await self._value(SIZE))

    def _where(self) -> str:
        """The address, without a password."""
        url = urlsplit(self._url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    async def _value(self, statement: str, *values: object) -> Any:
        """The first column of the first row, or None."""
        rows = await self._server.rows(statement, values)
        return rows[0][0] if rows else None

    async def _sweep_forever(self) -> None:
        """Drop old records now and then."""
        while True:
            try:
                await self._sweep()
                if self.objects is not None:
                    await self.objects.collect()
            except ApiError as error:
                logger.warning("old responses are not dropped: %s", error)
            await asyncio.sleep(SWEEP_EVERY_S)

    async def _sweep(self) -> None:
        """Drop old records, and blocks that no record names."""
        again = True
        while again:
            [(dropped, again)] = await self._server.rows(
                "SELECT * FROM trt_responses.sweep(%s::int, %s::bigint)",
                (SWEPT_AT_ONCE, self._bounds.max_expired),
            )
            self.usage.dropped["age"] += dropped

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        await self._put((await at_rest(record, self._spell),))

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        records = (response, conversation) if response else (conversation,)
        return await self._put([await at_rest(each, self._spell) for each in records], lock=lock)

    async def lock(self, lock: Lock, lease_s: float) -> bool:
        return bool(
            await self._value(
                "SELECT trt_responses.lock(%s::text, %s::text, %s::text, %s::int, %s::float8)",
                *(lock.key, lock.owner, lock.writer, lock.term, lease_s),
            )
        )

    async def renew_lock(self, lock: Lock, lease_s: float) -> bool:
        return bool(
            await self._value(
                "UPDATE trt_responses.locks SET lease_until = trt_responses.now() + %s::float8 "
                "WHERE id = %s AND owner = %s AND writer = %s AND term = %s "
                "AND lease_until > trt_responses.now() RETURNING 1",
                *(lease_s, lock.key, lock.owner, lock.writer, lock.term),
            )
        )

    async def unlock(self, lock: Lock) -> None:
        await self._value(
            "DELETE FROM trt_responses.locks WHERE id = %s AND owner = %s AND writer = %s "
            "AND term = %s RETURNING 1",
            *(lock.key, lock.owner, lock.writer, lock.term),
        )

    async def get(self, response_id: str, owner: str) -> Found:
        return self.usage.looked(await self._find(response_id, owner))

    async def _find(self, response_id: str, owner: str) -> Found:
        if not _is_text(response_id):
            return None
        if rows := await self._server.rows(RECORD, (response_id, owner)):
            return await self._read(rows[0])
        if rows := await self._server.rows(JOB, (*self._waits, response_id, owner)):
            *fields, is_old = rows[0]
            return Expired(response_id) if is_old else Job(*fields)
        # a job may have become a record between the two statements
        if rows := await self._server.rows(RECORD, (response_id, owner)):
            return await self._read(rows[0])
        gone = await self._value(
            "SELECT 1 FROM trt_responses.expired WHERE id = %s AND owner = %s", response_id, owner
        )
        return Expired(response_id) if gone else None

    async def _read(self, row: tuple[Any, ...]) -> Found:
        """What a row of `RECORD` stands for."""
        *fields, numbers, seal, is_old = row
        if is_old:
            return Expired(row[0])
        return await self._loaded(row_of(*fields), numbers, seal)

    async def delete(self, response_id: str, owner: str) -> bool:
        if not _is_text(response_id):
            return False
        statement = "SELECT trt_responses.remove(%s::text, %s::text)"
        return bool(await self._value(statement, response_id, owner))

    async def ids_of(self, owner: str) -> list[str]:
        rows = await self._server.rows(
            "SELECT id FROM trt_responses.records WHERE owner = %s UNION "
            "SELECT id FROM trt_responses.jobs WHERE owner = %s",
            (owner, owner),
        )
        return [name for (name,) in rows]

    async def owners(self) -> list[str]:
        rows = await self._server.rows("SELECT DISTINCT owner FROM trt_responses.records")
        return [owner for (owner,) in rows]

    async def replace(self, record: Record) -> bool:
        rest = await at_rest(replace(record, version=0), self._spell)
        row = rest.row
        digests = rest.digests
        data = await self._outside([rest.data(place) for place in range(len(rest.packed))])

        async def work(connection: Connection) -> bool:
            await connection.execute(ALONE, (row.owner, row.id))
            found = await connection.execute(LEFT_S, (row.id, row.owner, record.version))
            if (left := await found.fetchone()) is None:
                return False
            values = list(self._values((rest,), None, None, None))
            values[1] = left[0]
            values[7] = [seal_of(replace(row, version=record.version), digests)]
            await connection.execute(PUT, (*values[:16], digests, data, *values[16:]), binary=True)
            await connection.execute(VERSION, (record.version, row.id))
            return True

        return await self._server.at_once(work)

    async def _put(
        self,
        rests: Sequence[AtRest],
        frames: Frames | None = None,
        *,
        term: int | None = None,
        lock: Lock | None = None,
    ) -> bool:
        """Store records, a conversation last. Sends the blocks that the server probably lacks,
        then those that it reports missing. Returns whether the records were stored."""
        places = [(rest, place) for rest in rests for place in range(len(rest.packed))]
        digests = [rest.packed[place].digest for rest, place in places]
        data = [self._unless_large(rest.packed[place].data) for rest, place in places]
        while True:
            values = self._values(rests, frames, term, lock)
            [(status, missing, numbers, sweep)] = await self._server.rows(
                PUT, (*values[:16], digests, data, *values[16:])
            )
            if status != "missing":
                break
            wanted = [rest.data(place) for rest, place in map(places.__getitem__, missing)]
            for number, kept in zip(missing, await self._outside(wanted), strict=True):
                data[number] = kept
        if status != "kept":
            return False
        self._cache.keep(
            (number, replace(rest.blocks[place], digest=digest))
            for number, digest, (rest, place) in zip(numbers, digests, places, strict=True)
        )
        if sweep:
            await self._sweep()
        return True

    def _unless_large(self, data: bytes) -> bytes | None:
        """The data to send at once. What would be an object is sent if the server lacks it."""
        return None if not data or (self.objects and is_large(data)) else data

    async def _outside(self, data: list[bytes]) -> list[bytes]:
        return data if self.objects is None else await self.objects.outside(data)

    def _values(
        self, rests: Sequence[AtRest], frames: Frames | None, term: int | None, lock: Lock | None
    ) -> tuple[object, ...]:
        """The arguments of `put` but its blocks."""
        rows = [rest.row for rest in rests]
        return (
            *(rows[0].owner, self._bounds.max_age_s, term),
            *((lock.writer, lock.term) if lock else (None, None)),
            *([row.id for row in rows], [row.body for row in rows], [rest.seal for rest in rests]),
            *([row.prior_count for row in rows], [row.input_count for row in rows]),
            *([row.continuable for row in rows], [row.date for row in rows]),
            *([row.created_at for row in rows], [row.version for row in rows]),
            *([row.vocabulary for row in rows], [len(rest.packed) for rest in rests]),
            *_frame_values(frames),
        )

    async def _loaded(self, row: Record, numbers: list[int], seal: bytes) -> Found:
        cached = self._cache.get_many(numbers)
        if missing := [number for number in dict.fromkeys(numbers) if number not in cached]:
            found = await self._server.rows(
                "SELECT n, digest, data FROM trt_responses.blocks WHERE n = ANY(%s::bigint[])",
                (missing,),
            )
            if len(found) < len(missing):
                return await self._since_removed(row, seal, damaged(row.id))
            try:
                found = [(n, digest, await self._inside(data, row)) for n, digest, data in found]
            except LookupError:
                error = lost(row.id, "it is missing from the object store")
                return await self._since_removed(row, seal, error)
            unpacked = partial(checked, response_id=row.id, spell=self._spell)
            packed = [Packed(digest, data) for _, digest, data in found]
            read = await all_unpacked(packed, unpacked)
            named = [(n, block) for (n, _, _), block in zip(found, read, strict=True)]
            self._cache.keep(named)
            cached |= named
        blocks: list[Block] = [cached[number] for number in numbers]
        if len(row.body) > SLOW_BYTES:
            return await asyncio.to_thread(whole, row, blocks, seal)
        return whole(row, blocks, seal)

    async def _inside(self, data: bytes, row: Record) -> bytes:
        if not data.startswith(MARK):
            return data
        if self.objects is None:
            raise lost(row.id, "the store's URL names no object store")
        return await self.objects.inside(data)

    async def _since_removed(self, row: Record, seal: bytes, error: ApiError) -> Found:
        """What is found of a record whose blocks were removed while it was read."""
        rows = await self._server.rows(RECORD, (row.id, row.owner))
        if rows and rows[0][11] == seal:
            raise error
        return await self._find(row.id, row.owner) if rows else None

    # --- jobs ---------------------------------------------------------------------------------

    async def put_job(self, job: Job) -> None:
        await self._value(
            PUT_JOB + " RETURNING 1",
            *(job.id, job.owner, job.body, job.created_at, job.source, job.model),
            *(self.lease_s, self._bounds.max_age_s),
        )

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        is_cancelled = await self._value(RENEW, self.lease_s, body, job_id, term)
        if is_cancelled is None:
            return "gone"
        return "cancel" if is_cancelled else "held"

    async def cancel_job(self, job_id: str, owner: str) -> bool:
        if not _is_text(job_id):
            return False
        return bool(await self._value(CANCEL, job_id, owner, *self._waits))

    async def take_job(self, model: str) -> Job | None:
        rows = await self._server.rows(
            "SELECT * FROM trt_responses.take(%s::text, %s::float8, %s::float8, %s::int)",
            (model, self.lease_s, *self._waits),
        )
        if not rows:
            return None
        *fields, source, term, ids, frames = rows[0]
        job = Job(*fields)
        return replace(job, source=source, model=model, term=term, ids=ids, frames=frames)

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        await self._value(LEAVE, to_others, job_id, term)

    async def finish_job(
        self,
        record: Record,
        frames: Frames | None = None,
        conversation: Record | None = None,
        *,
        term: int = 1,
    ) -> bool:
        last = await squeezed(frames) if frames else None
        records, lock = [record], None
        if conversation is not None:
            records.append(conversation)
            lock = Lock(conversation.id, conversation.owner, record.id, term)
        rests = [await at_rest(each, self._spell) for each in records]
        return await self._put(rests, last, term=term, lock=lock)

    # --- frames -------------------------------------------------------------------------------

    async def append_frames(self, response_id: str, frames: Frames, *, term: int = 1) -> bool:
        piece = await squeezed(frames)
        return bool(
            await self._value(
                "SELECT trt_responses.append(%s::text, %s::int, %s::float8, %s::int, %s::bigint, "
                "%s::bigint, %b::bytea, %s::bool, %b::bytea)",
                *(response_id, term, *self._waits),
                *_frame_values(piece),
            )
        )

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        if not _is_text(response_id):
            return None
        rows = await self._server.rows(BEYOND, (response_id, after + 1, owner, owner))
        if not rows:
            return None
        return await stretched([Frames(*row) for row in rows], after)


def _frame_values(frames: Frames | None) -> tuple[object, ...]:
    if frames is None:
        return (None,) * 5
    return frames.first, frames.count, frames.data, frames.ended, frames.ids


def _is_text(name: str) -> bool:
    """Whether PostgreSQL can have such a text: ids from clients may be anything."""
    return "\0" not in name and name.isprintable()


def parted(url: str) -> tuple[str, dict[str, str]]:
    """A URL without the options that only this server knows, and those options."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    left = [(name, value) for name, value in options if name not in OWN_OPTIONS]
    own = {name: value for name, value in options if name in OWN_OPTIONS}
    return urlunsplit(parts._replace(query=urlencode(left))), own


def connections_in(options: dict[str, str]) -> int:
    """The most connections of one process."""
    given = options.get("connections", str(CONNECTIONS))
    if not (given.isdecimal() and 0 < int(given) <= 1000):
        raise StartupError(f"`connections` must be a number from 1 to 1000, got {given!r:.60}.")
    return int(given)
