"""The folders of a server: those of this package, and those that other packages bring.

Another package names its own in the entry points `trt_responses.folders`, each a function like
`install` of `setup/server.py`.
"""

from __future__ import annotations

import importlib
import logging
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trt_responses.setup.server import Server

    Install = Callable[[Server], None]

logger = logging.getLogger(__name__)

PACKAGE = "trt_responses"
GROUP = "trt_responses.folders"
FOLDERS = (
    "features.limits",
    "features.seal",
    "features.conversations",
    "features.compaction",
    "features.hosted_tools",
    "features.stop",
    "features.logprobs",
    "features.prefill",
    "features.include",
    "features.traces",
    "features.metrics",
    "features.explain",
    "features.containers",
    "features.background",
    "features.rollout",  # what is loaded is given up before background runs are waited for
    "apis.websocket",
    "apis.chat",
    "apis.messages",
    "apis.kserve",
    "apis.playground",
)
"""Each is installed behind those that it asks for parts, and left out where it, or what it cannot
do without, is not there."""


def install_all(server: Server) -> None:
    """Let every folder that is there bring what it has."""
    for install in _found():
        install(server)


def _found() -> Iterator[Install]:
    for folder in FOLDERS:
        try:
            yield importlib.import_module(f"{PACKAGE}.{folder}.install").install
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(f"{PACKAGE}."):
                raise
            logger.info("%s is not installed: there is no %s", folder, error.name)
    for entry in entry_points(group=GROUP):
        yield entry.load()
