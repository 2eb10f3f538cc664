"""How long the records of each owner are kept, as the file of keys says. Requests of owners without
retention have `store: false`, and the response says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import ApiError
from trt_responses.feature import Step
from trt_responses.features.limits.keys import KeyRing
from trt_responses.features.limits.settings import KeySettings
from trt_responses.features.retention.store import RetainedStore, nothing_is_kept
from trt_responses.frozen import replace
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server
from trt_responses.stores.whole import WholeStore
from trt_responses.tasks import beside

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
        try:
            if deleted := await store.sweep(server.on_delete):
                logger.info("deleted records past their owners' retention: records=%d", deleted)
        except ApiError as error:
            logger.warning("records past their owners' retention stay: %s", error)
        await server.sleep(SWEEP_S)


class Retention:
    """`keeps` says whether anything of an owner is kept."""

    reads = ("input",)

    def __init__(self, keeps: Callable[[str], bool]) -> None:
        self._keeps = keeps

    def accept(self, accepted: Accepted) -> Step | None:
        return _Forgets(self._keeps) if accepted.store else None


class _Forgets(Step):
    order = -10

    def __init__(self, keeps: Callable[[str], bool]) -> None:
        self._keeps = keeps

    async def acquire(self, draft: Draft) -> None:
        if self._keeps(draft.owner):
            return
        accepted = draft.accepted
        for param, given in (
            ("background", accepted.echo.background),
            ("conversation", accepted.conversation),
        ):
            if given:
                raise nothing_is_kept(param)
        echo = replace(accepted.echo, store=False)
        draft.accepted = replace(accepted, store=False, echo=echo)
