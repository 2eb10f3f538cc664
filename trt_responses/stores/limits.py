"""Limits of a store's size and age. Each kind of store applies those it supports; see the docs."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a store. Sizes count compressed bytes, a shared block once."""

    max_bytes: int = 256 * MIB
    max_records: int = 16_384
    max_age_s: float | None = None
    max_expired: int = 10_000
    """Remembered ids of dropped records, so that their owner gets a specific error."""
    max_frame_bytes: int = 64 * MIB
    lease_s: float = 30.0
    """Seconds until a job without a heartbeat loses its lease."""
    takeover_s: float = 0.0
    """Seconds after that in which another server may take the job over."""
    max_deaths: int = 3
    """Maximum number of servers that may die while running one job."""
