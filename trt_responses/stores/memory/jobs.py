"""Background jobs in memory: leases, takeover and cancellation. No records and no frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trt_responses.store import Job
from trt_responses.stores.limits import Bounds
from trt_responses.stores.whole import Frames, Standing


@dataclass(slots=True)
class _Running:
    job: Job
    lease_until: float
    cancel_requested: bool = False
    deaths: int = 0
    ids: bytes = b""
    frames: int = 0


class MemoryJobs:
    """Jobs by id. After its lease ends, a job can be taken over for a while; then it is lost and
    can only be read."""

    def __init__(self, bounds: Bounds, clock_s: Callable[[], float]) -> None:
        self.lease_s = bounds.lease_s
        self._bounds = bounds
        self._clock_s = clock_s
        self._jobs: dict[str, _Running] = {}

    def put(self, job: Job) -> None:
        self._jobs[job.id] = _Running(job, self._lease())

    def get(self, job_id: str) -> Job | None:
        running = self._jobs.get(job_id)
        if running is None:
            return None
        return replace(
            running.job, cancel_requested=running.cancel_requested, lost=self._lost(running)
        )

    def owner_of(self, job_id: str) -> str | None:
        running = self._jobs.get(job_id)
        return None if running is None else running.job.owner

    def ids_of(self, owner: str) -> list[str]:
        return [name for name, running in self._jobs.items() if running.job.owner == owner]

    def renew(self, job_id: str, body: bytes | None, term: int) -> Standing:
        running = self._active(job_id, term)
        if running is None:
            return "gone"
        running.lease_until = self._lease()
        if body is not None:
            running.job = replace(running.job, body=body)
        return "cancel" if running.cancel_requested else "held"

    def cancel(self, job_id: str, owner: str) -> bool:
        running = self._jobs.get(job_id)
        if running is None or running.job.owner != owner or self._lost(running):
            return False
        running.cancel_requested = True
        return True

    def take(self, model: str) -> Job | None:
        for running in self._jobs.values():
            left = self._is_over(running) and not self._lost(running)
            if left and running.job.model == model:
                running.lease_until = self._lease()
                running.deaths += 1
                running.job = replace(running.job, term=running.job.term + 1)
                return replace(
                    running.job,
                    cancel_requested=running.cancel_requested,
                    ids=running.ids,
                    frames=running.frames,
                )
        return None

    def leave(self, job_id: str, term: int, *, to_others: bool) -> None:
        if (running := self._active(job_id, term)) is not None:
            running.lease_until = self._clock_s()
            running.deaths -= 1
            if not to_others:
                running.job = replace(running.job, source=b"")

    def note(self, job_id: str, term: int, frames: Frames) -> bool:
        """Count new frames of a job. Returns whether frames of this term may be stored."""
        running = self._jobs.get(job_id)
        if running is None or running.job.term != term or self._lost(running):
            return False
        if frames.first == running.frames:
            running.frames += frames.count
            running.ids += frames.ids
        return True

    def finish(self, job_id: str, term: int) -> bool:
        """Remove a job whose lease is active. Returns whether it was."""
        if self._active(job_id, term) is None:
            return False
        del self._jobs[job_id]
        return True

    def drop(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def drop_lost(self, is_old: Callable[[Job], bool]) -> list[Job]:
        """Remove and return old jobs that no server can finish any more."""
        lost = [each.job for each in self._jobs.values() if is_old(each.job) and self._lost(each)]
        for job in lost:
            del self._jobs[job.id]
        return lost

    def clear(self) -> None:
        self._jobs.clear()

    def _active(self, job_id: str, term: int) -> _Running | None:
        running = self._jobs.get(job_id)
        if running is None or running.job.term != term or self._is_over(running):
            return None
        return running

    def _is_over(self, running: _Running) -> bool:
        return self._clock_s() >= running.lease_until

    def _lost(self, running: _Running) -> bool:
        waits_s = self._bounds.takeover_s if running.job.source else 0.0
        if running.deaths >= self._bounds.max_deaths:
            waits_s = 0.0
        return self._clock_s() >= running.lease_until + waits_s

    def _lease(self) -> float:
        return self._clock_s() + self.lease_s
