"""How much a store keeps, and for how long. Every kind obeys what it can; docs say which."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes are those at rest: compressed, a shared block once."""

    max_bytes: int = 256 * MIB
    max_records: int = 10_000
    max_age_s: float | None = None
    max_expired: int = 10_000
    """Ids of records that were dropped, so that their owner hears so."""
    max_frame_bytes: int = 64 * MIB
    lease_s: float = 30.0
    """How long a job lives without a heartbeat."""
    takeover_s: float = 0.0
    """How long after that another server may take it."""
    max_deaths: int = 3
    """Servers that may die with one job."""
