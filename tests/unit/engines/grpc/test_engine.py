"""The engine over gRPC, against a server that is made from the published `.proto` files and drives
the stand-in for TensorRT-LLM: the seam's promises.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.engine_claims import CLAIMS, Bench
from tests.support.grpc_server import echo_llm, served
from tests.support.grpc_servicers import Servicer
from trt_responses.engines.grpc.engine import Address, GrpcEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.engine import Engine


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        servicer = Servicer(echo_llm())
        port = runner.run(stack.enter_async_context(served(servicer)))

        def make() -> Engine:
            return GrpcEngine(Address("127.0.0.1", port, "demo"))

        engine = make()
        runner.run(engine.start())
        yield Bench("grpc", engine, make, runner)
        runner.run(engine.stop(5))
        runner.run(stack.aclose())
        assert servicer.llm.plan.misuse == []


globals().update(CLAIMS)
