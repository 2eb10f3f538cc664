"""What an encrypted store keeps says nothing, nobody can change it unseen, and keys can change."""

from __future__ import annotations

import asyncio
import os
import select
from base64 import b64encode
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.histories import FREE, EncryptedHistory, SqliteHistory, block, letters, record
from tests.support.turns import turn
from trt_responses.errors import ApiError, StartupError
from trt_responses.features.encryption.command import rewrite
from trt_responses.features.encryption.keys import StoreKeys, reader
from trt_responses.features.encryption.store import EncryptedStore
from trt_responses.features.encryption.witness import WITNESS, WitnessedStore
from trt_responses.store import Block, Job, Record
from trt_responses.stores.around import Around
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Frames

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from trt_responses.stores.whole import WholeStore

ONE, TWO = b64encode(b"1" * 32), b64encode(b"2" * 32)
SAID = "moonlight"
IDS = b"".join(bytes([ord(letter), 0, 0, 0]) for letter in SAID)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def around(inner: WholeStore, keys: bytes) -> EncryptedStore:
    return EncryptedStore(inner, StoreKeys(lambda: keys), letters)


async def fill(store: WholeStore) -> None:
    """A record, a conversation, and a job with frames, all of which say the same."""
    await store.put(record("a", block(SAID), body=SAID))
    await store.change(replace(record("t", block(SAID), body=SAID), version=1))
    await store.put_job(Job("j", "ann", SAID.encode(), 0, source=SAID.encode(), model="m"))
    await store.renew_job("j", b"still " + SAID.encode())
    await store.append_frames("j", Frames(0, 1, b"data: %b\n\n" % SAID.encode(), ids=IDS))


def test_files_of_an_encrypted_store_hold_nothing_of_what_was_said(tmp_path: Path) -> None:
    def found(history: SqliteHistory) -> bool:
        async def story() -> None:
            store = history.store(FREE)
            await store.start()
            await fill(store)
            files = [path.read_bytes() for path in history.path.parent.iterdir()]
            assert any(b"ann" in data for data in files), "owners are in clear"
            says.append(any(SAID.encode() in data or IDS in data for data in files))
            await store.stop()

        says = list[bool]()
        run(story())
        return says[0]

    assert found(SqliteHistory(tmp_path / "clear"))
    assert not found(EncryptedHistory(tmp_path / "sealed"))


CHANGES = {
    "a flipped bit": lambda a, b: replace(a, body=a.body[:-1] + bytes([a.body[-1] ^ 1])),
    "a short body": lambda a, b: replace(a, body=a.body[:9]),
    "the body of another record": lambda a, b: replace(a, body=b.body),
    "the blocks of another record": lambda a, b: replace(a, blocks=b.blocks),
    "blocks in another order": lambda a, b: replace(a, blocks=a.blocks[::-1]),
    "another owner": lambda a, b: replace(a, owner="bob"),
    "another age": lambda a, b: replace(a, created_at=a.created_at + 1),
    "a planted record": lambda a, b: record("a", block("planted")),
    "a flipped bit of a block": lambda a, b: replace(
        a, blocks=(Block("user", a.blocks[0].item[:-1] + b"!", b""), *a.blocks[1:])
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_was_changed_in_the_store_is_an_error(change: str) -> None:
    async def story() -> None:
        inner = MemoryStore(FREE)
        store = around(inner, ONE)
        await store.put(record("a", block("one"), block("two")))
        await store.put(record("b", block("three"), block("four")))
        a, b = await inner.get("a", "ann"), await inner.get("b", "ann")
        changed = CHANGES[change](a, b)  # type: ignore[no-untyped-call]
        await inner.put(changed)
        with pytest.raises(ApiError, match="'a'"):
            await around(inner, ONE).get("a", changed.owner)

    run(story())


def test_a_job_and_frames_given_to_another_owner_are_errors() -> None:
    async def story() -> None:
        inner = MemoryStore(FREE)
        store = around(inner, ONE)
        await fill(cast("WholeStore", store))
        job, told = await inner.get("j", "ann"), await inner.frames_after("j", "ann", -1)
        assert isinstance(job, Job)
        assert told is not None
        await inner.delete("j", "ann")
        await inner.put_job(replace(job, owner="bob"))
        await inner.append_frames("j", told)
        for reads in (store.get("j", "bob"), store.frames_after("j", "bob", -1)):
            with pytest.raises(ApiError, match="'j'"):
                await reads

    run(story())


def test_keys_change_under_servers_and_old_records_are_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "store.keys"
    file.write_bytes(ONE)
    clock = [0.0]

    async def story() -> None:
        inner = MemoryStore(FREE)
        store = EncryptedStore(inner, StoreKeys(reader(str(file)), lambda: clock[0]), letters)
        await fill(cast("WholeStore", store))
        file.write_bytes(TWO + b"  # new\n" + ONE)
        newer = EncryptedStore(inner, StoreKeys(reader(f"|cat {file}")), letters)
        a, t = await newer.get("a", "ann"), await newer.get("t", "ann")
        assert isinstance(a, Record)
        await newer.put(replace(a, id="b", blocks=(*a.blocks, block("more")), prior_count=1))
        clock[0] = 6
        assert await store.get("b", "ann") == await newer.get("b", "ann"), "it reads the file again"
        with pytest.raises(ApiError, match=r"'a' is encrypted with the key [0-9a-f]{8}"):
            await around(inner, TWO).get("a", "ann")
        assert [await rewrite(newer, name, "ann") for name in "atbjx"] == [True] * 2 + [False] * 3
        only = around(inner, TWO)
        assert (await only.get("a", "ann"), await only.get("t", "ann")) == (a, t)
        job = await newer.get("j", "ann")
        assert isinstance(job, Job)
        assert job.body == b"still " + SAID.encode(), "a job keeps its key"
        assert await store.append_frames("j", Frames(1, 1, b"data: more\n\n"))
        told = await newer.frames_after("j", "ann", -1)
        assert told == Frames(0, 2, b"data: %b\n\ndata: more\n\n" % SAID.encode())

    run(story())


def test_a_command_that_prints_the_keys_slowly_holds_no_other_request() -> None:
    """It runs once for all that wait, and the loop runs on meanwhile."""
    began, may_end, readings = Event(), Event(), list[bool]()

    def read() -> bytes:
        if not began.is_set():
            return ONE
        readings.append(may_end.wait(5))  # more only where the loop waits for it
        clock[0] += 30
        return TWO + b"\n" + ONE

    clock = [0.0]

    async def story() -> None:
        inner = MemoryStore(FREE)
        store = EncryptedStore(inner, StoreKeys(read, lambda: clock[0]), letters)
        other = around(inner, TWO)
        await fill(cast("WholeStore", other))
        await around(inner, b64encode(b"3" * 32)).put(record("c", block(SAID)))
        clock[0] = 6
        began.set()
        reads = [store.get("a", "ann"), store.get("j", "ann"), store.frames_after("j", "ann", -1)]
        waiting = asyncio.gather(*reads, store.get("c", "ann"), return_exceptions=True)
        await turn()
        may_end.set()
        *found, absent = await waiting
        assert found == [
            await other.get("a", "ann"),
            await other.get("j", "ann"),
            await other.frames_after("j", "ann", -1),
        ]
        assert "which this server does not have" in str(absent)
        assert readings == [True]

    run(story())


def test_a_server_that_takes_a_job_over_finds_its_key_and_writes_nothing_in_clear() -> None:
    class Handing(Around):
        async def take_job(self, model: str) -> Job | None:
            job = await self.inner.get("j", "ann")
            assert isinstance(job, Job)
            return replace(job, term=1)

    texts, clock = [TWO, ONE], [0.0]

    async def story() -> None:
        inner = MemoryStore(FREE)
        await fill(cast("WholeStore", around(inner, ONE)))
        handing = cast("WholeStore", Handing(inner))
        keys = StoreKeys(lambda: texts.pop(0), lambda: clock[0])
        store = EncryptedStore(handing, keys, letters)
        clock[0] = 6
        assert await store.take_job("m")
        assert await store.append_frames("j", Frames(1, 1, b"data: more\n\n"))
        stored = await inner.frames_after("j", "ann", 0)
        assert stored is not None
        assert b"more" not in stored.data

    run(story())


def test_a_command_that_hangs_is_ended_with_what_it_began(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(StartupError, match="the command failed"):
        reader(f"|exec 9>{pipe}; echo begun >&9; sleep 600 & sleep 600", wait_s=0.5)()
    with open(held, "rb") as ends:  # when nobody has it open to write
        os.set_blocking(held, True)
        assert select.select([ends], [], [], 60)[0]
        assert ends.read() in (b"begun\n", b"")


def test_a_store_in_clear_is_encrypted_and_made_clear_again() -> None:
    async def story() -> None:
        inner = MemoryStore(FREE)
        await fill(inner)
        before = await inner.get("a", "ann")
        with pytest.raises(ApiError, match="not encrypted"):
            await around(inner, ONE).get("a", "ann")
        both = around(inner, ONE + b"\nclear")
        assert await both.get("a", "ann") == before
        assert await rewrite(both, "a", "ann")
        assert await around(inner, ONE).get("a", "ann") == before
        assert await rewrite(around(inner, b"clear\n" + ONE), "a", "ann")
        assert await inner.get("a", "ann") == before

    run(story())


def test_a_start_without_the_key_is_refused_in_one_sentence(tmp_path: Path) -> None:
    async def begin(keys: bytes) -> None:
        store = WitnessedStore(SqliteHistory(tmp_path).store(), StoreKeys(lambda: keys), letters)
        await store.start()
        await store.stop()

    run(begin(ONE))
    with pytest.raises(StartupError, match=r"STORE_KEYS does not open the store: .* the key "):
        run(begin(TWO))
    run(begin(TWO + b"\n" + ONE))
    run(begin(TWO))
    assert WITNESS.owner == "(store)", "no key can name it"


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("{}/none", "cannot be read"),
        ("{}/pipe", "is not a file"),
        ("|echo short", "line 1 is neither"),
        ("|true", "no key"),
        ("|echo broken >&2; exit 3", r"exited 3 \(broken\)"),
    ],
)
def test_keys_that_cannot_be_used_are_named(tmp_path: Path, place: str, fault: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StartupError, match=fault):
        StoreKeys(reader(place.format(tmp_path)))
