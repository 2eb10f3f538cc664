"""The store on a Redis server, shared by front ends on many machines.

Redis expires old records itself, and its `maxmemory` limits the size, because no front end knows
what the others store. Recently read blocks are cached here; each read asks Redis whether the record
still exists, so that deletes by other front ends take effect at once. While Redis is unreachable
every method raises `StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from struct import Struct
from typing import Any, cast
from urllib.parse import urlsplit

from redis import asyncio as aioredis
from redis import exceptions as faults
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from trt_responses.errors import ApiError, StartupError, StoreUnavailable
from trt_responses.store import Block, Expired, Found, Job, Record
from trt_responses.stores.at_rest.blocks import DIGEST_BYTES, Packed, all_unpacked
from trt_responses.stores.at_rest.frames import squeezed, stretched
from trt_responses.stores.at_rest.record import AtRest, at_rest, checked, row_of, whole
from trt_responses.stores.cache import BlockCache
from trt_responses.stores.limits import MIB, Bounds
from trt_responses.stores.redis import scripts
from trt_responses.stores.whole import Frames, Lock, Spell, Standing, Usage, says_nothing

CACHE_BYTES = 32 * MIB
CONNECT_S, ANSWER_S, RETRY_AFTER_S = 1.0, 3.0, 5
CONNECTIONS = 1024
"""Maximum connections: more than concurrent runs and readers, so that no call waits for another."""
MEASURE_EVERY_S = 10.0
"""Seconds between two queries of the server's memory use, each instead of a ping."""
SCANNED_AT_ONCE = 1000
SLOW_BYTES = 8 * 1024
"""Compressed size from which a body is unpacked in a thread."""
FORMAT_KEY, FORMAT = "trt:format", 3

PIECE = Struct("<QI?")
"""The head of a piece of frames: first number, count and end; then the frames."""


@contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Cancels the task again if a call to Redis lost its cancellation.

    The client writes within `asyncio.wait_for`, which before Python 3.12 returns as if nothing had
    happened when it is cancelled just after the write."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def _state(error: Exception) -> str | None:
    """What an operator changes at the Redis server; None if the error is no state of it."""
    match error:
        case faults.OutOfMemoryError():
            return "is full"
        case faults.AuthenticationError() | faults.AuthorizationError():
            return "refuses the password"
        case faults.ConnectionError() | faults.TimeoutError() | OSError():
            return "is unreachable"
        case faults.ReadOnlyError() | faults.ClusterDownError():
            return "is a replica and takes no changes"
    return None


class RedisStore:
    """Records on a shared Redis server that expire by age. A record stored with a `spell` reads as
    damaged without it."""

    def __init__(
        self,
        url: str,
        bounds: Bounds | None = None,
        *,
        answer_s: float = ANSWER_S,
        spell: Spell = says_nothing,
    ) -> None:
        self._url = url
        self._answer_s = answer_s
        self._spell = spell
        self._bounds = bounds or Bounds()
        self.lease_s, self.takeover_s = self._bounds.lease_s, self._bounds.takeover_s
        self._lease_ms, self._ttl_ms = _ms(self.lease_s), _ms(self._bounds.max_age_s or 0)
        self._waits = (_ms(self.takeover_s), self._bounds.max_deaths)
        """Script arguments that decide whether a job is lost."""
        self.usage = Usage(shared=True)
        self._measured_s = -MEASURE_EVERY_S
        self._cache: BlockCache[bytes] = BlockCache(CACHE_BYTES, self.usage)
        self._redis: aioredis.Redis | None = None
        self._scripts: dict[str, Any] = {}

    async def start(self) -> None:
        try:
            self._redis = aioredis.Redis.from_url(
                self._url,
                max_connections=CONNECTIONS,
                socket_connect_timeout=CONNECT_S,
                socket_timeout=self._answer_s,
                retry=Retry(NoBackoff(), 1),  # once, for a stale connection
            )
            await self._redis.set(FORMAT_KEY, FORMAT, nx=True)
            version = int(await self._redis.get(FORMAT_KEY) or FORMAT)
        except (faults.RedisError, ValueError, OSError) as error:
            await self.stop()
            raise StartupError(f"Cannot connect to Redis at {self._where()}: {error}.") from None
        if version != FORMAT:
            await self.stop()
            raise StartupError(
                f"The store on {self._where()} has format {version}, and this server supports "
                f"{FORMAT}: use the server version that wrote it, or another database."
            )

    async def stop(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None
        self._scripts.clear()
        self._cache.clear()

    async def check(self) -> None:
        if (now_s := time.monotonic()) < self._measured_s + MEASURE_EVERY_S:
            with self._faults():
                await self._server.ping()
            return
        self._measured_s = now_s
        with self._faults():
            try:
                info = await self._server.info()
            except faults.ResponseError:  # the server may forbid INFO
                return
        self.usage.holds(info["used_memory"])
        self.usage.dropped["room"] = info["evicted_keys"]

    def _where(self) -> str:
        """The address, without a password."""
        url = urlsplit(self._url)
        return f"{url.scheme}://{url.hostname or url.path}:{url.port or 6379}"

    @property
    def _server(self) -> aioredis.Redis:
        assert self._redis is not None, "the store was not started"
        return self._redis

    async def _do(self, script: str, *arguments: bytes | str | float) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._server.register_script(scripts.COMMON + script)
        with self._faults():
            return await self._scripts[script](args=arguments)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            with keeping_cancellation():
                yield
        except (faults.RedisError, OSError) as error:
            if (state := _state(error)) is None:
                raise ApiError(f"The store failed: {error}.") from None
            raise StoreUnavailable(
                f"The store's Redis server {state}; requests with `store: false` still work.",
                retry_after_s=RETRY_AFTER_S,
            ) from None

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        await self._put((await at_rest(record, self._spell),), None)

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        records = (response, conversation) if response else (conversation,)
        rests = [await at_rest(record, self._spell) for record in records]
        return await self._put(rests, None, lock=lock)

    async def lock(self, lock: Lock, lease_s: float) -> bool:
        lock_arguments = (lock.term, lock.writer)
        return bool(await self._do(scripts.LOCK, _lock_key(lock), *lock_arguments, _ms(lease_s)))

    async def renew_lock(self, lock: Lock, lease_s: float) -> bool:
        lock_arguments = (_lock_key(lock), _lock_value(lock))
        return bool(await self._do(scripts.RENEW_LOCK, *lock_arguments, _ms(lease_s)))

    async def unlock(self, lock: Lock) -> None:
        await self._do(scripts.UNLOCK, _lock_key(lock), _lock_value(lock))

    async def get(self, response_id: str, owner: str) -> Found:
        return self.usage.looked(await self._find(response_id, owner))

    async def _find(self, response_id: str, owner: str) -> Found:
        kind, reply = await self._do(scripts.FIND, response_id, owner, *self._waits)
        if kind == b"gone":
            return Expired(response_id) if reply else None
        if kind == b"job":
            body, created, cancel, lost = reply
            return Job(response_id, owner, body, int(created), cancel == b"1", lost == b"1")
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        return await self._loaded(response_id, owner, fields)

    async def delete(self, response_id: str, owner: str) -> bool:
        return bool(await self._do(scripts.DELETE, response_id, owner))

    async def ids_of(self, owner: str) -> list[str]:
        """Looks at each key, since Redis has no index of owners."""
        names = dict[str, None]()
        for prefix in (b"trt:r:", b"trt:j:"):
            async for name, its in self._names(prefix):
                if its == owner.encode():
                    names[name] = None
        return [*names]

    async def owners(self) -> list[str]:
        return [*{its.decode() async for _, its in self._names(b"trt:r:") if its is not None}]

    async def _names(self, prefix: bytes) -> AsyncIterator[tuple[str, bytes | None]]:
        """The ids with this prefix, some twice, and their owners; None if it has gone since."""
        cursor: int | None = None
        while cursor != 0:
            with self._faults():
                cursor, keys = await self._server.scan(cursor or 0, prefix + b"*", SCANNED_AT_ONCE)
                pipeline = self._server.pipeline(transaction=False)
                for key in keys:
                    pipeline.hget(key, "owner")
                owners = await pipeline.execute()
            for key, its in zip(keys, owners, strict=True):
                yield cast("bytes", key).removeprefix(prefix).decode(), its

    async def replace(self, record: Record) -> bool:
        return await self._put((await at_rest(record, self._spell),), None, term=scripts.AGAIN)

    async def _put(
        self,
        rests: Sequence[AtRest],
        frames: Frames | None,
        *,
        term: int | str | None = None,
        lock: Lock | None = None,
    ) -> bool:
        """Store records, a conversation last. Sends the blocks that Redis probably lacks, then
        those that it reports missing. Returns whether the records were stored."""
        places = [(rest, place) for rest in rests for place in range(len(rest.packed))]
        data = [rest.packed[place].data for rest, place in places]
        frame_arguments = (frames.first, frames.count, _piece(frames)) if frames else (0, 0, b"")
        changed = rests[-1].row
        lock_arguments = (_lock_key(lock or Lock(changed.id, changed.owner, "")), _lock_value(lock))
        while True:
            left = iter(data)
            records = [part for rest in rests for part in _arguments(rest, left)]
            reply = await self._do(
                scripts.PUT,
                *(term or "", self._ttl_ms, *frame_arguments, *lock_arguments, *records),
            )
            if not isinstance(reply, list):
                break
            for number in reply:
                rest, place = places[number]
                data[number] = rest.data(place)
        if reply != b"kept":
            return False
        for rest in rests:
            named = zip(rest.digests, rest.blocks, strict=True)
            self._cache.keep((digest, replace(block, digest=digest)) for digest, block in named)
        return True

    async def _loaded(self, response_id: str, owner: str, fields: dict[bytes, bytes]) -> Found:
        joined_digests = fields[b"blocks"]
        digests = [
            joined_digests[at : at + DIGEST_BYTES]
            for at in range(0, len(joined_digests), DIGEST_BYTES)
        ]
        blocks = await self._blocks(response_id, digests)
        if blocks is None:  # deleted since, or evicted by the server
            kind, _ = await self._do(scripts.FIND, response_id, owner, *self._waits)
            return Expired(response_id) if kind == b"record" else None
        row = row_of(
            response_id,
            owner,
            fields[b"body"],
            int(fields[b"prior"]),
            int(fields[b"input"]),
            fields[b"continuable"] == b"1",
            fields[b"date"].decode(),
            int(fields[b"created"]),
            int(fields.get(b"version", 0)),
            fields.get(b"vocabulary", b"").decode(),
        )
        seal = fields[b"seal"]
        if len(row.body) > SLOW_BYTES:
            return await asyncio.to_thread(whole, row, blocks, seal)
        return whole(row, blocks, seal)

    async def _blocks(self, response_id: str, digests: list[bytes]) -> list[Block] | None:
        blocks = self._cache.get_many(digests)
        missing = [digest for digest in dict.fromkeys(digests) if digest not in blocks]
        if missing:
            with self._faults():
                pipeline = self._server.pipeline(transaction=False)
                for digest in missing:
                    pipeline.hget(scripts.BLOCK + digest, "d")
                data = await pipeline.execute()
            if None in data:
                return None
            unpacked = partial(checked, response_id=response_id, spell=self._spell)
            read = await all_unpacked(map(Packed, missing, data), unpacked)
            self._cache.keep(zip(missing, read, strict=True))
            blocks |= zip(missing, read, strict=True)
        return [blocks[digest] for digest in digests]

    # --- jobs ---------------------------------------------------------------------------------

    async def put_job(self, job: Job) -> None:
        await self._do(
            scripts.PUT_JOB,
            *(job.id, self._lease_ms, self._ttl_ms, job.owner, job.body, job.created_at),
            *(job.source, job.model),
        )

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        standing = await self._do(scripts.RENEW, job_id, self._lease_ms, body or b"", term)
        return cast("Standing", standing.decode())

    async def cancel_job(self, job_id: str, owner: str) -> bool:
        return bool(await self._do(scripts.CANCEL, job_id, owner, *self._waits))

    async def take_job(self, model: str) -> Job | None:
        row = await self._do(scripts.TAKE, model, self._lease_ms, *self._waits)
        if row is None:
            return None
        job_id, (owner, body, created, cancel, source, term, ids, frames) = row
        job = Job(job_id.decode(), owner.decode(), body, int(created), cancel == b"1")
        term, frames = int(term), int(frames)
        return replace(job, source=source, model=model, term=term, ids=ids, frames=frames)

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        await self._do(scripts.LEAVE, job_id, term, int(to_others))

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
        piece = _piece(await squeezed(frames))
        frame_arguments = (
            frames.first,
            frames.count,
            piece,
            self._ttl_ms,
            term,
            frames.ids,
            *self._waits,
        )
        return bool(await self._do(scripts.APPEND, response_id, *frame_arguments))

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        pieces = await self._do(scripts.BEYOND, response_id, owner, after)
        if not pieces:
            return None
        return await stretched([_frames(piece) for piece in pieces], after)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _lock_key(lock: Lock) -> str:
    return f"trt:w:{lock.key}:{lock.owner}"


def _lock_value(lock: Lock | None) -> str:
    return f"{lock.term} {lock.writer}" if lock else ""


def _arguments(rest: AtRest, data: Iterator[bytes]) -> list[bytes | str | int]:
    """A record as arguments of the script, with its blocks' data from `data`."""
    row, digests = rest.row, rest.digests
    fields: dict[str, bytes | str | int] = {
        "owner": row.owner,
        "body": row.body,
        "blocks": b"".join(digests),
        "prior": row.prior_count,
        "input": row.input_count,
        "continuable": int(row.continuable),
        "date": row.date,
        "created": row.created_at,
        "seal": rest.seal,
        "version": row.version,
        "vocabulary": row.vocabulary,
    }
    pairs = [part for pair in fields.items() for part in pair]
    head = (row.id, rest.seal, row.version, len(digests), len(pairs))
    return [*head, *digests, *islice(data, len(digests)), *pairs]


def _piece(frames: Frames) -> bytes:
    return PIECE.pack(frames.first, frames.count, frames.ended) + frames.data


def _frames(piece: bytes) -> Frames:
    first, count, ended = PIECE.unpack_from(piece)
    return Frames(first, count, piece[PIECE.size :], ended)
