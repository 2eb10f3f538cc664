"""Which prompts are saved and restored, over a model of llama.cpp's slots: no process."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.gather import Gather
from tests.support.turns import turn
from trt_responses.engine import CONTINUATION_PRIORITY, GenerateOptions
from trt_responses.engines.llamacpp.body import words
from trt_responses.engines.llamacpp.prompt_cache import BESIDE_BYTES, MIN_IDS, PromptCache
from trt_responses.engines.llamacpp.request import Request
from trt_responses.engines.llamacpp.states import State, States
from trt_responses.engines.slots import Slot, Slots, common_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trt_responses.engines.llamacpp.process import Child

ID_BYTES = 8
PART = MIN_IDS + 44


@dataclass
class Content:
    """What a slot of llama.cpp holds. Below `whole` it lacks what left the window."""

    ids: list[int] = field(default_factory=list)
    owner: str | None = None
    lora: object = None
    whole: int = 0


class Llama:
    """A child whose slots and files can be looked into. Raises where llama.cpp would be wrong."""

    def __init__(self) -> None:
        self.slots: dict[int, Content] = {0: Content([0, 1])}
        self.files: dict[int, Content] = {}
        self.calls: list[str] = []
        self.gone = False

    def read(
        self, slot: int, ids: list[int], lora: object, *, owner: str | None, warm: bool
    ) -> int:
        """Have a slot hold these ids; returns how many were warm."""
        was = self.slots.get(slot, Content())
        known = common_prefix(was.ids, ids) if warm and was.lora == lora else 0
        known = min(known, len(ids) - 1)
        assert known == 0 or was.owner == owner, "an owner reads what is another's"
        assert known == 0 or known >= was.whole, "the window is incomplete"
        self.slots[slot] = Content(list(ids), owner, lora, was.whole if known else 0)
        return known

    async def post(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        await turn()
        if self.gone:
            raise ConnectionError
        if path == "/completion":
            slot, ids, lora = fields["id_slot"], fields["prompt"], fields.get("lora")
            known = self.read(slot, ids, lora, owner=self.slots[slot].owner, warm=True)
            assert known == len(ids) - 1, "it reads more than one id"
            return {}
        number, action = int(path.split("/")[2].split("?")[0]), path.partition("=")[2]
        file = int(fields["filename"])
        self.calls.append(action)
        if action == "save":
            content = self.slots[number]
            os.truncate(file, 0)
            os.truncate(file, ID_BYTES * len(content.ids))
            self.files[file] = content
            await turn()
            return {"n_saved": len(content.ids)}
        kept = self.files[file]
        count = os.fstat(file).st_size // ID_BYTES
        assert count == len(kept.ids), "the file is another's, or empty"
        lora = self.slots.get(number, Content()).lora
        self.slots[number] = Content(list(kept.ids), kept.owner, lora, count)
        return {"n_restored": count}


@dataclass
class Bench:
    cache: PromptCache
    slots: Slots
    llama: Llama = field(default_factory=Llama)

    async def begin(
        self,
        prompt: list[int],
        owner: str | None = None,
        *,
        priority: float = 0.5,
        lora: object = None,
        beside: bool = False,
    ) -> tuple[Slot, int]:
        """Start a request; returns its slot, and how many ids were warm."""
        options = GenerateOptions(1, (), cache_salt=owner, priority=priority)
        fields = {**words(prompt, options, 1, 0), "lora": lora}
        slot = self.slots.take(prompt, owner)
        request = Request(
            prompt,
            options,
            fields,
            Gather(),
            on_over=print,
            on_begun=print,
            on_broken=print,
        )
        change = self.cache.claim(cast("Child", self.llama), slot, request, beside=beside)
        if change is not None:
            await change
        warm = self.llama.read(slot.number, prompt, lora, owner=owner, warm=slot.reusable)
        return slot, warm

    def end(self, slot: Slot, answer: list[int]) -> None:
        self.llama.slots[slot.number].ids += answer
        self.slots.give_back(slot, answer)

    async def ask(self, prompt: list[int], owner: str | None = None, **options: Any) -> int:
        slot, warm = await self.begin(prompt, owner, **options)
        self.end(slot, [7])
        return warm


async def opened(*, slots: int = 1, states: int = 10) -> Bench:
    bench = Bench(PromptCache(ID_BYTES * PART * states), Slots(slots))
    bench.cache.open()
    await bench.cache.measure(cast("Child", bench.llama))
    bench.llama.calls.clear()
    return bench


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def bench(runner: asyncio.Runner) -> Iterator[Bench]:
    bench = runner.run(opened())
    yield bench
    bench.cache.close()


def part(letter: str, count: int = PART) -> list[int]:
    return [1000 * ord(letter) + n for n in range(count)]


A, B, C = part("a"), part("b"), part("c")


def test_a_prompt_is_restored_at_its_end_and_the_answer_is_not_kept(
    bench: Bench, runner: asyncio.Runner
) -> None:
    assert [runner.run(bench.ask(prompt)) for prompt in (A, B, A)] == [0, 0, PART - 1]
    assert bench.llama.calls == ["save", "save", "restore"]
    assert runner.run(bench.ask([*A, 8, 8])) == PART  # the slot has it
    assert bench.llama.calls == ["save", "save", "restore"]


def test_short_prompts_are_not_worth_a_state(bench: Bench, runner: asyncio.Runner) -> None:
    for prompt in (A[: MIN_IDS - 1], B, A[: MIN_IDS - 1]):
        assert runner.run(bench.ask(prompt)) == 0
    assert bench.llama.calls == ["save"]


def test_what_was_never_read_is_not_saved(bench: Bench, runner: asyncio.Runner) -> None:
    """To cut a slot to an unread prompt would be to read it."""
    slot, _ = runner.run(bench.begin(A))
    bench.slots.give_back(slot, [])
    runner.run(bench.ask(B))
    assert bench.llama.calls == []


@pytest.mark.parametrize(("beside", "calls"), [(True, []), (False, ["save"])])
def test_a_large_state_is_saved_only_while_nothing_else_runs(
    runner: asyncio.Runner, *, beside: bool, calls: list[str]
) -> None:
    bench = runner.run(opened(states=10_000))
    runner.run(bench.ask(part("l", BESIDE_BYTES // ID_BYTES + 2)))
    runner.run(bench.ask(B, beside=beside))
    assert bench.llama.calls == calls
    bench.cache.close()


def test_segments_of_a_run_leave_its_first_prompts_end(
    bench: Bench, runner: asyncio.Runner
) -> None:
    runner.run(bench.ask(A))
    for length in (1, 2):
        runner.run(bench.ask([*A, *[7] * length], priority=CONTINUATION_PRIORITY))
    runner.run(bench.ask(B))
    assert runner.run(bench.ask([*A, 9])) == PART - 1


def test_a_state_is_restored_for_its_adapter(bench: Bench, runner: asyncio.Runner) -> None:
    style, other = [{"id": 0, "scale": 1.0}], [{"id": 0, "scale": 0.0}]
    for prompt in (A, B):
        runner.run(bench.ask(prompt, "me\nstyle", lora=style))
    assert runner.run(bench.ask(A, "me", lora=other)) == 0
    assert runner.run(bench.ask(A, "me\nstyle", lora=style)) == PART - 1


def test_without_files_nothing_is_kept(runner: asyncio.Runner) -> None:
    bench = Bench(PromptCache(0), Slots(1))
    bench.cache.open()
    runner.run(bench.cache.measure(cast("Child", bench.llama)))
    assert [runner.run(bench.ask(prompt)) for prompt in (A, B, A)] == [0, 0, 0]
    assert bench.llama.calls == []


def test_a_child_that_cannot_save_is_left_alone(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(PromptCache(10**6), Slots(1))
    bench.cache.open()

    class Refusing(Llama):
        async def post(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
            return {"error": {"code": 501}}

    runner.run(bench.cache.measure(cast("Child", Refusing())))
    assert "cannot save prompts" in caplog.text
    assert [runner.run(bench.ask(prompt)) for prompt in (A, B, A)] == [0, 0, 0]
    bench.cache.close()


def test_a_dying_child_takes_its_states_with_it(bench: Bench, runner: asyncio.Runner) -> None:
    for prompt in (A, B):
        runner.run(bench.ask(prompt))
    bench.llama.gone = True
    bench.llama.slots = {}
    assert runner.run(bench.ask(A)) == 0
    bench.cache.clear()
    bench.llama, bench.slots = Llama(), Slots(1)
    assert [runner.run(bench.ask(prompt)) for prompt in (A, B, A)] == [0, 0, PART - 1]


def test_states_being_read_are_not_evicted() -> None:
    states = States((), 100)
    old, new = (State(n, None, [n], 50) for n in range(2))
    for state in (old, new):
        states.keep(state)
    states.free([5, 6])
    states.use(old)
    states.use(new)
    new.readers -= 1
    assert states.room(50) == [new.file]
    assert states.room(51) is None


def test_any_order_of_prompts_keeps_owners_apart_and_windows_whole(
    runner: asyncio.Runner,
) -> None:
    """`Llama` raises where an owner would read another's ids, or ids whose window is incomplete."""
    choose = random.Random(44)
    bench = runner.run(opened(slots=3, states=12))
    parts = [part(letter) for letter in "abc"]
    warm = 0

    async def one() -> None:
        nonlocal warm
        chosen = [choose.choice(parts) for _ in range(choose.randint(1, 3))]
        prompt = [token_id for ids in chosen for token_id in ids]
        prompt = prompt[: choose.choice((None, -1, -50, MIN_IDS))]
        priority = choose.choice((0.5, CONTINUATION_PRIORITY))
        owner = choose.choice(("one", "two"))
        slot, known = await bench.begin(prompt, owner, priority=priority)
        assert bench.cache.size_bytes <= bench.cache.bound_bytes
        warm += known
        await turn(choose.randrange(6))
        bench.end(slot, choose.choice(([], [7], parts[0][:5], parts[0])))

    async def many() -> None:
        for _ in range(200):
            await asyncio.gather(*(one() for _ in range(3)))

    runner.run(many())
    assert bench.llama.calls.count("restore") > 50
    assert warm > 600 * PART / 4
    files = sum(os.fstat(file).st_size for file in bench.cache.files)
    assert files == bench.cache.size_bytes
    bench.cache.close()
