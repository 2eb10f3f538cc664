"""Approvals that two servers of one store are brought at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from trt_responses.errors import InvalidRequest
from trt_responses.features.hosted_tools.approvals import REMEMBERED_S, claim
from trt_responses.features.hosted_tools.loop import Approved
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


def approved(name: str) -> Approved:
    return Approved(name, "files", "read", "{}", f"place of {name}")


def test_an_approval_is_good_on_one_server_alone(tmp_path: Path) -> None:
    now = [1000.0]

    async def story() -> None:
        stores = [SqliteStore(tmp_path / "history", clock_s=lambda: now[0]) for _ in range(2)]
        for store in stores:
            await store.start()
        one, other = stores
        await claim([approved("a")], one, "ann", "resp_1")
        await claim([approved("a")], one, "ann", "resp_1")  # the same response, taken over
        await claim([approved("a")], other, "bob", "resp_2")
        with pytest.raises(InvalidRequest) as refused:
            await claim([approved("b"), approved("a")], other, "ann", "resp_3")
        assert (refused.value.code, refused.value.param) == ("approval_already_used", "place of a")
        await claim([approved("b")], one, "ann", "resp_4")  # the refusal has used up nothing
        now[0] += REMEMBERED_S - 1
        with pytest.raises(InvalidRequest):
            await claim([approved("a")], other, "ann", "resp_5")
        for store in stores:
            await store.stop()

    asyncio.run(story())
