"""How much a store keeps, and for how long. Every kind obeys what it can; docs say which."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a store. Bytes are those at rest: compressed, a shared block once."""

    max_bytes: int = 256 * MIB
    max_records: int = 10_000
    max_age_s: float | None = None
    max_expired: int = 10_000
    """Ids of dropped records that are remembered, so that their owner hears so."""
    max_frame_bytes: int = 64 * MIB
    lease_s: float = 30.0
    """Seconds that a job lives without a heartbeat."""
    takeover_s: float = 0.0
    """Seconds after that in which another server may take it."""
    max_deaths: int = 3
    """Servers that may die with one job."""
