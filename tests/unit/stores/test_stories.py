"""Random lives of every kind of store, against a plain model of what must be there.

About 10 s on one core.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as lived

from tests.support import histories, postgres_server, redis_server
from tests.support.histories import AGE_S, FREE, LEASE_S, block
from trt_responses.store import Expired, Job, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support.histories import History
    from trt_responses.store import Found
    from trt_responses.stores.whole import WholeStore

OWNERS = st.sampled_from(["ann", "bob"])
WORDS = st.sampled_from(["yes", "no", "and then?", "x" * 700])
CHOICE = st.integers(0, 10**6)
TIGHT = replace(FREE, max_records=6, max_bytes=900)


class Said(NamedTuple):
    """A response as the model has it: whose it is, and every message up to its end."""

    owner: str
    messages: tuple[str, ...]
    created_s: float


class Lives(RuleBasedStateMachine):
    """Every message is a text of its own or one of a few that many share; a chain is their list."""

    make_history: Callable[[], History]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._history = type(self).make_history()
        self._store: WholeStore = self._history.store(TIGHT)
        self._there: dict[str, Said] = {}
        self._gone: dict[str, Said] = {}
        """What was dropped for its age or for want of room."""
        self._deleted: dict[str, Said] = {}
        self._jobs: dict[str, Said] = {}
        self._lost: dict[str, Said] = {}
        self._count = 0

    def _run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(doing)

    @initialize()
    def begin(self) -> None:
        self._run(self._store.start())

    def teardown(self) -> None:
        self._run(self._store.stop())
        self._runner.close()

    # --- what servers and clients do ----------------------------------------------------------

    @rule(owner=OWNERS, word=WORDS, choice=CHOICE, fresh=st.booleans())
    def create(self, owner: str, word: str, choice: int, fresh: bool) -> None:
        """A response, perhaps on one that is there: what is read of it is what is gone on from."""
        name, said, blocks = self._next(owner, choice)
        text = f"{word} {name}" if fresh else word
        record = self._record(name, owner, (*blocks, block(text), block("ok", "final")))
        self._run(self._store.put(record))
        self._there[name] = said._replace(messages=(*said.messages, text, "ok"))
        self._note_evicted(name)

    @rule(owner=OWNERS, choice=CHOICE)
    def begin_job(self, owner: str, choice: int) -> None:
        name, said, _ = self._next(owner, choice)
        self._run(self._store.put_job(Job(name, owner, b"{}", int(said.created_s))))
        self._jobs[name] = said

    @precondition(lambda self: self._jobs)
    @rule(choice=CHOICE, word=WORDS)
    def finish_job(self, choice: int, word: str) -> None:
        name = _chosen(self._jobs, choice)
        said = self._jobs.pop(name)
        blocks = tuple(map(_block, (*said.messages, word)))
        record = self._record(name, said.owner, blocks, at=said.created_s)
        assert self._run(self._store.finish_job(record)) is True
        self._there[name] = said._replace(messages=(*said.messages, word))
        self._note_evicted(name)

    @precondition(lambda self: self._there)
    @rule(choice=CHOICE, asker=OWNERS)
    def delete(self, choice: int, asker: str) -> None:
        name = _chosen(self._there, choice)
        mine = self._there[name].owner == asker
        assert self._run(self._store.delete(name, asker)) is mine
        if mine:
            self._deleted[name] = self._there.pop(name)

    # --- what happens to them -----------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, LEASE_S + 1, AGE_S * 0.4]))
    def pass_time(self, seconds: float) -> None:
        """Thirds would add up to the age, where a server's own clock has gone on a little."""
        self._history.advance(seconds)
        if seconds > LEASE_S:
            self._lost |= self._jobs
            self._jobs.clear()
        for name, said in list(self._there.items()):
            if said.created_s <= self._history.now_s - AGE_S:
                self._gone[name] = self._there.pop(name)

    @precondition(lambda self: self._history.lasts)
    @rule()
    def restart(self) -> None:
        self._run(self._store.stop())
        self._again()

    @precondition(lambda self: self._history.lasts)
    @rule()
    def kill(self) -> None:
        """The files as they are go on; the store that was killed is only ended after that."""
        self._history.killed()
        killed = self._store
        self._again()
        self._run(killed.stop())

    def _again(self) -> None:
        self._store = self._history.store(TIGHT)
        self._run(self._store.start())

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for name, said in self._there.items():
            found = self._get(name, said.owner)
            assert isinstance(found, Record), (name, found)
            assert tuple(map(_text, found.blocks)) == said.messages
            assert self._get(name, _other(said.owner)) is None
        for name, said in self._jobs.items():
            assert self._get(name, said.owner) == Job(name, said.owner, b"{}", int(said.created_s))

    @invariant()
    def nothing_comes_back(self) -> None:
        for name, said in self._deleted.items():
            assert self._get(name, said.owner) is None
        for name, said in self._gone.items():
            assert self._get(name, said.owner) in (Expired(name), None)
            assert self._get(name, _other(said.owner)) is None
        for name, said in self._lost.items():
            found = self._get(name, said.owner)
            assert found in (Expired(name), None) or (isinstance(found, Job) and found.lost)

    @invariant()
    def the_bytes_accounted_are_the_bytes_held(self) -> None:
        counted = self._history.bytes(self._store)
        assert counted.accounted == counted.held

    # --- parts --------------------------------------------------------------------------------

    def _next(self, owner: str, choice: int) -> tuple[str, Said, tuple[Any, ...]]:
        """A new id, and where it goes on: at one of the owner's, or at nothing."""
        self._count += 1
        mine = [None, *(name for name, said in self._there.items() if said.owner == owner)]
        previous = mine[choice % len(mine)]
        said = Said(owner, (), self._history.now_s)
        if previous is None:
            return f"r{self._count}", said, ()
        found = self._get(previous, owner)
        assert isinstance(found, Record)
        messages = self._there[previous].messages
        return f"r{self._count}", said._replace(messages=messages), found.blocks

    def _record(
        self, name: str, owner: str, blocks: tuple[Any, ...], at: float | None = None
    ) -> Record:
        created = self._history.now_s if at is None else at
        return histories.record(name, *blocks, owner=owner, at=created)

    def _note_evicted(self, newest: str) -> None:
        """Which ones left is the store's choice, but there is a bound and never the newest."""
        if self._history.bounded:
            for name, said in list(self._there.items()):
                if name != newest and self._get(name, said.owner) == Expired(name):
                    self._gone[name] = self._there.pop(name)
            assert len(self._there) <= TIGHT.max_records
            size = self._history.bytes(self._store).held
            assert size <= TIGHT.max_bytes or len(self._there) == 1

    def _get(self, name: str, owner: str) -> Found:
        found: Found = self._run(self._store.get(name, owner))
        return found


def _block(text: str) -> Any:
    return block(text, "final" if text == "ok" else "user")


def _text(kept: Any) -> str:
    """What a block says, of which its item and its ids tell the same."""
    text = "".join(map(chr, memoryview(kept.ids).cast("I")))
    assert kept == _block(text)
    return text


def _chosen(names: dict[str, Said], choice: int) -> str:
    return sorted(names)[choice % len(names)]


def _other(owner: str) -> str:
    return "bob" if owner == "ann" else "ann"


@pytest.fixture
def folders() -> Iterator[Callable[[], Path]]:
    with ExitStack() as stack:
        yield lambda: Path(stack.enter_context(tempfile.TemporaryDirectory()))


def live(make: Callable[[], History], examples: int) -> None:
    """Live many lives; `Lives` asserts after each step, and the shortest bad life is told."""

    class Case(Lives):
        make_history = staticmethod(make)

    lived(
        Case,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "lives",
    [15, pytest.param(60, marks=pytest.mark.slow)],  # 3 s
)
def test_no_life_of_a_memory_store_departs_from_the_model(lives: int) -> None:
    live(histories.MemoryHistory, lives)


@pytest.mark.slow  # 3 s: hundreds of steps on a disk
def test_no_life_of_an_sqlite_store_departs_from_the_model(
    folders: Callable[[], Path],
) -> None:
    live(lambda: histories.SqliteHistory(folders()), 12)


@pytest.mark.slow  # 2 s: hundreds of steps over a socket
def test_no_life_of_a_redis_store_departs_from_the_model(tmp_path: Path) -> None:
    with redis_server.running(tmp_path) as server:
        live(lambda: histories.RedisHistory(server.url), 15)


@pytest.mark.slow  # 4 s: as the one before
def test_no_life_of_a_postgres_store_departs_from_the_model() -> None:
    with postgres_server.running() as server:
        live(lambda: histories.PostgresHistory(server.url), 6)
