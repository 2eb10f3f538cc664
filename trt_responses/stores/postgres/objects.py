"""Large blocks of a PostgreSQL store, kept as objects of an object store.

The database decides what exists. A key is noted before its upload; the transaction that stores the
block claims it, and the one that removes the block notes it again. What stays noted for a grace
period is doomed first, so that no transaction can claim it any more, and then deleted. The grace
lets a backup of the database find the objects that it names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError, StartupError
from trt_responses.stores.at_rest.compress import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.stores.objects.bucket import Bucket
    from trt_responses.stores.postgres.connections import Connections

MARK = b"\0\0\0\x80"
"""The beginning of the data of a block that is an object; its key follows."""
OVER_BYTES = LARGE_BYTES
"""Packed blocks of more bytes become objects."""
GRACE_S = 86_400.0
AT_ONCE = 100
NOTE = (
    "INSERT INTO trt_responses.objects (key, since) "
    "SELECT key, trt_responses.now() FROM unnest(%s::text[]) AS key "
    "ON CONFLICT DO NOTHING RETURNING 1"
)
DOOM = (
    "UPDATE trt_responses.objects SET doomed = true WHERE key IN "
    "(SELECT key FROM trt_responses.objects WHERE since <= trt_responses.now() - %s::float8 "
    "ORDER BY since LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING key"
)
FORGET = "DELETE FROM trt_responses.objects WHERE key = ANY(%s::text[]) AND doomed RETURNING 1"


class Objects:
    """The object store, and the notes about it in the database."""

    def __init__(self, bucket: Bucket, server: Connections, grace_s: float) -> None:
        self._bucket = bucket
        self._server = server
        self._grace_s = grace_s

    async def start(self) -> None:
        await self._bucket.start()

    async def stop(self) -> None:
        await self._bucket.stop()

    async def outside(self, data: Sequence[bytes]) -> list[bytes]:
        """What the database keeps as the data of blocks, once the large ones are objects."""
        keys = {n: self._bucket.key_for(each) for n, each in enumerate(data) if is_large(each)}
        if keys:
            await self._server.rows(NOTE, ([*keys.values()],))
            await asyncio.gather(*(self._bucket.put(key, data[n]) for n, key in keys.items()))
        return [MARK + keys[n].encode() if n in keys else each for n, each in enumerate(data)]

    async def inside(self, data: bytes) -> bytes:
        """The content of an object that stands for a block's data. Raises a `LookupError` if it
        does not exist."""
        content = await self._bucket.get(data[len(MARK) :].decode())
        if content is None:
            raise LookupError
        return content

    async def collect(self, grace_s: float | None = None) -> int:
        """Delete the objects that no block has named for the grace period. Several servers may do
        this at once. Returns how many objects that were."""
        deleted = 0
        while True:
            limits = (self._grace_s if grace_s is None else grace_s, AT_ONCE)
            keys = [key for (key,) in await self._server.rows(DOOM, limits)]
            await asyncio.gather(*map(self._bucket.delete, keys))
            if keys:
                await self._server.rows(FORGET, (keys,))
            deleted += len(keys)
            if len(keys) < AT_ONCE:
                return deleted


def is_large(data: bytes) -> bool:
    """Whether a packed block becomes an object."""
    return len(data) > OVER_BYTES


def objects_of(url: str, server: Connections) -> Objects:
    """The object store at a URL."""
    try:
        from trt_responses.stores.objects.bucket import Bucket, keys_of
    except ModuleNotFoundError as fault:
        raise StartupError(
            f"`objects` of the store is not installed (no module {fault.name}): "
            "pip install 'trt-responses[postgres]'."
        ) from None
    return Objects(Bucket(url, keys_of()), server, GRACE_S)


def lost(response_id: str, why: str) -> ApiError:
    """The error for a record of which an object cannot be read."""
    return ApiError(f"A part of the stored response '{response_id}' is an object, and {why}.")
