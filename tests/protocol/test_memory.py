"""What many responses leave in memory: what is kept on purpose, in its own size, and no more."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import Client, living, until
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.served import SETTINGS, script, vocabulary
from trt_responses.app import create_app
from trt_responses.harmony.dialect import Harmony
from trt_responses.harmony.read.reader import Tables
from trt_responses.harmony.write.render import Renderer
from trt_responses.settings import Settings
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.sqlite.store import SqliteStore
from trt_responses.tokens.tokenise import Tokeniser

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trt_responses.engine import GenerateOptions
    from trt_responses.store import Store

WARM = 40
"""So many requests until what is made once is made, and what is remembered has its size."""
REQUESTS, BATCHES = 12, 8
ONE_IN_TEN = 10
"""So many requests there are to one whose client hangs up."""
ITEM_BYTES = 1000


def answers(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """Another long answer to each prompt."""
    named = vocabulary().text(list(prompt_ids)).rpartition("number=")[2].partition(";")[0]
    return script(f"<|channel|>final<|message|>{named}: {'and so on, ' * 30}<|return|>")


def small_caches() -> Harmony:
    """The dialect with room for some ten messages."""
    tables = Tables.of(vocabulary())
    dialect = Harmony(vocabulary(), tables)
    dialect.renderer = Renderer(vocabulary(), Tokeniser(vocabulary()), cache_bytes=20_000)
    return dialect


async def grown(history: Store, dialect: Harmony | None = None, **asked: object) -> list[float]:
    """By how many bytes a request each of some batches made the process larger."""
    engine = ScriptedEngine(answers, keep_records=1)
    settings = Settings(**(SETTINGS | {"explain_bytes": 20_000}))
    app = create_app(settings, engine=engine, store=history, speaks=dialect)
    async with living(app):
        client = Client(app)
        tracemalloc.start()
        try:
            await batch(client, range(WARM), asked)
            sizes = [traced()]
            for first in range(WARM, WARM + BATCHES * REQUESTS, REQUESTS):
                await batch(client, range(first, first + REQUESTS), asked)
                await until(lambda: not len(app.state.runs))
                sizes.append(traced())
        finally:
            tracemalloc.stop()
    return [(later - earlier) / REQUESTS for earlier, later in pairwise(sizes)]


async def batch(client: Client, numbers: range, asked: dict[str, object]) -> None:
    for number in numbers:
        text = f"number={number}; {'on and on, ' * (ITEM_BYTES // 11)}"
        call = client.ask(stream=True, input=text, **asked)
        if number % ONE_IN_TEN == 0:
            await call.until(lambda call: len(call.heard) > 6)
            call.hang_up()
        await call.done()


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.early(10)
@pytest.mark.slow  # thousands of responses
@pytest.mark.parametrize(
    ("stored", "bound"), [(False, 60), (True, 150)], ids=["not stored", "stored"]
)
def test_responses_leave_nothing_once_what_is_remembered_has_its_size(
    stored: bool, bound: int
) -> None:
    """What each leaves would show in every batch, and an object with a key is larger. The store has
    some ids of responses that it dropped, up to a bound."""
    store = MemoryStore(Bounds(max_bytes=20_000, max_records=10, max_expired=10))
    assert min(asyncio.run(grown(store, small_caches(), store=stored))) < bound


@pytest.mark.early(10)
@pytest.mark.slow  # thousands of responses
def test_what_is_kept_of_responses_takes_its_own_size(tmp_path: Path) -> None:
    """In the buffers that orjson gives, each request and answer would take 16 KiB more."""
    assert min(asyncio.run(grown(SqliteStore(tmp_path / "history.db")))) < 10 * ITEM_BYTES
