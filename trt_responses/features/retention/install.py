"""How long the records of each owner are kept, as the file of keys says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from trt_responses.errors import ApiError
from trt_responses.features.limits.keys import KeyRing
from trt_responses.features.limits.settings import KeySettings
from trt_responses.features.retention.feature import Retention
from trt_responses.features.retention.store import RetainedStore
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from trt_responses.setup.server import Server
    from trt_responses.stores.whole import WholeStore

SWEEP_S = 3600.0
"""Redis has no index of owners, and each sweep looks at all its keys. What is due is not read
meanwhile."""
logger = logging.getLogger(__name__)


def install(server: Server) -> None:
    if KeySettings.of(server.settings).keys_file is None:
        return
    store = RetainedStore(server.store, server.of(KeyRing).kept_s)
    server.store = cast("WholeStore", store)
    server.features.append(Retention(store.keeps))
    server.lives.append(lambda: beside(_sweep(server, store)))


async def _sweep(server: Server, store: RetainedStore) -> None:
    while True:
        await server.sleep(SWEEP_S)
        try:
            if deleted := await store.sweep(server.on_delete):
                logger.info("deleted records past their owners' retention: records=%d", deleted)
        except ApiError as error:
            logger.warning("records past their owners' retention stay: %s", error)
