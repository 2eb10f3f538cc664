"""A store that refuses to start with keys that do not open it.

A record in the store, sealed with the newest key, shows at the next start which key is missing.
"""

from __future__ import annotations

from dataclasses import replace

from trt_responses.errors import ApiError, StartupError
from trt_responses.features.encryption.keys import SETTING
from trt_responses.features.encryption.store import EncryptedStore
from trt_responses.store import Record

WITNESS = Record("trt_keys", "(store)", b"{}", (), 0, 0, False, "", 0)
"""The record: of an owner that no key can name."""


class WitnessedStore(EncryptedStore):
    """The store of a server: its start reads the witness, and leaves a new one."""

    async def start(self) -> None:
        await self.inner.start()
        try:
            await self.get(WITNESS.id, WITNESS.owner)
        except ApiError as error:
            await self.inner.stop()
            raise StartupError(f"{SETTING} does not open the store: {error.message}") from None
        await self.witness()

    async def witness(self) -> None:
        """Leave a sealed record, for the next start."""
        if self.keys.newest is not None:
            await self.put(replace(WITNESS, created_at=2**40))  # it does not age
