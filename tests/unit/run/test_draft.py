"""A draft lets go of all that it holds, whatever happens meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.drafts import bare_draft
from tests.support.story import story
from tests.support.turns import turn


@story
async def test_all_is_let_go_of_though_the_caller_is_cancelled() -> None:
    draft, left = bare_draft(), []

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def leaves() -> None:
        left.append("left")

    draft.after_generating(leaves)
    draft.after_generating(hangs)
    draft.after_storing(leaves)
    releasing = asyncio.create_task(draft.release())
    await turn()
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    assert left == ["left", "left"]
