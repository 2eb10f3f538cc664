"""The engine over gRPC, against servers that are made from the published `.proto` files of
TensorRT-LLM and vLLM: the seam's promises.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.echo_engines import scripted
from tests.support.engine_claims import CLAIMS, Bench
from tests.support.grpc_server import echo_llm, served
from tests.support.grpc_servicers import Servicer
from tests.support.vllm_servicer import VllmServicer
from trt_responses.engines.grpc.engine import Address, GrpcEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.engine import Engine


VLLM = pytest.param("vllm", marks=pytest.mark.slow)  # shares all but its messages


@pytest.fixture(scope="module", params=["trtllm", VLLM])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        is_vllm = request.param == "vllm"
        servicer = VllmServicer(scripted()) if is_vllm else Servicer(echo_llm())
        port = runner.run(stack.enter_async_context(served(servicer)))

        def make() -> Engine:
            return GrpcEngine(Address("127.0.0.1", port, "demo"))

        engine = make()
        runner.run(engine.start())
        yield Bench("vllm" if is_vllm else "grpc", engine, make, runner)
        runner.run(engine.stop(5))
        runner.run(stack.aclose())
        if isinstance(servicer, Servicer):
            assert servicer.llm.plan.misuse == []


globals().update(CLAIMS)
