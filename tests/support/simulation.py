"""Random lives of two servers over one store on virtual time: `simulate(seed)`.

Servers stand still, wake, die, are stopped and replaced, the store is away for a while, and clients
start, continue, read, poll, cancel and delete responses meanwhile. A seed gives the same life each
time. What clients were told must hold at the end: no turn lost or told twice, streams contiguous,
a final state for ever.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support import virtual_time
from tests.support.background import replay
from tests.support.scripted.engine import Script
from tests.support.served import Served, ids, served, vocabulary
from trt_responses.errors import StoreUnavailable
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.asgi import Call
    from trt_responses.engine import GenerateOptions

Json = dict[str, Any]

NOW_S = 1_800_000_000.0
LEASE_S, TAKEOVER_S, DEATHS = 3.0, 600.0, 1000
"""No response is given up here: all must end as they should."""
SERVERS, ACTS = 2, 40
STEP_S = 0.2
"""Of an engine: one id."""
WORDS, LENGTH = ("one", "two", "three", "four", "five", "six", "seven", "eight"), 20
"""Of an answer's text."""
ENDS = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")
IN_PROGRESS = "response.in_progress"
ENDED = ("completed", "failed", "incomplete", "cancelled")
AWAY = "the store is away"


class Wrong(AssertionError):
    """A promise that did not hold."""


def must(holds: object, sentence: str) -> None:
    if not holds:
        raise Wrong(sentence)


@lru_cache(maxsize=1)
def parts() -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The ids before an answer's text, the words of which a text consists, and its end."""
    words = [ids(f" {word}") for word in WORDS]
    assert all(len(word) == 1 for word in words)
    head = ids("<|start|>assistant<|channel|>final<|message|>")
    return head, tuple(word[0] for word in words), ids("<|return|>")


class Model:
    """Answers with random words, so that two servers that make one response show in its text. It
    goes on with what has been said."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        head, words, end = parts()
        prompt = tuple(prompt_ids)
        begun = max(at for at in range(len(prompt)) if prompt[at : at + 2] == head[:2])
        said = prompt[begun:]
        chosen = self._random.choices(words, k=LENGTH)
        rest = (*head, *chosen, *end)[len(said) :]
        return Script(tuple((each,) for each in rest))


def numbers_in(prompt_ids: Sequence[int]) -> list[int]:
    """The numbers of a conversation's user messages, in order."""
    return [int(n) for n in re.findall(r"number=(\d+);", vocabulary().text(list(prompt_ids)))]


class UnreliableStore(MemoryStore):
    """A store that is away when it is told to be."""

    away = False

    async def check(self) -> None:
        self._here()

    async def put(self, record: Any) -> None:
        self._here()
        await super().put(record)

    async def get(self, response_id: str, owner: str) -> Any:
        self._here()
        return await super().get(response_id, owner)

    async def put_job(self, job: Any) -> None:
        self._here()
        await super().put_job(job)

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Any:
        self._here()
        return await super().renew_job(job_id, body, term=term)

    async def append_frames(self, response_id: str, frames: Any, *, term: int = 1) -> bool:
        self._here()
        return await super().append_frames(response_id, frames, term=term)

    async def finish_job(self, *arguments: Any, **named: Any) -> bool:
        self._here()
        return await super().finish_job(*arguments, **named)

    def _here(self) -> None:
        if self.away:
            raise StoreUnavailable(AWAY)


class Machine:
    """A server, and whether its process runs. One that stands still makes no step and wakes from
    no sleep."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.awake.set()
        self.served: Served | None = None
        self.stopping = False

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # slept: on virtual time
        await self.awake.wait()

    async def steps(self) -> None:
        """The engine's steps, for ever."""
        while True:
            await self.sleep(STEP_S)
            assert self.served is not None
            self.served.clock.step_alone()


@dataclass
class Turn:
    """A response that a client has asked for."""

    number: int
    before: list[int]
    """The numbers of the conversation that it goes on with."""
    call: Call
    background: bool
    name: str | None = None
    """Its id, once the client has been told."""
    acknowledged: bool = False
    """Whether its client was told that it is completed, or that it runs in the background."""
    cancelled: bool = False
    deleted: bool = False
    last: Json | None = None
    """Its final state, as a client was told."""
    reads: list[Call] = field(default_factory=list)


class Life:
    """One life."""

    def __init__(self, seed: int, store_type: Callable[..., UnreliableStore]) -> None:
        self.random = Random(seed)
        self.trace: list[str] = []
        self._store_type = store_type
        self._machines: list[Machine] = []
        self._all: list[Machine] = []
        self._turns: list[Turn] = []
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._disturbed = False
        self._seen: dict[Call, int] = {}
        """How much of each call has been looked at."""

    async def live(self) -> None:
        loop = asyncio.get_running_loop()
        bounds = Bounds(lease_s=LEASE_S, takeover_s=TAKEOVER_S, max_deaths=DEATHS)
        self.store = self._store_type(bounds, clock_s=lambda: NOW_S + loop.time())
        try:
            for _ in range(SERVERS):
                self._machines.append(await self._machine())
            for _ in range(ACTS):
                # slept: on virtual time
                await asyncio.sleep(self.random.choice((0.05, 0.3, 1.0, LEASE_S / 2)))
                await self._act()
                self._look()
            await self._calm()
            await self._judge()
        finally:
            await self._end()

    # --- servers ------------------------------------------------------------------------------

    async def _machine(self) -> Machine:
        machine = Machine()
        machine.served = await self._stack.enter_async_context(
            served(
                Model(Random(self.random.random())),
                store=self.store,
                manual=True,
                sleep=machine.sleep,
                drain_s=0,
            )
        )
        self._tasks.append(asyncio.create_task(machine.steps()))
        self._all.append(machine)
        return machine

    def _one(self) -> Served | None:
        """A server that answers."""
        up = [each for each in self._machines if each.awake.is_set() and not each.stopping]
        return self.random.choice(up).served if up else None

    async def _end(self) -> None:
        self.store.away = False
        for machine in self._all:
            machine.awake.set()
        for turn in self._turns:
            for call in (turn.call, *turn.reads):
                call.hang_up()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stack.aclose(), 60)
        for task in self._tasks:
            task.cancel()

    # --- what happens -------------------------------------------------------------------------

    async def _act(self) -> None:
        acts = {
            self._start: 6,
            self._read: 5,
            self._poll: 4,
            self._cancel: 1,
            self._delete: 1,
            self._freeze: 3,
            self._wake: 3,
            self._kill: 1,
            self._stop: 1,
            self._lose_store: 1,
            self._find_store: 3,
        }
        (act,) = self.random.choices([*acts], [*acts.values()])
        self.trace.append(f"{asyncio.get_running_loop().time():.2f} {act.__name__}")
        await act()

    async def _start(self) -> None:
        if (server := self._one()) is None:
            return
        heads = [t for t in self._turns if t.last and t.last["status"] == "completed"]
        head = self.random.choice([None, *(t for t in heads if not t.deleted)])
        number, background = len(self._turns), self.random.random() < 0.6
        before = [] if head is None else [*head.before, head.number]
        fields: Json = {"input": f"number={number};", "background": background, "stream": True}
        if head is not None:
            fields["previous_response_id"] = head.name
        call = server.client.ask(**fields)
        self._turns.append(Turn(number, before, call, background))

    async def _read(self) -> None:
        server, turn = self._one(), self._known()
        if server is not None and turn is not None and turn.background:
            turn.reads.append(replay(server, str(turn.name)))

    async def _poll(self) -> None:
        if (server := self._one()) is not None and (turn := self._known()) is not None:
            await self._polled(server, turn)

    async def _cancel(self) -> None:
        if (server := self._one()) is None or (turn := self._known()) is None:
            return
        if turn.background and turn.last is None:
            turn.cancelled = True
            server.client.open("POST", f"/v1/responses/{turn.name}/cancel")

    async def _delete(self) -> None:
        server, turn = self._one(), self._known()
        if server is None or turn is None or turn.last is None or self.store.away:
            return
        if turn.last["status"] != "completed":
            return
        turn.deleted = True
        told = await server.client.send("DELETE", f"/v1/responses/{turn.name}")
        must(told.status == 200, f"turn {turn.number} cannot be deleted: {told.status}")

    async def _freeze(self) -> None:
        self.random.choice(self._machines).awake.clear()

    async def _wake(self) -> None:
        self.random.choice(self._machines).awake.set()

    async def _kill(self) -> None:
        """It stands still for ever, and another one takes its place."""
        place = self.random.randrange(SERVERS)
        if not self._machines[place].stopping:
            self._machines[place].awake.clear()
            self._disturbed = True
        self._machines[place] = await self._machine()

    async def _stop(self) -> None:
        """As SIGTERM does it when the drain's time is over."""
        place = self.random.randrange(SERVERS)
        machine = self._machines[place]
        if machine.served is not None and machine.awake.is_set():
            self._disturbed = True
            machine.stopping = True
            machine.served.runs.shut_down()
            self._machines[place] = await self._machine()

    async def _lose_store(self) -> None:
        self.store.away = self._disturbed = True

    async def _find_store(self) -> None:
        self.store.away = False

    async def _calm(self) -> None:
        """All is well again, and for long enough."""
        self.store.away = False
        for machine in self._machines:
            machine.awake.set()
        for _ in range(40):
            await asyncio.sleep(LEASE_S)  # slept: on virtual time
            self._look()
            if all(turn.last or not turn.acknowledged or turn.deleted for turn in self._turns):
                break

    # --- what clients see ---------------------------------------------------------------------

    def _known(self) -> Turn | None:
        """A response whose id is known."""
        known = [turn for turn in self._turns if turn.name and not turn.deleted]
        return self.random.choice(known) if known else None

    def _look(self) -> None:
        """Take note of what the calls were told meanwhile."""
        for turn in self._turns:
            for call in (turn.call, *turn.reads):
                self._heard(turn, call)

    def _heard(self, turn: Turn, call: Call) -> None:
        if not call.heard or call.status != 200:
            return
        seen = self._seen.get(call, 0)
        self._seen[call] = len(call.heard)
        if seen == len(call.heard):
            return
        for event in call.events:
            if (made := event.get("response")) is None:
                continue
            turn.name = made["id"]
            turn.acknowledged = turn.acknowledged or turn.background
            if event["type"] in ENDS:
                self._final(turn, made)

    def _final(self, turn: Turn, made: Json) -> None:
        if turn.last is None:
            turn.last = made
            self.trace.append(f"turn {turn.number} {made['status']}")
        must(turn.last == made, f"turn {turn.number} has two final states")

    async def _polled(self, server: Served, turn: Turn) -> None:
        told = await server.client.get(f"/v1/responses/{turn.name}")
        if told.status == 503:
            return
        if told.status == 404:
            unkept = turn.last is None or turn.last["status"] == "failed"  # the store was away
            must(unkept and not turn.background, f"turn {turn.number} is not found")
            return
        made = told.json()
        if made["status"] in ENDED:
            self._final(turn, made)
        else:
            must(turn.last is None, f"turn {turn.number} had ended and is {made['status']}")

    # --- judgement ----------------------------------------------------------------------------

    async def _judge(self) -> None:
        server = self._one()
        assert server is not None
        for turn in self._turns:
            if turn.name and not turn.deleted and (turn.background or turn.last):
                await self._polled(server, turn)
                reading = replay(server, turn.name) if turn.background else None
                if reading is not None:
                    await reading.done()
                    turn.reads.append(reading)
                    self._heard(turn, reading)
        for turn in self._turns:
            self._judge_turn(turn)
        self._judge_prompts()

    def _judge_turn(self, turn: Turn) -> None:
        what = f"turn {turn.number}"
        if turn.background and turn.acknowledged and not turn.deleted:
            must(turn.last is not None, f"{what} never ended")
        if turn.last is not None and turn.last["status"] == "completed":
            must(text_of(turn.last).count(" ") == LENGTH, f"{what} says {text_of(turn.last)!r}")
        elif turn.last is not None and not turn.cancelled:
            must(self._disturbed, f"{what} is {turn.last['status']} without a reason")
        for call in (turn.call, *turn.reads):
            if call.heard and call.status == 200:
                judge_stream(turn, call.events, what)

    def _judge_prompts(self) -> None:
        """Each prompt holds its conversation, no turn of it lost or doubled."""
        for machine in self._all:
            assert machine.served is not None
            for request in machine.served.engine.requests:
                numbers = numbers_in(request.prompt_ids)
                turn = self._turns[numbers[-1]]
                expected = [*turn.before, turn.number]
                must(numbers == expected, f"the prompt of turn {turn.number} holds {numbers}")
                prompt = vocabulary().text(list(request.prompt_ids))
                for number in turn.before:
                    before = self._turns[number].last
                    is_whole = before is not None and prompt.count(text_of(before)) == 1
                    must(is_whole, f"the prompt of turn {turn.number} lacks answer {number}")


def text_of(made: Json) -> str:
    return "".join(part["text"] for item in made["output"] for part in item.get("content") or ())


def judge_stream(turn: Turn, events: list[Json], what: str) -> None:
    numbers = [
        event["sequence_number"]
        for before, event in zip([None, *events], events, strict=False)
        if before is None or event["type"] != IN_PROGRESS or not is_repeated(before, event)
    ]
    must(numbers == [*range(len(numbers))], f"{what}: events {numbers}")
    ends = [event["type"] for event in events if event["type"] in ENDS]
    must(len(ends) <= 1, f"{what}: {ends}")
    if turn.last is None:
        return
    told, whole = "", text_of(turn.last)
    for event in events:
        if event["type"] == "response.output_text.delta":
            told += event["delta"]
    is_right = told == whole if ends == ["response.completed"] else whole.startswith(told)
    must(is_right or turn.last["status"] != "completed", f"{what}: {told!r} is not {whole!r}")


def is_repeated(before: Json, event: Json) -> bool:
    """Whether a silent stream said once more that its response is in progress."""
    return bool(before["sequence_number"] == event["sequence_number"])


def simulate(seed: int, store_type: Callable[..., UnreliableStore] = UnreliableStore) -> list[str]:
    """Live one life, and return its trace. Raises a `Wrong` with the promise that did not hold."""
    life = Life(seed, store_type)
    try:
        virtual_time.run(life.live())
    except Wrong as wrong:
        raise Wrong(f"seed {seed}: {wrong}\n" + "\n".join(life.trace)) from None
    return life.trace
