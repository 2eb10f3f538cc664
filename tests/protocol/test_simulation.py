"""Random lives of two servers over one store, and that they find faults of leases.

Each life is a few hundred steps on virtual time; `python -m scripts.simulate` lives more of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulation import UnreliableStore, Wrong, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.store import Job
    from trt_responses.stores.limits import Bounds

LIVES = 60


class WithoutTerms(UnreliableStore):
    """What a server does with a response that another has taken is taken for the other's."""

    def __init__(self, bounds: Bounds, clock_s: Callable[[], float]) -> None:
        super().__init__(bounds, clock_s=clock_s)
        self.terms = dict[str, int]()

    async def take_job(self, model: str) -> Job | None:
        if (job := await super().take_job(model)) is not None:
            self.terms[job.id] = job.term
        return job


class KeepsAnybodysFrames(WithoutTerms):
    async def append_frames(self, response_id: str, frames: Any, *, term: int = 1) -> bool:
        term = self.terms.get(response_id, term)
        return await super().append_frames(response_id, frames, term=term)


class EndsForAnybody(WithoutTerms):
    async def finish_job(self, record: Any, *more: Any, term: int = 1) -> bool:
        return await super().finish_job(record, *more, term=self.terms.get(record.id, term))


class TakesWithoutATerm(KeepsAnybodysFrames, EndsForAnybody):
    """Two servers may have a response under one term."""

    async def take_job(self, model: str) -> Job | None:
        job = await super().take_job(model)
        return None if job is None else replace(job, term=1)

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Any:
        term = self.terms.get(job_id, term)
        return await super().renew_job(job_id, body, term=term)


class ForgetsSome(UnreliableStore):
    """Acknowledges what it does not keep."""

    puts = 0

    async def put(self, record: Any) -> None:
        self.puts += 1
        if self.puts % 4:
            await super().put(record)


def breaks(seed: int, store_type: type[UnreliableStore]) -> bool:
    try:
        simulate(seed, store_type)
    except Wrong:
        return True
    return False


@pytest.mark.parametrize("seed", [0, 9, 15])
def test_a_life_keeps_what_clients_were_told(seed: int) -> None:
    simulate(seed)


@pytest.mark.slow  # 40 s: lives of two servers
@pytest.mark.parametrize("tens", range(LIVES // 10))
def test_lives_keep_what_clients_were_told(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        simulate(seed)


def test_a_seed_gives_the_same_life_each_time() -> None:
    assert simulate(31) == simulate(31)


@pytest.mark.slow  # 10 s: each lives until its fault shows
@pytest.mark.parametrize(
    ("store_type", "seed"),
    [(KeepsAnybodysFrames, 15), (EndsForAnybody, 31), (TakesWithoutATerm, 31), (ForgetsSome, 0)],
)
def test_a_fault_of_the_store_is_found(store_type: type[UnreliableStore], seed: int) -> None:
    """`seed` is one that finds it now."""
    assert any(breaks(each, store_type) for each in (seed, *range(2 * LIVES)))
