"""The batch: who is computed next, in which slot, and that nobody ever hears of it.

The executor's logits are a hash of what its cache holds, so a wrong id anywhere is another answer.
Budget: 5 s on one core.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.support.executor import HashExecutor
from tests.support.gather import Gather
from trt_responses.engine import GenerateOptions
from trt_responses.engines.tensorrt.batch import Batch
from trt_responses.engines.tensorrt.request import Request
from trt_responses.engines.tensorrt.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence


class Asked(Request):
    """A request that keeps what it hears."""

    def __init__(
        self,
        prompt: Sequence[int],
        executor: HashExecutor,
        *,
        max_tokens: int = 5,
        salt: str | None = None,
        priority: float = 0.5,
    ) -> None:
        options = GenerateOptions(
            max_tokens, (), temperature=0.0, cache_salt=salt, priority=priority
        )
        self.prompt = list(prompt)
        self.told = Gather()
        left = min(max_tokens, executor.length - len(self.prompt))
        sampler = Sampler(options, 0, executor.vocabulary)
        super().__init__(prompt, options, left, sampler, self.told, lambda request: None)

    @property
    def is_right(self) -> bool:
        return self.told.token_ids == HashExecutor(length=999).greedy(
            self.prompt, len(self.told.token_ids)
        )


def step(batch: Batch) -> int:
    """One step, heard by whom it concerns; how many those were."""
    told = batch.step()
    for request, chunk in told:
        request.emit(chunk)
    return len(told)


def run(batch: Batch, *requests: Asked) -> None:
    for request in requests:
        batch.add(request)
    while batch.busy:
        step(batch)


def prompt(size: int, start: int = 0) -> list[int]:
    return [(start + 7 * n) % 150 for n in range(size)]


def test_a_prompt_is_read_in_chunks_and_answered() -> None:
    executor = HashExecutor()
    asked = Asked(prompt(20), executor)
    run(Batch(executor), asked)
    assert asked.is_right
    assert asked.told.end.finish == "length"
    assert [call for call in executor.calls if call[0] == "prefill"] == [
        ("prefill", (0, 0, 8)),
        ("prefill", (0, 8, 8)),
        ("prefill", (0, 16, 4)),
    ]
    assert len(executor.calls) == 3 + 4  # the last chunk gives the first id


def test_one_step_serves_all_that_speak() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    asked = [Asked(prompt(4, n), executor, max_tokens=9) for n in range(3)]
    for request in asked:
        batch.add(request)
    while any(request.pending > 1 for request in asked):
        step(batch)
    assert step(batch) == 3


def test_a_long_prompt_and_those_who_speak_take_turns() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    speaking = Asked(prompt(3), executor, max_tokens=20)
    batch.add(speaking)
    step(batch)
    long = Asked(prompt(40, 1), executor)
    batch.add(long)
    executor.calls.clear()
    for _ in range(8):
        step(batch)
    assert [call[0] for call in executor.calls] == ["decode", "prefill"] * 4
    run(batch)
    assert speaking.is_right
    assert long.is_right


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    long, short = Asked(prompt(50), executor), Asked(prompt(5, 1), executor)
    batch.add(long)
    batch.add(short)
    while not short.told.chunks:
        step(batch)
    assert len(executor.calls) == 2
    assert long.pending > 1
    run(batch)
    assert long.is_right
    assert short.is_right


def test_a_prompt_that_is_continued_is_read_from_where_it_goes_on() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    first = Asked(prompt(20), executor)
    run(batch, first)
    assert [chunk.cached_tokens for chunk in first.told.chunks] == [0, None, None, None, None]
    longer = [*first.prompt, *first.told.token_ids, 5, 6, 7]
    again = Asked(longer, executor)
    executor.calls.clear()
    run(batch, again)
    assert again.is_right
    # The last id that was said has not been written: nobody had to continue it.
    assert again.told.cached_tokens == len(longer) - 4
    assert executor.calls[0] == ("prefill", (0, len(longer) - 4, 4))


def test_a_prompt_asked_again_needs_its_last_id_only() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    first, again = Asked(prompt(20), executor), Asked(prompt(20), executor)
    run(batch, first)
    executor.calls.clear()
    run(batch, again)
    assert again.told.token_ids == first.told.token_ids
    assert again.told.cached_tokens == 19
    assert {call[0] for call in executor.calls} == {"decode"}


def test_a_rewound_slot_forgets_what_stood_behind() -> None:
    executor = HashExecutor()
    batch = Batch(executor)
    run(batch, Asked(prompt(30), executor))
    branch = Asked([*prompt(20), 1, 2, 3], executor)
    run(batch, branch)
    assert branch.told.cached_tokens == 20
    assert branch.is_right


@pytest.mark.parametrize("salt", ["another", None])
def test_nothing_is_shared_with_another_owner(salt: str | None) -> None:
    executor = HashExecutor(slots=1)
    batch = Batch(executor)
    run(batch, Asked(prompt(20), executor, salt="one"))
    other = Asked(prompt(20), executor, salt=salt)
    run(batch, other)
    assert other.told.cached_tokens == 0
    same = Asked(prompt(20), executor, salt=salt)
    run(batch, same)
    assert same.told.cached_tokens == 19


def test_an_aborted_request_is_forgotten_and_its_slot_goes_on_right() -> None:
    executor = HashExecutor(slots=1)
    batch = Batch(executor)
    first = Asked(prompt(30), executor)
    batch.add(first)
    step(batch)
    first.abort()
    second = Asked(prompt(30), executor)
    run(batch, second)
    assert not first.told.chunks
    assert second.told.cached_tokens == 8  # the chunk that was read is worth keeping
    assert second.is_right


def test_the_line_goes_by_priority_and_then_by_arrival() -> None:
    executor = HashExecutor(slots=1)
    batch = Batch(executor)
    heard: list[str] = []
    requests = {
        name: Asked(prompt(4, n), executor, priority=priority)
        for n, (name, priority) in enumerate(
            {"first": 0.5, "second": 0.5, "urgent": 0.9, "late": 0.1}.items()
        )
    }
    for request in requests.values():
        batch.add(request)
    while batch.busy:
        for told, chunk in batch.step():
            if chunk.finish:
                heard += [name for name, request in requests.items() if request is told]
    assert heard == ["urgent", "first", "second", "late"]


def test_the_end_of_the_context_is_a_length_finish_and_the_slot_is_still_good() -> None:
    executor = HashExecutor(slots=1)
    batch = Batch(executor)
    full = Asked(prompt(50), executor, max_tokens=999)
    run(batch, full)
    assert len(full.prompt) + len(full.told.token_ids) == executor.length
    assert full.told.end.finish == "length"
    assert full.is_right
    again = Asked([*full.prompt, *full.told.token_ids][:60], executor, max_tokens=4)
    run(batch, again)
    assert again.told.cached_tokens == 59
    assert again.is_right


def test_a_chunk_that_overflows_is_computed_again_in_pieces_that_cannot() -> None:
    executor = HashExecutor(length=300, chunk=200, overflows=lambda size: size > 64)
    asked = Asked(prompt(250), executor, max_tokens=2)
    run(Batch(executor), asked)
    assert asked.is_right
    assert [call[1][1:] for call in executor.calls if call[0] == "prefill"] == [
        (0, 200), (0, 64), (64, 64), (128, 64), (192, 8), (200, 50),
    ]  # fmt: skip


def test_numbers_that_are_none_end_the_request_and_are_not_kept() -> None:
    executor = HashExecutor(slots=1, spread=float("inf"))
    batch = Batch(executor)
    broken = Asked(prompt(5), executor)
    run(batch, broken)
    assert broken.told.end.finish == "error"
    executor.spread = 4.0
    right = Asked(prompt(5), executor)
    run(batch, right)
    assert right.told.cached_tokens == 0
    assert right.is_right


def test_whoever_comes_and_goes_each_hears_what_it_would_alone() -> None:
    chance = random.Random(5)
    executor = HashExecutor(slots=3, length=48)
    batch = Batch(executor)
    asked: list[Asked] = []
    for _ in range(400):
        if chance.random() < 0.25:
            stem = prompt(chance.randrange(1, 40), chance.randrange(3))
            request = Asked(
                [*stem, chance.randrange(150)],
                executor,
                max_tokens=chance.randrange(1, 20),
                salt=chance.choice([None, "a"]),
                priority=chance.random(),
            )
            batch.add(request)
            asked.append(request)
        if asked and chance.random() < 0.05:
            chance.choice(asked).abort()
        step(batch)
    run(batch)
    assert all(request.is_right for request in asked)
    finished = [request for request in asked if request.told.finished]
    assert len(finished) > 50
    assert any(request.told.cached_tokens for request in finished)
    assert any(not request.told.finished for request in asked)
