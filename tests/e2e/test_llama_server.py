"""The engine of a llama.cpp server elsewhere, against that whole server: the seam's promises, its
slots by owner, and its end.

Budget: 8 s on one core, most of it the random model loading.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.engine_claims import CLAIMS, CONTEXT, PROMPT, SLOTS, Bench, greedy
from tests.support.gather import begin, generated
from tests.support.llama_server import KEY, llama_server
from tests.support.polling import until_seen
from trt_responses.backends.elsewhere import Elsewhere
from trt_responses.backends.http import http_at
from trt_responses.engine import GenerateOptions
from trt_responses.engines.llamacpp.server import LlamaServerEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trt_responses.engine import Engine

pytestmark = pytest.mark.xdist_group("llama_server")  # one process loads its engines


START_S = 120.0


@pytest.fixture(scope="module")
def bench(random_gguf: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLAMA_API_KEY", KEY)
        stack = AsyncExitStack()
        server = llama_server(random_gguf, context=CONTEXT, slots=SLOTS)
        _, port = runner.run(stack.enter_async_context(server))

        def make(kind: str = "http") -> Engine:
            return http_at(Elsewhere(kind, f"127.0.0.1:{port}"), START_S)

        engine = make("llama-server")
        runner.run(engine.start())
        yield Bench("llama-server", engine, make, runner)
        runner.run(engine.stop(5))
        runner.run(stack.aclose())


globals().update(CLAIMS)


def test_it_guides_and_says_what_it_is(bench: Bench) -> None:
    assert isinstance(bench.engine, LlamaServerEngine)
    assert set(bench.engine.limits().guides) == {"json_schema", "regex", "lark"}
    assert bench.engine.about.startswith("llama.cpp b")
    assert "model random" in bench.engine.about


def test_owners_share_no_cached_prompt(bench: Bench) -> None:
    async def claim() -> None:
        cached = []
        for salt in ("one", "one", "other", "one"):
            options = replace(greedy(2), cache_salt=salt)
            cached.append((await generated(bench.engine, PROMPT, options)).cached_tokens)
        first, again, others, last = cached
        assert first == others == 0
        assert (again or 0) > 0
        assert (last or 0) > 0

    bench.run(claim())


def test_a_killed_server_loses_what_runs_and_serves_again(random_gguf: Path) -> None:
    async def claim() -> None:
        async with AsyncExitStack() as stack:
            sized = {"context": CONTEXT, "slots": SLOTS}
            process, port = await stack.enter_async_context(llama_server(random_gguf, **sized))
            engine = http_at(Elsewhere("llama-server", f"127.0.0.1:{port}"), START_S)
            await engine.start()
            options = GenerateOptions(300, (), seed=3)
            sinks = [begin(engine, PROMPT, options)[0] for _ in range(SLOTS + 2)]
            await sinks[0].some(2)
            process.kill()
            for sink in sinks:
                await sink.done()
            assert {sink.chunks[-1].lost for sink in sinks} == {"died"}
            assert not engine.health().ready
            await stack.enter_async_context(llama_server(random_gguf, port=port, **sized))
            await until_seen(lambda: engine.health().ready)
            assert len((await generated(engine, PROMPT, greedy(4))).token_ids) == 4
            await engine.stop(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLAMA_API_KEY", KEY)
        asyncio.run(claim())
