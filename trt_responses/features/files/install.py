"""Uploaded files: their endpoints, and an end for those that have expired."""

from __future__ import annotations

import asyncio
import logging
import time

from trt_responses.features.files.endpoint import FileRoutes
from trt_responses.features.files.files import Bounds, Files, Retaining, Sealing
from trt_responses.features.files.inputs import InputFiles
from trt_responses.features.files.settings import FileSettings
from trt_responses.setup.server import Server
from trt_responses.tasks import beside
from trt_responses.tools.containers import containers_of

SWEEP_S = 3600.0
"""An expired file is not served meanwhile."""
logger = logging.getLogger(__name__)


def install(server: Server) -> None:
    own, parts = FileSettings.of(server.settings), server.by_class.values()
    keys = next((part for part in parts if isinstance(part, Sealing)), None)
    retaining = next((part for part in parts if isinstance(part, Retaining)), None)
    files = Files(
        own.files or server.settings.data_dir / "files",
        Bounds(own.files_bytes, own.files_age_s),
        time.time,
        keys,
        dict if retaining is None else retaining.kept_s,
    )
    server.provide(files)
    if (held := containers_of(server.tools)) is not None:
        held.files.uploads = files
        kinds = frozenset(tool.kind for tool in server.tools if containers_of([tool]) is held)
        server.features.append(InputFiles(files, kinds))
    server.add_routes(19, lambda shared: [FileRoutes(shared, files)])
    server.lives.append(lambda: beside(_sweep(server, files)))


async def _sweep(server: Server, files: Files) -> None:
    while True:
        try:
            if deleted := await asyncio.to_thread(files.sweep):
                logger.info("deleted expired files: files=%d", deleted)
        except OSError as error:
            logger.warning("expired files stay: %s", error)
        await server.sleep(SWEEP_S)
