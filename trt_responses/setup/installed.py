"""The folders of a server: those of this package, and those that other packages bring.

Another package names its own in the entry points `trt_responses.folders`, each a function like
`install` of `setup/server.py`.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points

from trt_responses.errors import UsageError
from trt_responses.settings import PREFIX, Settings
from trt_responses.setup.server import Server

Install = Callable[[Server], None]

logger = logging.getLogger(__name__)

PACKAGE = "trt_responses"
GROUP = "trt_responses.folders"
FOLDERS = (
    "features.connections",
    "features.cors",
    "features.script",
    "features.cassette",
    "features.encryption",
    "features.limits",
    "features.retention",
    "features.regions",
    "features.parallel_calls",
    "features.recovery",
    "features.second_chance",
    "features.stall",
    "features.seal",
    "features.references",
    "features.conversations",
    "features.compaction",
    "features.tool_items",
    "features.agent_messages",
    "features.input_settings",
    "features.action_tools",
    "features.hosted_tools",
    "features.tool_search",
    "features.programs",
    "features.guides",
    "features.stop",
    "features.summaries",
    "features.known_tools",
    "features.shapes",
    "features.open_responses",
    "features.logprobs",
    "features.peer_words",
    "features.prefill",
    "features.truncation",
    "features.vocabularies",
    "features.run_traces",
    "features.include",
    "features.traces",
    "features.health",
    "features.metrics",
    "features.explain",
    "features.cache_diagnostics",  # compares what is kept to be explained
    "features.files",
    "features.containers",
    "features.owners",
    "features.webhooks",
    "features.batches",
    "features.long_runs",
    "features.stored",
    "features.background",
    "features.steer",
    "features.card",
    "features.engine_headers",
    "features.description",
    "features.models",
    "features.rollout",  # what is loaded is given up before background runs are waited for
    "features.several",  # its leases take the place of those on versions
    "apis.websocket",
    "apis.chat",
    "apis.messages",
    "apis.decisions",
    "apis.kserve",
    "apis.playground",
    "features.idempotency",  # what it makes is cancelled before anything else ends
)
"""Each is installed behind those that it needs parts of, and left out where it, or a part it needs,
is missing."""

REQUIRED_BY = {
    "features.engine_headers": "engine_headers",
    "features.encryption": "store_keys",
    "features.regions": "regions",
    "features.retention": "keys_file",
    "features.files": "files",
    "features.parallel_calls": "max_calls",
    "features.seal": "seal_keys",
    "features.summaries": "thought_summaries",
    "features.traces": "otlp_endpoint",
    "features.webhooks": "webhook_url",
}
"""The setting that requires each of these folders."""


def install_all(server: Server) -> None:
    """Let every installed folder add its parts. Raises a `UsageError` for a setting whose folder
    is missing."""
    for install in list(_installs(server.settings)):  # an error of one comes before all
        install(server)


def _installs(settings: Settings) -> Iterator[Install]:
    for folder in FOLDERS:
        try:
            yield importlib.import_module(f"{PACKAGE}.{folder}.install").install
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(f"{PACKAGE}."):
                raise
            setting = REQUIRED_BY.get(folder, "")
            fields = type(settings).model_fields
            if setting in fields and getattr(settings, setting) != fields[setting].default:
                raise UsageError(
                    f"{PREFIX}{setting.upper()}: {folder} is not installed (module {error.name} "
                    "is missing)."
                ) from None
            logger.info("skipping %s: module %s is not installed", folder, error.name)
    for entry in _entries():
        yield entry.load()


@cache
def _entries() -> EntryPoints:
    """Those of other packages: to find them takes 5 ms, and a process may make many apps."""
    return entry_points(group=GROUP)
