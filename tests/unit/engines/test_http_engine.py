"""The engines over HTTP, against servers made from the published fields of vLLM and SGLang: the
seam's promises.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.engine_claims import CLAIMS, Bench
from tests.support.id_servers import echoing, id_server
from trt_responses.backends.elsewhere import Elsewhere
from trt_responses.backends.http import http_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.engine import Engine


SGLANG = pytest.param("sglang", marks=pytest.mark.slow)  # beside the wires, it shares all with vLLM


@pytest.fixture(scope="module", params=["vllm", SGLANG])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    kind: str = request.param
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        server = echoing(kind)
        port = runner.run(stack.enter_async_context(id_server(server)))

        def make() -> Engine:
            return http_at(Elsewhere(kind, f"127.0.0.1:{port}/demo"), 30.0)

        engine = make()
        runner.run(engine.start())
        yield Bench(kind, engine, make, runner)
        runner.run(engine.stop(5))
        runner.run(stack.aclose())
        assert server.misuse == []


globals().update(CLAIMS)
