"""Creates the store that the settings name."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.backends.installed import maker, needed
from trt_responses.backends.settings import StoreNumbers, StoreSettings
from trt_responses.backends.store_place import store_place
from trt_responses.errors import StartupError, UsageError
from trt_responses.settings import PREFIX
from trt_responses.stores.limits import Bounds

RECORD_BYTES = 16 * 1024
"""Of STORE_BYTES for each record: most take less after compression, and so this bounds the index
over them."""
OWN = ("memory", "sqlite", "redis", "postgresql")

if TYPE_CHECKING:
    from trt_responses.settings import Settings
    from trt_responses.stores.whole import Spell, WholeStore


def store_of(settings: Settings, spell: Spell) -> WholeStore:
    """The store that the settings name. Text that `spell` can derive from ids is stored as ids
    alone."""
    kept = StoreSettings.of(settings)
    bounds = Bounds(
        max_bytes=kept.store_bytes,
        max_records=max(kept.store_bytes // RECORD_BYTES, 1),
        max_age_s=kept.store_age_s,
        max_frame_bytes=kept.store_bytes // 4,  # streams are kept beside the responses
        lease_s=kept.lease_s,
        takeover_s=StoreNumbers.of(settings).takeover_s,
    )
    place = store_place(settings)
    match place.kind:
        case "memory":
            from trt_responses.stores.memory.store import MemoryStore

            # The store ends with its server: no other server can resume its jobs.
            own = replace(bounds, takeover_s=0.0)
            return MemoryStore(own, lease_clock_s=time.monotonic, spell=spell)
        case "sqlite":
            with needed(f"{PREFIX}STORE: the SQLite store"):
                from trt_responses.stores.sqlite.store import SqliteStore
            return SqliteStore(
                Path(place.where),
                bounds,
                synchronous=place.synchronous,
                spell=spell,
                lease_clock_s=time.monotonic,
                boot=_boot(),
            )
        case "redis":
            with needed(f"{PREFIX}STORE: the Redis store", "redis"):
                from trt_responses.stores.redis.store import RedisStore
            return RedisStore(place.where, bounds, spell=spell)
        case "postgresql" | "postgres":
            with needed(f"{PREFIX}STORE: the PostgreSQL store", "postgres"):
                from trt_responses.stores.postgres.store import PostgresStore
            return PostgresStore(place.where, bounds, spell)
        case kind:
            try:
                store: WholeStore = maker("stores", kind, OWN)(place.where, bounds, spell)
            except StartupError as error:
                raise UsageError(f"{PREFIX}STORE: {error}") from None
            return store


def _boot() -> str:
    """The boot id of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
