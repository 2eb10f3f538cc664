"""The store in memory: evicts the least recently used records above its limits.

Records are compressed. A block that several records share is stored and counted once, by its
content; recently read blocks are cached uncompressed. Slow work happens before or after a change,
never within one.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from sys import intern
from typing import NamedTuple

from trt_responses.store import Block, Expired, Found, Job, Record
from trt_responses.stores.at_rest.blocks import (
    Packed,
    all_packed,
    all_unpacked,
    own_items,
    pack,
    split_body,
    unpack,
    whole_block,
)
from trt_responses.stores.at_rest.compress import gently, leave_out, put_back
from trt_responses.stores.at_rest.frames import FrameShelf, squeezed, stretched
from trt_responses.stores.cache import BlockCache
from trt_responses.stores.limits import MIB, Bounds
from trt_responses.stores.memory.jobs import MemoryJobs
from trt_responses.stores.memory.locks import MemoryLocks
from trt_responses.stores.whole import Frames, Lock, Spell, Standing, Usage, says_nothing

CACHE_BYTES = 8 * MIB
"""Size of the cache of read blocks: small enough for garbage collections."""
WHOLE_BELOW = 512
"""Bytes of a block below which to shorten it saves less than the objects take that hold it, and to
hash it less than it costs: it is its own name."""
LEAVE_OUT = partial(leave_out, phrases=())
"""A body's phrases stay: to replace them takes 1 % of a response and saves 240 bytes, most of which
blocks without a digest save as well."""
SLACK = 1000
"""Maximum number of dropped ids in the age queue."""


class _Kept(NamedTuple):
    """A stored record. It refers to blocks by name, so that a garbage collection visits one
    object per record."""

    owner: str
    body: bytes
    blocks: tuple[bytes, ...]
    prior_count: int
    input_count: int
    continuable: bool
    date: str
    created_at: int
    version: int
    vocabulary: str


class _Parts(NamedTuple):
    """A record packed for storage."""

    body: bytes
    blocks: Sequence[Block]
    packed: Sequence[Packed]


class MemoryStore:
    """A store in memory with limits on bytes, count and age; its content is lost with the
    process."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        clock_s: Callable[[], float] = time.time,
        lease_clock_s: Callable[[], float] | None = None,
        spell: Spell = says_nothing,
    ) -> None:
        """`clock_s` measures ages. `lease_clock_s` measures leases and must be monotonic; the
        default is `clock_s`."""
        self._bounds = bounds or Bounds()
        self.lease_s, self.takeover_s = self._bounds.lease_s, self._bounds.takeover_s
        self._clock_s = clock_s
        self._spell = spell
        self._records: OrderedDict[str, _Kept] = OrderedDict()
        self._by_age: deque[str] = deque()
        self._blocks: dict[bytes, bytes] = {}
        self._more: dict[bytes, int] = {}
        self._expired: OrderedDict[str, str] = OrderedDict()
        self._jobs = MemoryJobs(self._bounds, lease_clock_s or clock_s)
        self._locks = MemoryLocks(lease_clock_s or clock_s)
        self._usage = Usage()
        self._cache: BlockCache[bytes] = BlockCache(CACHE_BYTES, self._usage)
        self._frames = FrameShelf(self._bounds.max_frame_bytes)
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def usage(self) -> Usage:
        self._usage.holds(self.size_bytes, len(self._records))
        return self._usage

    async def start(self) -> None:
        """Do nothing: memory needs no opening."""

    async def stop(self) -> None:
        for table in (self._records, self._by_age, self._blocks, self._more, self._expired):
            table.clear()
        self._jobs.clear()
        self._locks.clear()
        self._frames.clear()
        self._cache.clear()
        self.size_bytes = 0

    async def check(self) -> None:
        """Do nothing: old records are evicted, so that a record always fits."""

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        self._keep(record, await self._packed(record))

    async def get(self, response_id: str, owner: str) -> Found:
        return self._usage.looked(await self._find(response_id, owner))

    async def _find(self, response_id: str, owner: str) -> Found:
        self._sweep()
        if self._owner_of(response_id) != owner:
            return Expired(response_id) if self._expired.get(response_id) == owner else None
        if (job := self._jobs.get(response_id)) is not None:
            return job
        kept = self._records[response_id]
        if self._is_old(kept):
            self._expire(response_id, "age")
            return Expired(response_id)
        self._records.move_to_end(response_id)
        *blocks, request = await self._read(kept.blocks)
        like = own_items(blocks, kept.prior_count + kept.input_count)
        body = await gently(put_back, kept.body, like) + request.item
        own = {"id": response_id, "body": body, "blocks": tuple(blocks)}
        return Record(**kept._asdict() | own)

    async def _read(self, digests: Sequence[bytes]) -> list[Block]:
        """The blocks of these digests, from the cache where possible: each turn of a conversation
        reads all earlier blocks again."""
        cached = self._cache.get_many(digests)
        packed = [Packed(name, self._blocks[name]) for name in digests if name not in cached]
        read = {block.digest: block for block in await all_unpacked(packed, self._unpacked)}
        self._cache.keep(read.items())
        return [cached.get(digest) or read[digest] for digest in digests]

    def _unpacked(self, packed: Packed) -> Block:
        name, data = packed
        return whole_block(data) if name == data else unpack(packed, self._spell)

    async def delete(self, response_id: str, owner: str) -> bool:
        self._sweep()
        if self._owner_of(response_id) != owner:
            return False
        if response_id in self._records:
            self._drop(response_id)
        self._jobs.drop(response_id)
        self._frames.drop(response_id)
        return True

    async def ids_of(self, owner: str) -> list[str]:
        self._sweep()
        records = [name for name, kept in self._records.items() if kept.owner == owner]
        return records + self._jobs.ids_of(owner)

    async def owners(self) -> list[str]:
        self._sweep()
        return [*{kept.owner for kept in self._records.values()}]

    async def replace(self, record: Record) -> bool:
        parts = await self._packed(record)
        kept = self._records.get(record.id)
        if kept is None or (kept.owner, kept.version) != (record.owner, record.version):
            return False
        self._keep(record, parts)
        return True

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        changed = await self._packed(conversation)
        parts = await self._packed(response) if response is not None else None
        if not self._may_change(conversation, lock):
            return False
        if response is not None and parts is not None:
            self._keep(response, parts)
        self._keep(conversation, changed)
        if lock is not None:
            self._locks.free(lock)
        return True

    def _may_change(self, conversation: Record, lock: Lock | None) -> bool:
        """Whether this is the conversation's next version and no other writer holds its lock."""
        kept = self._records.get(conversation.id)
        mine = kept is not None and kept.owner == conversation.owner
        follows = conversation.version == (kept.version if kept and mine else 0) + 1
        return follows and self._locks.allow(conversation.id, conversation.owner, lock)

    async def lock(self, lock: Lock, lease_s: float) -> bool:
        return self._locks.take(lock, lease_s)

    async def renew_lock(self, lock: Lock, lease_s: float) -> bool:
        return self._locks.renew(lock, lease_s)

    async def unlock(self, lock: Lock) -> None:
        self._locks.free(lock)

    async def _packed(self, record: Record) -> _Parts:
        body, request = split_body(record.body)
        body = await gently(LEAVE_OUT, body, own_items(record.blocks, record.own_from))
        blocks = (*record.blocks, request)
        packed = await all_packed(
            blocks, self._blocks.__contains__, self._spell, whole_below=WHOLE_BELOW
        )
        return _Parts(body, blocks, packed)

    def _keep(self, record: Record, parts: _Parts) -> None:
        if record.id in self._records:
            self._drop(record.id)
        self._records[record.id] = _Kept(
            intern(record.owner),
            parts.body,
            tuple(map(self._share, parts.packed, parts.blocks)),
            record.prior_count,
            record.input_count,
            record.continuable,
            intern(record.date),
            record.created_at,
            record.version,
            intern(record.vocabulary),
        )
        self._by_age.append(record.id)
        self._expired.pop(record.id, None)
        self.size_bytes += len(parts.body)
        self._evict()

    def _evict(self) -> None:
        self._sweep()
        while len(self._records) > 1 and (
            self.size_bytes > self._bounds.max_bytes
            or len(self._records) > self._bounds.max_records
        ):
            self._expire(next(iter(self._records)), "room")

    def _sweep(self) -> None:
        """Drop old records and lost jobs; records come nearly in order of creation."""
        if self._bounds.max_age_s is None:
            return
        while self._by_age:
            kept = self._records.get(self._by_age[0])
            if kept is not None and not self._is_old(kept):
                break
            response_id = self._by_age.popleft()  # too old, or dropped before
            if kept is not None:
                self._expire(response_id, "age")
        for job in self._jobs.drop_lost(self._is_old):
            self._remember(job.id, job.owner)

    def _is_old(self, kept: _Kept | Job) -> bool:
        age = self._bounds.max_age_s
        return age is not None and kept.created_at <= self._clock_s() - age

    def _expire(self, response_id: str, reason: str) -> None:
        self._usage.dropped[reason] += 1
        self._remember(response_id, self._records[response_id].owner)
        self._drop(response_id)

    def _remember(self, response_id: str, owner: str) -> None:
        self._frames.drop(response_id)
        self._expired[response_id] = owner
        while len(self._expired) > self._bounds.max_expired:
            self._expired.popitem(last=False)

    def _share(self, packed: Packed, block: Block) -> bytes:
        digest = packed.digest
        if (data := self._blocks.get(digest)) is not None:
            self._more[digest] = self._more.get(digest, 0) + 1
            return data if data == digest else digest  # a block that is its own name has one object
        # it may come without data, and may have been dropped since
        data = packed.data or pack(block, spell=self._spell, whole_below=WHOLE_BELOW).data
        self._blocks[digest] = data
        self.size_bytes += len(data)
        return digest

    def _drop(self, response_id: str) -> None:
        kept = self._records.pop(response_id)
        self.size_bytes -= len(kept.body)
        for digest in kept.blocks:
            more = self._more.pop(digest, 0)
            if more > 1:
                self._more[digest] = more - 1
            elif not more:
                self.size_bytes -= len(self._blocks.pop(digest))
        if len(self._by_age) > 2 * len(self._records) + SLACK:
            self._by_age = deque(each for each in self._by_age if each in self._records)

    def _owner_of(self, response_id: str) -> str | None:
        if (kept := self._records.get(response_id)) is not None:
            return kept.owner
        return self._jobs.owner_of(response_id)

    # --- jobs ---------------------------------------------------------------------------------

    async def put_job(self, job: Job) -> None:
        self._jobs.put(job)

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        return self._jobs.renew(job_id, body, term)

    async def take_job(self, model: str) -> Job | None:
        return self._jobs.take(model)

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        self._jobs.leave(job_id, term, to_others=to_others)

    async def cancel_job(self, job_id: str, owner: str) -> bool:
        return self._jobs.cancel(job_id, owner)

    async def finish_job(
        self,
        record: Record,
        frames: Frames | None = None,
        conversation: Record | None = None,
        *,
        term: int = 1,
    ) -> bool:
        parts = await self._packed(record)
        changed = await self._packed(conversation) if conversation is not None else None
        last = await squeezed(frames) if frames else None
        lock = None
        if conversation is not None:
            lock = Lock(conversation.id, conversation.owner, record.id, term)
            if not self._may_change(conversation, lock):
                return False
        if not self._jobs.finish(record.id, term):
            return False
        self._keep(record, parts)
        if conversation is not None and changed is not None and lock is not None:
            self._keep(conversation, changed)
            self._locks.free(lock)
        if last is not None:
            self._frames.append(record.id, last)
        return True

    # --- frames -------------------------------------------------------------------------------

    async def append_frames(self, response_id: str, frames: Frames, *, term: int = 1) -> bool:
        piece = await squeezed(frames)
        if not self._jobs.note(response_id, term, frames):
            return False
        self._frames.append(response_id, replace(piece, ids=b""))
        return True

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        self._sweep()
        if self._owner_of(response_id) != owner:
            return None
        pieces = self._frames.beyond(response_id, after)
        return await stretched(pieces, after) if pieces else None
