"""The store of a server, encrypted."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from trt_responses.backends.dialects import spelled
from trt_responses.errors import ApiError, StartupError, UsageError
from trt_responses.features.encryption.keys import SETTING, StoreKeys, reader
from trt_responses.features.encryption.settings import EncryptionSettings
from trt_responses.features.encryption.witness import WITNESS, WitnessedStore
from trt_responses.store import Record
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trt_responses.settings import Settings
    from trt_responses.setup.server import Server
    from trt_responses.stores.whole import WholeStore

LOOK_S = 60.0
"""Seconds between two readings of the keys."""
logger = logging.getLogger(__name__)


def install(server: Server) -> None:
    store = encrypted(server.settings, server.store)
    if store is None:
        if server.settings.store not in (None, "memory://"):
            server.lives.append(lambda: _refused(server.store))
        return
    server.store = cast("WholeStore", store)
    server.provide(store.keys)
    server.lives.append(lambda: beside(_look_again(server, store)))


def encrypted(settings: Settings, inner: WholeStore) -> WitnessedStore | None:
    """The store with the keys of the settings around it; None if they name none."""
    own = EncryptionSettings.of(settings)
    if own.store_keys is None:
        return None
    try:
        return WitnessedStore(inner, StoreKeys(reader(own.store_keys)), spelled())
    except StartupError as error:
        raise UsageError(str(error)) from None


@asynccontextmanager
async def _refused(store: WholeStore) -> AsyncIterator[None]:
    """Refuse to start on an encrypted store without its keys."""
    if isinstance(await store.get(WITNESS.id, WITNESS.owner), Record):
        raise StartupError(f"The store is encrypted: name its keys in {SETTING}.")
    yield


async def _look_again(server: Server, store: WitnessedStore) -> None:
    while True:
        await server.sleep(LOOK_S)
        try:
            await asyncio.to_thread(store.keys.look)
            await store.witness()
        except (StartupError, ApiError) as error:
            logger.warning("keeping the keys of the store: %s", error)
