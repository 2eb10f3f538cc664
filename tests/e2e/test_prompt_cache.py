"""Prompts beyond the slots of the embedded engine: warm where they should be, and never wrong.

The random model has windowed layers, and each answer is compared with that to a cold prompt.
Budget: 25 s on one core, most of it reading prompts.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.gather import Gather, begin, generated
from tests.support.turns import turn
from trt_responses.engine import GenerateOptions
from trt_responses.engines.llamacpp.engine import LlamaCppEngine

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.xdist_group("prompt_cache")  # one process loads its engines


LONG = 420
"""The random model's window is 128."""
CLOSE = 0.15
"""Between log probabilities of one prompt read in two ways: measured 0.06, and 19 of 20 of the
likeliest ids are the same. With a cut state 0.21 to 0.35, and 7 to 16 are."""
COMMON = 17


@dataclass
class Bench:
    engine: LlamaCppEngine
    runner: asyncio.Runner
    numbers: random.Random = field(default_factory=lambda: random.Random(44))
    strangers: int = 0

    def run(self, claim: Coroutine[Any, Any, Gather]) -> Gather:
        return self.runner.run(asyncio.wait_for(claim, 120))

    def ids(self, count: int) -> list[int]:
        return [self.numbers.randrange(199_000) for _ in range(count)]

    def ask(self, prompt: list[int], owner: str) -> Gather:
        options = GenerateOptions(2, (), temperature=0.0, logprobs=20, cache_salt=owner)
        return self.run(generated(self.engine, prompt, options))

    def cached(self, prompt: list[int], owner: str) -> int | None:
        """The ids of the prompt that were warm. The answer must be that to a cold one."""
        warm = self.ask(prompt, owner)
        self.strangers += 1
        cold = self.ask(prompt, f"stranger {self.strangers}")
        assert cold.cached_tokens == 0
        one, other = dict(warm.logprobs[0].top), dict(cold.logprobs[0].top)
        shared = one.keys() & other.keys()
        assert len(shared) >= COMMON
        assert max(abs(one[n] - other[n]) for n in shared) < CLOSE
        return warm.cached_tokens


def started(gguf: Path, **options: Any) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        engine = LlamaCppEngine(gguf, context_tokens=2048, threads=1, **options)
        runner.run(engine.start())
        yield Bench(engine, runner)
        runner.run(engine.stop(5))


@pytest.fixture(scope="module")
def bench(random_gguf: Path) -> Iterator[Bench]:
    """One slot, so that each prompt takes the place of the one before."""
    yield from started(random_gguf, slots=1, prompt_cache_mib=64)


@pytest.mark.slow  # reads 10,000 ids
def test_a_prompt_is_warm_after_others_were_read_and_so_is_what_continues_it(bench: Bench) -> None:
    first = bench.ids(LONG)
    assert bench.cached(first, "one") == 0
    assert bench.cached(bench.ids(LONG), "one") == 0
    assert bench.cached(first, "one") == LONG - 1
    assert bench.cached([*first, *bench.ids(300)], "one") == LONG - 1
    assert bench.cached(first[:-1], "one") == 0  # the state is as long: one id would be cut


@pytest.mark.slow  # reads 10,000 ids
def test_a_prompt_that_parts_from_a_saved_one_is_read_once_and_then_warm(bench: Bench) -> None:
    """A cut of the saved state would be close to its end, where llama.cpp does not notice it."""
    common = bench.ids(LONG - 40)
    for rest, expected in ((40, 0), (5, 0), (5, LONG - 40), (5, LONG - 40)):
        assert bench.cached([*common, *bench.ids(rest)], "parting") == expected


@pytest.mark.slow  # reads 5,000 ids
def test_another_owner_finds_nothing(bench: Bench) -> None:
    prompt = bench.ids(LONG)
    for owner in ("a", "b"):
        assert bench.cached(prompt, owner) == 0
    for owner in ("a", "b"):
        assert bench.cached(prompt, owner) == LONG - 1


@pytest.mark.slow  # reads 3,000 ids
def test_a_request_aborted_at_any_moment_leaves_the_slot_as_it_was(bench: Bench) -> None:
    prompts = [bench.ids(LONG) for _ in range(2)]
    for prompt in prompts:
        bench.cached(prompt, "leaver")

    async def leave(turns: int) -> Gather:
        options = GenerateOptions(2, (), cache_salt="leaver")
        sink, handle = begin(bench.engine, prompts[turns % 2], options)
        await turn(turns)
        handle.abort()
        return sink

    for turns in (0, 1, 2, 5, 20, 100):
        bench.run(leave(turns))
        assert bench.cached(prompts[0], "leaver") == LONG - 1


@pytest.mark.slow  # a child starts twice
def test_a_dead_childs_states_are_forgotten(bench: Bench) -> None:
    prompt = bench.ids(LONG)
    bench.cached(prompt, "heir")
    assert bench.cached(prompt, "heir") == LONG - 1

    async def died() -> None:
        assert bench.engine.child is not None
        bench.engine.child.kill()
        await bench.engine.child.ended()
        await turn(5)  # the engine waits for the same end
        await bench.engine.settled()

    bench.runner.run(died())
    assert bench.engine.prompt_cache_bytes == 0
    assert bench.cached(prompt, "heir") == 0
    assert bench.cached(prompt, "heir") == LONG - 1


@pytest.mark.slow  # a child starts, and reads 10,000 ids
def test_the_states_stay_within_the_bound_and_the_oldest_go_first(random_gguf: Path) -> None:
    for bench in started(random_gguf, slots=1, prompt_cache_mib=1):
        prompts = [bench.ids(LONG) for _ in range(5)]
        for prompt in prompts:
            bench.ask(prompt, "one")
            assert bench.engine.prompt_cache_bytes <= 2**20
        assert bench.engine.prompt_cache_bytes > 2**19
        for number, expected in ((3, LONG - 1), (0, 0)):
            assert bench.ask(prompts[number], "one").cached_tokens == expected
