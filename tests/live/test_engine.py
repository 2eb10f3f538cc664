"""The one suite over every engine, on the real package: what the seam promises, on a GPU."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.engine_claims import CLAIMS, CONTEXT, SLOTS, Bench
from tests.support.needs import missing
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.prepare.hardware import visible_gpus
from trt_responses.prepare.trtllm.profiles import arguments_for, class_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trt_responses.engine import Engine

if why := missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def bench(checkpoint: Path) -> Iterator[Bench]:
    gpu_class = class_of(visible_gpus()[0][0].sm)
    arguments = {
        **arguments_for("latency", gpu_class, 1, CONTEXT),
        "max_batch_size": SLOTS,
        "cuda_graph_config": {"max_batch_size": SLOTS, "enable_padding": True},
    }

    def make() -> Engine:
        return TrtLlmEngine(checkpoint, arguments)

    with asyncio.Runner() as runner:
        bench = Bench("trtllm", make(), make, runner)
        runner.run(bench.engine.start())
        yield bench
        runner.run(bench.engine.stop(60))


globals().update(CLAIMS)
