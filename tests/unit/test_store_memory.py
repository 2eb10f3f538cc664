"""The memory store: its bounds, its owners, and blocks counted once however often shared."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.store.base import Block, Expired, Record
from trt_responses.store.blocks import pack, squeeze
from trt_responses.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress."""
    return Random(f"{size} {seed}").randbytes(size)


def block(size: int, seed: int = 0) -> Block:
    return Block("user", noise(size, seed), b"\0" * 4)


def record(name: str, *blocks: Block, owner: str = "ann", body: int = 100) -> Record:
    return Record(name, owner, noise(body), blocks, 0, len(blocks), True, "2026-01-01")


def at_rest(bodies: Iterable[int], blocks: Iterable[Block] = ()) -> int:
    """The bytes of these bodies and of these blocks, each counted once."""
    return sum(len(squeeze(noise(size))) for size in bodies) + sum(
        len(pack(b).data) for b in blocks
    )


BODY = at_rest([100])


def store(max_bytes: int = 100_000, max_records: int = 10) -> MemoryStore:
    return MemoryStore(max_bytes=max_bytes, max_records=max_records)


def now(doing: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(doing)


def fill(kept: MemoryStore, *records: Record) -> None:
    async def put_all() -> None:
        for each in records:
            await kept.put(each)

    now(put_all())


def found(kept: MemoryStore, names: Sequence[str], owner: str = "ann") -> list[str]:
    return [name for name in names if isinstance(now(kept.get(name, owner)), Record)]


def test_what_was_put_is_found_until_it_is_deleted() -> None:
    kept, one = store(), record("a", block(20), block(300))
    fill(kept, one)
    assert now(kept.get("a", "ann")) == one
    assert now(kept.delete("a", "ann")) is True
    assert now(kept.get("a", "ann")) is None
    assert now(kept.delete("a", "ann")) is False
    assert (len(kept), kept.size_bytes) == (0, 0)


def test_another_owner_sees_nothing_and_deletes_nothing() -> None:
    kept = store(max_records=1)
    fill(kept, record("gone"), record("a"))
    for name in ("a", "gone", "never"):
        assert now(kept.get(name, "bob")) is None
        assert now(kept.delete(name, "bob")) is False
    assert found(kept, "a") == ["a"]


def test_what_left_for_want_of_room_is_told_to_its_owner_alone() -> None:
    kept = store(max_records=1)
    fill(kept, record("a"), record("b"))
    assert now(kept.get("a", "ann")) == Expired("a")
    assert now(kept.get("never", "ann")) is None


def test_another_owners_asking_does_not_keep_a_record_alive() -> None:
    kept = store(max_records=2)
    fill(kept, record("a"), record("b"))
    assert now(kept.get("a", "bob")) is None
    fill(kept, record("c"))
    assert found(kept, "abc") == ["b", "c"]


def test_over_the_count_the_least_recently_used_leaves() -> None:
    kept = store(max_records=2)
    fill(kept, record("a"), record("b"))
    assert found(kept, "a") == ["a"]
    fill(kept, record("c"))
    assert found(kept, "abc") == ["a", "c"]


def test_over_the_bytes_as_many_leave_as_must() -> None:
    kept = store(max_bytes=3 * BODY)
    fill(kept, *map(record, "abc"))
    assert kept.size_bytes == 3 * BODY
    fill(kept, record("d", body=150))
    assert found(kept, "abcd") == ["c", "d"]
    assert kept.size_bytes == at_rest([100, 150])


def test_the_newest_is_kept_whatever_its_size() -> None:
    kept = store(max_bytes=3 * BODY)
    fill(kept, record("a"), record("big", body=5_000))
    assert found(kept, ["a", "big"]) == ["big"]
    fill(kept, record("b"))
    assert found(kept, ["big", "b"]) == ["b"]
    assert kept.size_bytes == BODY


def test_a_shared_block_is_counted_once_and_leaves_with_its_last_record() -> None:
    kept, shared, own = store(), block(500), block(70)
    same = replace(shared)  # shared by content, not by identity
    fill(kept, record("a", shared), record("b", same, own, shared))
    assert kept.size_bytes == at_rest([100, 100], [shared, own])
    now(kept.delete("a", "ann"))
    assert kept.size_bytes == at_rest([100], [shared, own])
    now(kept.delete("b", "ann"))
    assert kept.size_bytes == 0


def test_putting_again_replaces_and_makes_it_the_newest() -> None:
    kept, shared = store(max_records=2), block(500)
    fill(kept, record("a", shared), record("b", shared), record("a", shared, body=300))
    assert kept.size_bytes == at_rest([300, 100], [shared])
    assert now(kept.get("a", "ann")) == record("a", shared, body=300)
    fill(kept, record("c"))
    assert found(kept, "abc") == ["a", "c"]


def test_evicting_the_start_of_a_chain_leaves_its_end_whole() -> None:
    kept, blocks = store(max_records=1), [block(100, 1), block(100, 2)]
    later = record("b", *blocks)
    fill(kept, record("a", blocks[0]), later)
    assert found(kept, "ab") == ["b"]
    assert now(kept.get("b", "ann")) == later
    assert kept.size_bytes == at_rest([100], blocks)


def test_a_block_that_leaves_while_a_record_with_it_comes_is_still_there() -> None:
    """Its digest was known when the putting began, and its bytes were not brought."""

    async def go() -> None:
        kept, shared = store(max_records=1), block(80_000)
        await kept.put(record("a", shared))
        known = await kept.get("a", "ann")
        assert isinstance(known, Record)
        slow = record("b", *known.blocks, block(70_000, 1))  # large: packed in a thread
        putting = asyncio.create_task(kept.put(slow))
        await asyncio.sleep(0)
        assert await kept.delete("a", "ann")
        await putting
        assert await kept.get("b", "ann") == slow
        assert kept.size_bytes == at_rest([100], slow.blocks)

    now(go())


def test_stopping_forgets_everything() -> None:
    kept = store()
    fill(kept, record("a", block(9)))
    now(kept.stop())
    assert (len(kept), kept.size_bytes) == (0, 0)


BLOCKS = [block(size) for size in (5, 50, 400)]
MOVES: st.SearchStrategy[tuple[str, str, list[Block]]] = st.tuples(
    st.sampled_from(["put", "put", "get", "delete"]),
    st.sampled_from("abcde"),
    st.lists(st.sampled_from(BLOCKS), max_size=4),
)


class Model:
    """What a store should hold, in the plainest way: records in the order of their last use."""

    def __init__(self, max_bytes: int, max_records: int) -> None:
        self.records: list[Record] = []
        self._max_bytes = max_bytes
        self._max_records = max_records

    @property
    def size_bytes(self) -> int:
        blocks = {b.item: b for each in self.records for b in each.blocks}
        return at_rest([len(each.body) for each in self.records], blocks.values())

    def take(self, name: str) -> Record | None:
        for each in self.records:
            if each.id == name:
                self.records.remove(each)
                return each
        return None

    def put(self, new: Record) -> None:
        self.take(new.id)
        self.records.append(new)
        while len(self.records) > 1 and (
            self.size_bytes > self._max_bytes or len(self.records) > self._max_records
        ):
            del self.records[0]


# 2 s on one core.
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.lists(MOVES, max_size=30), st.integers(1, 1_500), st.integers(1, 4))
def test_whatever_is_done_the_store_holds_what_a_plain_list_would(
    moves: list[tuple[str, str, list[Block]]], max_bytes: int, max_records: int
) -> None:
    async def move_all() -> None:
        kept, model = store(max_bytes, max_records), Model(max_bytes, max_records)
        for move, name, blocks in moves:
            if move == "put":
                await kept.put(record(name, *blocks))
                model.put(record(name, *blocks))
            elif move == "get":
                there = await kept.get(name, "ann")
                if (expected := model.take(name)) is not None:
                    model.records.append(expected)
                assert (there if isinstance(there, Record) else None) == expected
            else:
                assert await kept.delete(name, "ann") == (model.take(name) is not None)
            assert (len(kept), kept.size_bytes) == (len(model.records), model.size_bytes)

    asyncio.run(move_all())
