"""Requests that come together are not searched for garbage while they run: they leave none."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from tests.support.served import THOUGHT, served
from trt_responses.serve.server import YOUNG_OBJECTS, freeze_heap

if TYPE_CHECKING:
    from collections.abc import Iterator

TOGETHER = 24


class Loop:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def heap() -> Iterator[None]:
    """The heap as a server has it."""
    before = gc.get_threshold()
    freeze_heap()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_requests_that_run_together_are_not_collected() -> None:
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            found.append(info["collected"])

    async def story() -> None:
        async with served(THOUGHT) as s:
            await asyncio.gather(*(s.client.create(stream=True) for _ in range(TOGETHER)))
            gc.collect()
            gc.callbacks.append(note)
            try:
                await asyncio.gather(*(s.client.create(stream=True) for _ in range(TOGETHER)))
                during = [*found]
                gc.collect()
            finally:
                gc.callbacks.remove(note)
        assert during == []

    asyncio.run(story())


def test_what_has_cycles_is_collected_in_time() -> None:
    first = weakref.ref(Loop())
    for _ in range(2 * YOUNG_OBJECTS):
        Loop()
    assert first() is None
