"""One suite over every engine that is present: what the seam promises, asked of each.

Budget: 30 s on one core, most of it llama.cpp loading the random model three times.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.echo_engines import MAKERS, echo, remote_maker
from tests.support.engine_claims import CLAIMS, CONTEXT, SLOTS, Bench
from tests.support.scripted.engine import ScriptedEngine
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.features.several.group import Group
from trt_responses.features.several.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.graphs import Graph
    from trt_responses.engine import Engine
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = pytest.mark.xdist_group("engines")  # one process loads its engines


REMOTE = {f"{kind}-remote": remote_maker(kind) for kind in MAKERS}
"""Those two behind the socket, in processes of their own."""


def several() -> Group:
    """Engines of one slot each, as one."""
    one = partial(ScriptedEngine, echo, context_tokens=CONTEXT, max_batch=1)
    return Group("echo", [Replica(f"echo/{number}", "here", one) for number in range(SLOTS)])


MAKE: dict[str, Callable[[], Engine]] = {**MAKERS, **REMOTE, "several": several}


@pytest.fixture(params=[*MAKE, "llamacpp", "onnx"], scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    make = MAKE.get(request.param, MAKE["scripted"])
    if request.param == "llamacpp":
        gguf: Path = request.getfixturevalue("random_gguf")

        def make() -> Engine:
            return LlamaCppEngine(gguf, context_tokens=CONTEXT, slots=SLOTS, threads=1)

    if request.param == "onnx":
        graph: Graph = request.getfixturevalue("random_graph")
        vocabulary: Vocabulary = request.getfixturevalue("vocabulary")

        def make() -> Engine:
            return graph.engine(vocabulary)

    with asyncio.Runner() as runner:
        bench = Bench(request.param, make(), make, runner)
        runner.run(bench.engine.start())
        yield bench
        runner.run(bench.engine.stop(5))


globals().update(CLAIMS)
