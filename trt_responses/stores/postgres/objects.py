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

    def __init__(self, bucket: Bucket, server: Connections) -> None:
        self.bucket = bucket
        self._server = server

    async def outside(self, data: Sequence[bytes]) -> list[bytes]:
        """What the database keeps as the data of blocks, once the large ones are objects."""
        keys = {n: self.bucket.key_for(each) for n, each in enumerate(data) if is_large(each)}
        if keys:
            await self._server.rows(NOTE, ([*keys.values()],))
            await asyncio.gather(*(self.bucket.put(key, data[n]) for n, key in keys.items()))
        return [MARK + keys[n].encode() if n in keys else each for n, each in enumerate(data)]

    async def inside(self, data: bytes) -> bytes:
        """The content of an object that stands for a block's data. Raises a `LookupError` if it
        does not exist."""
        content = await self.bucket.get(data[len(MARK) :].decode())
        if content is None:
            raise LookupError
        return content

    async def collect(self, grace_s: float = GRACE_S) -> int:
        """Delete the objects that no block has named for the grace period. Several servers may do
        this at once. Returns how many objects that were."""
        deleted = 0
        while True:
            keys = [key for (key,) in await self._server.rows(DOOM, (grace_s, AT_ONCE))]
            await asyncio.gather(*map(self.bucket.delete, keys))
            if keys:
                await self._server.rows(FORGET, (keys,))
            deleted += len(keys)
            if len(keys) < AT_ONCE:
                return deleted


def is_large(data: bytes) -> bool:
    """Whether a packed block becomes an object."""
    return len(data) > LARGE_BYTES


def objects_of(url: str, server: Connections) -> Objects:
    """The object store at a URL."""
    try:
        from trt_responses.stores.objects.bucket import Bucket, keys_of
    except ModuleNotFoundError as fault:
        raise StartupError(
            f"`objects` of the store is not installed (no module {fault.name}): "
            "pip install 'trt-responses[postgres]'."
        ) from None
    return Objects(Bucket(url, keys_of()), server)


def lost(response_id: str, why: str) -> ApiError:
    """The error for a record of which an object cannot be read."""
    return ApiError(f"A part of the stored response '{response_id}' is an object, and {why}.")
