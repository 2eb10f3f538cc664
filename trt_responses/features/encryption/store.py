"""A store whose content is encrypted, around any other one.

Knows the seam of stores and their packed form. In clear stay ids, owners, models, numbers, times,
dates, and which blocks of one owner are equal.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import partial
from struct import Struct

from trt_responses.features.encryption.keys import MARK, Cipher, StoreKeys, mark_of, tampered
from trt_responses.store import Block, Found, Job, Record
from trt_responses.stores.around import Around
from trt_responses.stores.at_rest.blocks import DIGEST_BYTES, Packed, all_unpacked
from trt_responses.stores.at_rest.compress import LARGE_BYTES, gently, squeeze, stretch
from trt_responses.stores.at_rest.frames import END, after
from trt_responses.stores.at_rest.record import SEAL_BYTES, at_rest, checked, whole
from trt_responses.stores.cache import BlockCache
from trt_responses.stores.limits import MIB
from trt_responses.stores.whole import Frames, Lock, Spell, Standing, Usage, WholeStore

CACHE_BYTES = 16 * MIB
SEALED_FRAMES = b"~"
"""The beginning of sealed frames: those of one piece stand in place of its first frame."""
PIECE = Struct("<Iq")
"""The head of a piece of a job's ids: its sealed bytes, and the number of its first frame."""


class EncryptedStore(Around):
    """Seals with the first of the keys, and opens with each."""

    def __init__(self, inner: WholeStore, keys: StoreKeys, spell: Spell) -> None:
        super().__init__(inner)
        self.keys = keys
        self._spell = spell
        self._opened: BlockCache[bytes] = BlockCache(CACHE_BYTES, Usage())
        """Blocks by owner and the mark of their sealed form."""
        self._sealed: BlockCache[bytes] = BlockCache(CACHE_BYTES, Usage())
        """Sealed blocks by owner and digest."""
        self._jobs: dict[str, tuple[str, Cipher | None, int]] = {}
        """Owners, keys and terms of this server's jobs. It writes to no other job."""

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        await self.inner.put(await self._seal(record))

    async def replace(self, record: Record) -> bool:
        return await self.inner.replace(await self._seal(record))

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        sealed = await self._seal(response) if response is not None else None
        return await self.inner.change(await self._seal(conversation), sealed, lock=lock)

    async def finish_job(
        self,
        record: Record,
        frames: Frames | None = None,
        conversation: Record | None = None,
        *,
        term: int = 1,
    ) -> bool:
        if frames is not None and record.id not in self._jobs:
            return False
        talk = await self._seal(conversation) if conversation is not None else None
        last = await self._seal_frames(record.id, frames) if frames is not None else None
        kept = await self.inner.finish_job(await self._seal(record), last, talk, term=term)
        if kept:
            self._jobs.pop(record.id, None)
        return kept

    async def get(self, response_id: str, owner: str) -> Found:
        found = await self.inner.get(response_id, owner)
        if isinstance(found, Record):
            return await self._open(found)
        return await self._open_job(found) if isinstance(found, Job) else found

    async def delete(self, response_id: str, owner: str) -> bool:
        self._jobs.pop(response_id, None)
        return await self.inner.delete(response_id, owner)

    async def is_newest(self, response_id: str, owner: str) -> bool:
        """Whether nothing is left to rewrite of a record."""
        found = await self.inner.get(response_id, owner)
        if not isinstance(found, Record):
            return True
        newest = self.keys.newest
        return newest.has_sealed(found.body) if newest else found.body[:1] != MARK

    async def _seal(self, record: Record) -> Record:
        cipher = self.keys.newest
        if cipher is None:
            return record
        rest = await at_rest(record, self._spell)
        keys = [_key(record.owner, digest) for digest in rest.digests]
        known = self._sealed.get_many(keys)
        bound = _of_block(record.owner)
        blocks, new = list[Block](), list[tuple[bytes, Block]]()
        sealed = list[tuple[bytes, Block]]()
        for place, (key, digest) in enumerate(zip(keys, rest.digests, strict=True)):
            block = known.get(key)
            if block is None or not cipher.has_sealed(block.item):
                text = digest + rest.data(place)
                block = Block("user", await gently(cipher.seal, text, bound), b"")
                own = replace(rest.blocks[place], digest=digest)
                new.append((_key(record.owner, mark_of(block.item)), own))
                sealed.append((key, block))
            blocks.append(block)
        self._opened.keep(new)
        self._sealed.keep(sealed)
        body = await gently(cipher.seal, rest.seal + rest.row.body, _of_record(record))
        return replace(record, body=body, blocks=tuple(blocks))

    async def _open(self, record: Record) -> Record:
        if record.body[:1] != MARK:
            self.keys.check_clear(record.id)
            return record
        await self.keys.find_all((record.body,))
        opened = partial(self.keys.open, name=record.id)
        body = await gently(opened, record.body, _of_record(record))
        row = replace(record, body=body[SEAL_BYTES:])
        blocks = await self._open_blocks(record)
        if len(row.body) > LARGE_BYTES:
            return await asyncio.to_thread(whole, row, blocks, body[:SEAL_BYTES])
        return whole(row, blocks, body[:SEAL_BYTES])

    async def _open_blocks(self, record: Record) -> list[Block]:
        owner, bound = record.owner, _of_block(record.owner)
        keys = [_key(owner, mark_of(block.item)) for block in record.blocks]
        known = self._opened.get_many(keys)
        stored = zip(keys, record.blocks, strict=True)
        missing = {key: block for key, block in stored if key not in known}
        await self.keys.find_all(block.item for block in missing.values())

        def unpacked(sealed: Packed) -> Block:
            text = self.keys.open(sealed.data, bound, record.id)
            packed = Packed(text[:DIGEST_BYTES], text[DIGEST_BYTES:])
            return checked(packed, record.id, self._spell)

        sealed = [Packed(block.digest, block.item) for block in missing.values()]
        read = dict(zip(missing, await all_unpacked(sealed, unpacked), strict=True))
        self._opened.keep(read.items())
        blocks = [known.get(key) or read[key] for key in keys]
        named = zip(blocks, record.blocks, strict=True)
        self._sealed.keep((_key(owner, block.digest), sealed) for block, sealed in named)
        return blocks

    # --- jobs and their frames ----------------------------------------------------------------

    async def put_job(self, job: Job) -> None:
        cipher = self.keys.newest
        self._jobs[job.id] = job.owner, cipher, job.term
        if cipher is not None:
            bound = _of_job(job.id, job.owner)
            source = cipher.seal(job.source, bound + b"source") if job.source else b""
            job = replace(job, body=cipher.seal(job.body, bound), source=source)
        await self.inner.put_job(job)

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        if body is not None:
            if job_id not in self._jobs:
                return "gone"
            owner, cipher, _ = self._jobs[job_id]
            body = body if cipher is None else cipher.seal(body, _of_job(job_id, owner))
        standing = await self.inner.renew_job(job_id, body, term=term)
        if standing == "gone":
            self._forget(job_id, term)
        return standing

    async def take_job(self, model: str) -> Job | None:
        job = await self.inner.take_job(model)
        if job is None:
            return None
        await self.keys.find_all((job.source,))  # without its key the next frames stood in clear
        self._jobs[job.id] = job.owner, self.keys.of(job.source), job.term
        return await self._open_job(job)

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        await self.inner.leave_job(job_id, term=term, to_others=to_others)
        self._forget(job_id, term)

    def _forget(self, job_id: str, term: int) -> None:
        if job_id in self._jobs and self._jobs[job_id][2] == term:
            del self._jobs[job_id]

    async def append_frames(self, response_id: str, frames: Frames, *, term: int = 1) -> bool:
        if response_id not in self._jobs:
            return False
        sealed = await self._seal_frames(response_id, frames)
        return await self.inner.append_frames(response_id, sealed, term=term)

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        found = await self.inner.frames_after(response_id, owner, after)
        if found is not None and found.data.startswith(END):  # it begins within a piece
            found = await self.inner.frames_after(response_id, owner, -1)
        if found is None or not found.count:
            return found
        return await self._open_frames(response_id, owner, found, after)

    async def _open_job(self, job: Job) -> Job:
        if job.body[:1] != MARK:
            self.keys.check_clear(job.id)
            return job
        await self.keys.find_all((job.body,))
        bound = _of_job(job.id, job.owner)
        source = self.keys.open(job.source, bound + b"source", job.id) if job.source else b""
        body = self.keys.open(job.body, bound, job.id)
        return replace(job, body=body, source=source, ids=self._open_ids(job, bound))

    def _open_ids(self, job: Job, bound: bytes) -> bytes:
        """The ids of a job's pieces of frames, which the store has joined."""
        ids, at, last = list[bytes](), 0, -1
        while at < len(job.ids):
            size, first = PIECE.unpack_from(job.ids, at)
            at += PIECE.size
            if first <= last:
                raise tampered(job.id)
            ids.append(self.keys.open(job.ids[at : at + size], bound + b"ids%d" % first, job.id))
            at, last = at + size, first
        return b"".join(ids)

    async def _seal_frames(self, job_id: str, frames: Frames) -> Frames:
        owner, cipher, _ = self._jobs[job_id]
        if cipher is None or not frames.count:
            return frames
        bound = _of_job(job_id, owner)
        text = await gently(squeeze, frames.data)
        sealed = await gently(cipher.seal, text, bound + b"frames%d" % frames.first)
        ids = frames.ids and cipher.seal(frames.ids, bound + b"ids%d" % frames.first)
        return replace(
            frames,
            data=SEALED_FRAMES + b64encode(sealed) + END * frames.count,
            ids=ids and PIECE.pack(len(ids), frames.first) + ids,
        )

    async def _open_frames(self, job_id: str, owner: str, found: Frames, number: int) -> Frames:
        bound, first, data = _of_job(job_id, owner), found.first, list[bytes]()
        for slot in found.data.split(END)[:-1]:
            if slot.startswith(SEALED_FRAMES):
                sealed = b64decode(slot[1:])
                await self.keys.find_all((sealed,))
                opened = partial(self.keys.open, name=job_id)
                text = await gently(opened, sealed, bound + b"frames%d" % first)
                data.append(await gently(stretch, text))
            elif slot:
                self.keys.check_clear(job_id)
                data.append(slot + END)
            first += 1
        return after(replace(found, data=b"".join(data)), number)


def _key(owner: str, digest: bytes) -> bytes:
    return owner.encode() + digest


def _of_block(owner: str) -> bytes:
    return b"block\0" + owner.encode()


def _of_record(record: Record) -> bytes:
    return repr(("record", record.id, record.owner, record.version)).encode()


def _of_job(job_id: str, owner: str) -> bytes:
    return repr(("job", job_id, owner)).encode()
