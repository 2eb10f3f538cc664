"""What `test_steering.py` claims of the embedded engine, claimed of the engine over static slots.

On a random model: whatever is completed is so because of the guide. Budget: 15 s on one core.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from tests.e2e import test_steering as steering
from tests.support.asgi import Client, living
from tests.support.steering import Noting
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.graphs import Graph
    from trt_responses.tokens.vocabulary import Vocabulary

    Claim = Callable[[steering.Bench], None]

pytestmark = pytest.mark.xdist_group("static slots")

SCHEMAS = 12
CLAIMS = {
    name: claim
    for name, claim in inspect.getmembers(steering, inspect.isfunction)
    if name.startswith("test_")
    and list(inspect.signature(claim).parameters) == ["bench"]
    and "random_schema" not in name
}


@pytest.fixture(scope="module")
def bench(steered_graph: Graph, vocabulary: Vocabulary) -> Iterator[steering.Bench]:
    engine = Noting(steered_graph.engine(vocabulary))
    app = create_app(Settings(date="2026-02-03", model="demo"), engine=engine)
    with asyncio.Runner() as runner:
        life = living(app)
        runner.run(life.__aenter__())
        yield steering.Bench(Client(app), engine, runner)
        runner.run(life.__aexit__(None, None, None))


def test_what_is_completed_follows_its_random_schema(bench: steering.Bench) -> None:
    wishes = [steering.random_wish(seed) for seed in range(SCHEMAS)]
    calls = bench.ask(*(asked for _, asked in wishes))
    made = [steering.completed(s, call) for (s, _), call in zip(wishes, calls, strict=True)]
    assert sum(made) >= 0.8 * SCHEMAS


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_it_holds_here_too(claim: Claim, bench: steering.Bench) -> None:
    claim(bench)


def test_there_are_claims() -> None:
    assert len(CLAIMS) > 5
