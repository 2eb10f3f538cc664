"""Background jobs in memory: who runs them still, and whether they are wanted. Knows leases; knows
no record and no frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.store.base import Job, Standing


@dataclass(slots=True)
class _Running:
    job: Job
    lease_until: float
    cancel_asked: bool = False


class MemoryJobs:
    """By id. A job whose lease is over is lost: it can be read, and nothing else."""

    def __init__(self, lease_s: float, clock_s: Callable[[], float]) -> None:
        self.lease_s = lease_s
        self._clock_s = clock_s
        self._jobs: dict[str, _Running] = {}

    def put(self, job: Job) -> None:
        self._jobs[job.id] = _Running(job, self._lease())

    def get(self, job_id: str) -> Job | None:
        running = self._jobs.get(job_id)
        if running is None:
            return None
        return replace(running.job, cancel_asked=running.cancel_asked, lost=self._lost(running))

    def owner_of(self, job_id: str) -> str | None:
        running = self._jobs.get(job_id)
        return None if running is None else running.job.owner

    def renew(self, job_id: str, body: bytes | None) -> Standing:
        running = self._held(job_id)
        if running is None:
            return "gone"
        running.lease_until = self._lease()
        if body is not None:
            running.job = replace(running.job, body=body)
        return "cancel" if running.cancel_asked else "held"

    def cancel(self, job_id: str, owner: str) -> bool:
        running = self._held(job_id)
        if running is None or running.job.owner != owner:
            return False
        running.cancel_asked = True
        return True

    def finish(self, job_id: str) -> bool:
        """Whether it was still held. It is gone then."""
        if self._held(job_id) is None:
            return False
        del self._jobs[job_id]
        return True

    def drop(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def drop_lost(self, is_old: Callable[[Job], bool]) -> list[Job]:
        """Those that nobody will end any more."""
        lost = [each.job for each in self._jobs.values() if is_old(each.job) and self._lost(each)]
        for job in lost:
            del self._jobs[job.id]
        return lost

    def clear(self) -> None:
        self._jobs.clear()

    def _held(self, job_id: str) -> _Running | None:
        running = self._jobs.get(job_id)
        return None if running is None or self._lost(running) else running

    def _lost(self, running: _Running) -> bool:
        return self._clock_s() >= running.lease_until

    def _lease(self) -> float:
        return self._clock_s() + self.lease_s
