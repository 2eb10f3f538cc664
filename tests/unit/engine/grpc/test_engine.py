"""The engine over gRPC, against servers that are made from the published `.proto` files and drive
the stand-in for TensorRT-LLM: the seam's promises, over both protocols.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.engine_claims import CLAIMS, Bench
from tests.support.grpc_server import SERVICERS, echo_llm, served
from trt_responses.engine.grpc.engine import Address, GrpcEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.engine.base import Engine


@pytest.fixture(params=SERVICERS, scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        servicer = SERVICERS[request.param](echo_llm())
        port = runner.run(stack.enter_async_context(served(servicer)))

        def make() -> Engine:
            return GrpcEngine(Address("127.0.0.1", port, "demo"))

        engine = make()
        runner.run(engine.start())
        yield Bench(f"grpc-{request.param}", engine, make, runner)
        runner.run(engine.stop(5))
        runner.run(stack.aclose())
        assert servicer.llm.plan.misuse == []


globals().update(CLAIMS)
