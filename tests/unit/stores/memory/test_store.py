"""What is particular to the memory store: the exact order of use, and what happens while it packs.

What it shares with the other kinds is in test_stores.py. About 2 s on one core.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.histories import AGE_S, LEASE_S, NOW, MemoryHistory, block, letters, record
from tests.support.idle import beside
from tests.support.turns import turn
from trt_responses.store import Block, Expired, Job, Record
from trt_responses.stores.at_rest.record import at_rest
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Frames

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_stopping_forgets_everything() -> None:
    async def story() -> None:
        kept = MemoryStore()
        await kept.put(record("a", block("hello")))
        await kept.put_job(Job("j", "ann", b"{}", int(NOW)))
        await kept.append_frames("j", Frames(0, 1, b"data: {}\n\n"))
        assert kept.size_bytes > 0
        await kept.stop()
        assert (len(kept), kept.size_bytes) == (0, 0)
        assert await kept.get("a", "ann") is None
        await kept.put(record("j"))
        assert await kept.frames_after("j", "ann", -1) is None

    asyncio.run(story())


def test_a_record_that_comes_late_expires_at_its_own_age() -> None:
    async def story() -> None:
        history = MemoryHistory()
        kept = history.store()
        await kept.put(record("young", at=NOW))
        await kept.put(record("old", at=NOW - AGE_S + 5))  # it was made for so long
        history.advance(6)
        assert await kept.get("old", "ann") == Expired("old")
        assert isinstance(await kept.get("young", "ann"), Record)

    asyncio.run(story())


def test_an_old_job_stays_while_it_is_held_and_expires_as_its_lease_ends() -> None:
    async def story() -> None:
        history = MemoryHistory()
        kept = history.store()
        job = Job("j", "ann", b"{}", int(NOW - AGE_S) + 10)
        await kept.put_job(job)
        history.advance(20)
        assert await kept.get("j", "ann") == job
        assert await kept.renew_job("j") == "held"
        history.advance(LEASE_S)
        assert await kept.get("j", "ann") == Expired("j")
        assert await kept.renew_job("j") == "gone"

    asyncio.run(story())


def test_the_order_of_age_forgets_what_has_left() -> None:
    async def story() -> None:
        kept = MemoryStore(Bounds(max_age_s=1e9, max_records=3))
        await kept.put(record("first", at=NOW))
        for n in range(3000):
            await kept.get("first", "ann")  # it stays, and with it the front of the order
            await kept.put(record(f"r{n}", at=NOW))
        assert len(kept) == 3
        assert len(kept._by_age) <= 1100  # private: what grows without end shows nowhere else

    asyncio.run(story())


def test_a_block_that_leaves_while_a_record_is_packed_is_kept_with_that_record() -> None:
    async def story() -> None:
        kept = MemoryStore(Bounds(max_records=10))
        await kept.put(record("a", block("one")))
        first = await kept.get("a", "ann")
        assert isinstance(first, Record)
        large = Block("user", bytes(200_000), b"")  # a thread packs it, and the loop goes on
        putting = asyncio.ensure_future(kept.put(record("b", *first.blocks, large)))
        await turn()
        assert not putting.done()
        assert await kept.delete("a", "ann") is True
        await putting
        second = await kept.get("b", "ann")
        assert isinstance(second, Record)
        assert second.blocks == (block("one"), large)

    asyncio.run(story())


def test_a_long_conversation_is_packed_and_unpacked_with_pauses() -> None:
    async def story() -> None:
        kept = MemoryStore()
        blocks = [block(f"{n} " * 100) for n in range(1000)]
        async with beside() as others:
            await kept.put(record("a", *blocks))
            packing = others.count
            found = await kept.get("a", "ann")
            unpacking = others.count - packing
        assert isinstance(found, Record)
        assert found.blocks == (*blocks,)
        assert packing >= 10
        assert unpacking >= 4

    asyncio.run(story())


def test_a_short_block_is_kept_as_it_stands_and_a_long_one_is_shortened() -> None:
    async def story() -> None:
        kept = MemoryStore(spell=letters)
        short, long = block("a few words"), block("many words " * 100)
        await kept.put(record("a", short))
        assert kept.size_bytes > len(short.item) + len(short.ids)
        before = kept.size_bytes
        await kept.put(record("b", long))
        assert kept.size_bytes - before < len(long.item) + len(long.ids)
        assert await kept.get("a", "ann") == record("a", short)
        assert await kept.get("b", "ann") == record("b", long)

    asyncio.run(story())


def test_a_block_that_is_its_own_name_has_a_digest_in_other_stores() -> None:
    async def story() -> None:
        kept, short = MemoryStore(), block("a few words")
        await kept.put(record("a", short))
        await kept.put(record("b", short))
        one, other = [await kept.get(name, "ann") for name in "ab"]
        assert isinstance(one, Record)
        assert isinstance(other, Record)
        assert one.blocks[0].digest is other.blocks[0].digest
        first, again = [await at_rest(each, letters) for each in (record("a", short), one)]
        assert again.digests == first.digests

    asyncio.run(story())


def test_a_conversation_that_goes_on_is_unpacked_once_and_not_at_each_turn() -> None:
    spelled: list[bytes] = []

    def spell(ids: bytes) -> bytes:
        spelled.append(ids)
        return letters(ids)

    async def story() -> None:
        kept = MemoryStore(spell=spell)
        one, two, three = (block(word * 100) for word in ("one", "two", "three"))
        first = record("a", one, two)
        await kept.put(first)
        spelled.clear()
        assert await kept.get("a", "ann") == first
        assert {one.ids, two.ids} <= {*spelled}
        second = replace(record("b", *first.blocks, three), prior_count=2, input_count=1)
        await kept.put(second)
        spelled.clear()
        assert await kept.get("b", "ann") == second
        assert one.ids not in spelled
        assert three.ids in spelled
        await kept.delete("a", "ann")
        assert await kept.get("a", "ann") is None
        assert await kept.get("b", "ann") == second

    asyncio.run(story())


BLOCKS = [block(letter * size) for letter, size in zip("pqrs", (5, 10, 40, 200), strict=True)]
NAMES = st.sampled_from("abcde")
MOVES: st.SearchStrategy[tuple[str, str, list[Block]]] = st.one_of(
    st.tuples(st.just("put"), NAMES, st.lists(st.sampled_from(BLOCKS), max_size=4)),
    st.tuples(st.just("get"), NAMES, st.just([])),
    st.tuples(st.just("delete"), NAMES, st.just([])),
)


@settings(max_examples=100)
@given(st.lists(MOVES, max_size=30), st.integers(1, 300), st.integers(1, 4))
def test_whatever_is_done_exactly_the_least_recently_used_have_left(
    moves: Sequence[tuple[str, str, list[Block]]], max_bytes: int, max_records: int
) -> None:
    history = MemoryHistory()
    kept = MemoryStore(Bounds(max_bytes=max_bytes, max_records=max_records))
    order: list[str] = []  # the least recently used first

    async def move_all() -> None:
        for move, name, blocks in moves:
            if move == "put":
                await kept.put(record(name, *blocks))
                assert await kept.get(name, "ann") is not None
            elif move == "get":
                assert isinstance(await kept.get(name, "ann"), Record) == (name in order)
            else:
                assert await kept.delete(name, "ann") == (name in order)
            touch(move, name)
            check()

    def touch(move: str, name: str) -> None:
        there = name in order
        if there:
            order.remove(name)
        if move == "put" or (move == "get" and there):
            order.append(name)
        if move == "put":
            del order[: len(order) - len(kept)]

    def check() -> None:
        assert [*kept._records] == order  # private: a `get` would change the order
        counted = history.bytes(kept)
        assert counted.accounted == counted.held
        assert len(order) <= max_records
        assert counted.held <= max_bytes or len(order) <= 1

    asyncio.run(move_all())
