"""Owners whose keys say how long their records are kept: some for an hour, some not at all."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import JSON
from tests.support.histories import FREE, NOW, record
from tests.support.served import served
from tests.support.turns import turn
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of
from trt_responses.features.retention.store import RetainedStore
from trt_responses.store import Expired, Job, Record
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Frames

if TYPE_CHECKING:
    from pathlib import Path


def bearer(secret: str) -> dict[str, str]:
    return JSON | {"authorization": f"Bearer {secret}"}


def test_nothing_of_an_owner_without_retention_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with changing(path) as write:
        write(
            [
                Key(owner="ann", name="a", sha256=digest_of("ann"), keep_s=0),
                Key(owner="ann", name="b", sha256=digest_of("ann2"), keep_s=3600),
                Key(owner="bob", name="a", sha256=digest_of("bob")),
            ]
        )

    async def story() -> None:
        async with served(keys_file=path, data_dir=tmp_path) as s:
            for secret, stored in (("ann", False), ("ann2", False), ("bob", True)):
                body = b'{"model": "demo", "input": "Hello", "store": true}'
                made = await s.client.send("POST", "/v1/responses", body, bearer(secret))
                assert made.status == 200, made.json()
                assert made.json()["store"] is stored, "the response says so"
                where = f"/v1/responses/{made.json()['id']}"
                found = await s.client.send("GET", where, headers=bearer(secret))
                assert found.status == (200 if stored else 404)
            for more in (b'"background": true', b'"conversation": "conv_1"'):
                body = b'{"model": "demo", "input": "Hello", %b}' % more
                refused = await s.client.send("POST", "/v1/responses", body, bearer("ann"))
                assert refused.status == 400
                assert refused.json()["error"]["code"] == "zero_retention"
            talk = await s.client.send("POST", "/v1/conversations", b"{}", bearer("ann"))
            assert talk.json()["error"]["code"] == "zero_retention"

    asyncio.run(story())


@pytest.mark.parametrize("kept_s", [60, 0])
def test_records_of_an_owner_expire_earlier_than_those_of_others(kept_s: int) -> None:
    now = [NOW]

    async def story() -> None:
        inner = MemoryStore(FREE, clock_s=lambda: now[0])
        rules = dict[str, int]()
        store = RetainedStore(inner, lambda: rules, lambda: now[0])
        for name, owner in (("a", "ann"), ("b", "bob")):
            await store.put(record(name, owner=owner))
        assert await store.sweep() == 0
        rules["ann"] = 60
        now[0] += 59
        assert await store.sweep() == 0
        assert isinstance(await store.get("a", "ann"), Record)
        rules["ann"], deleted = kept_s, list[tuple[str, str]]()
        now[0] += 1
        assert await store.get("a", "ann") == Expired("a")
        assert await store.sweep([lambda *gone: deleted.append(gone)]) == 1
        assert deleted == [("a", "ann")]
        assert await inner.get("a", "ann") is None
        assert isinstance(await store.get("b", "bob"), Record)

    asyncio.run(story())


def test_a_background_response_goes_with_the_records_of_its_owner() -> None:
    """Its key says so while it runs, or while it waits for a server that does not come back."""

    async def story() -> None:
        inner = MemoryStore(FREE, clock_s=lambda: NOW)
        rules = dict[str, int]()
        store = RetainedStore(inner, lambda: rules, lambda: NOW)
        for name in ("ends", "stays"):
            await store.put_job(Job(name, "ann", b"{}", int(NOW)))
            await store.append_frames(name, Frames(0, 1, b"data: words\n\n"))
        rules["ann"] = 0
        assert await store.get("stays", "ann") == Expired("stays")
        assert not await store.finish_job(record("ends")), "as if it had been deleted"
        assert await inner.frames_after("ends", "ann", -1) is None
        assert await store.sweep() == 1
        assert await inner.ids_of("ann") == []
        assert await inner.frames_after("stays", "ann", -1) is None

    asyncio.run(story())


def test_a_server_that_is_started_again_each_hour_deletes_what_is_due(tmp_path: Path) -> None:
    with changing(tmp_path / "keys.json") as write:
        write([Key(owner="ann", name="a", sha256=digest_of("ann"), keep_s=3600)])

    async def story() -> None:
        store = MemoryStore()
        await store.put(replace(record("a"), created_at=int(time.time()) - 7200))
        async with served(store=store, keys_file=tmp_path / "keys.json", data_dir=tmp_path):
            await turn(20)
            assert await store.get("a", "ann") is None

    asyncio.run(story())
