"""Bodies and paths made from our own OpenAPI document: none is a fault of ours, many are answered.

Budget: 50 s on one core in all, nearly all of it making the cases.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from tests.support.asgi import JSON
from tests.support.sampled import sampled
from tests.support.served import CALL, THOUGHT, served
from tests.support.specification import check_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.asgi import Call
    from tests.support.served import Served

CASES = 700
"""In each of two parts, so that two workers share them."""
ACCEPTED = 0.35
"""Of the bodies with an input that name no conversation: none that a body names here exists."""
BAD_CASES = 100

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
"""The generators' own."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    async def told() -> dict[str, Any]:
        async with served() as s:
            return (await s.client.get("/openapi.json")).json()

    return asyncio.run(told())


def sayable(answer: dict[str, Any]) -> bool:
    """Whether the Open Responses schema, which judges the answers, has words for what is echoed."""
    return not answer["tools"] and answer["reasoning"]["effort"] not in ("minimal", "max")


class Tally:
    """Sends cases to one app that lives as long as they come, and counts the answers."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.params: set[str] = set()
        self._runner = asyncio.Runner()
        self._life = served(THOUGHT, CALL, THOUGHT)
        self._served: Served = self._runner.run(self._life.__aenter__())

    def send(self, method: str, path: str, body: object = None) -> Call:
        data = b"" if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        call = self._runner.run(self._served.client.send(method, path, data, JSON))
        self.statuses[call.status] += 1
        if call.status != 200:
            assert call.status < 500, (method, path, body, call.body)
            assert call.error["message"]
            self.params.add(str(call.error["param"]))
        return call

    def end(self) -> None:
        self._runner.run(self._life.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture
def tally() -> Iterator[Tally]:
    counts = Tally()
    yield counts
    counts.end()


def drawn(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


@pytest.mark.early(20)
@pytest.mark.slow  # hundreds of generated bodies
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [1, 2])
def test_bodies_of_our_own_schema_are_answered_or_refused_by_name(
    part: int, document: dict[str, Any], tally: Tally
) -> None:
    operation = schemathesis.openapi.from_dict(document)["/v1/responses"]["POST"]
    lawful = {int(status) for status in document["paths"]["/v1/responses"]["post"]["responses"]}

    free: Counter[int] = Counter()

    @hypothesis.seed(part)
    @drawn(CASES)
    @given(operation.as_strategy())
    def send(case: Any) -> None:
        call = tally.send("POST", "/v1/responses", case.body)
        if case.body.get("input") and not case.body.get("conversation"):
            free[call.status] += 1
        assert call.status in lawful
        if call.status == 200 and not case.body.get("stream") and sayable(call.json()):
            check_body(call.json())

    send()
    assert tally.statuses.total() >= CASES
    assert free[200] >= ACCEPTED * free.total(), free
    assert len(tally.params) > 20, "the refusals are all of a kind"


@pytest.mark.early(20)
@pytest.mark.slow  # hundreds of generated bodies
@pytest.mark.timeout(900)
def test_bodies_against_our_own_schema_are_refused_or_harmless(
    document: dict[str, Any], tally: Tally
) -> None:
    operation = schemathesis.openapi.from_dict(document)["/v1/responses"]["POST"]

    @hypothesis.seed(3)
    @drawn(BAD_CASES)
    @given(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def send(case: Any) -> None:
        if isinstance(case.body, dict | list | str | int | float | bool | None):
            tally.send("POST", "/v1/responses", case.body)

    send()
    assert tally.statuses[400] > tally.statuses.total() / 3 > 20


OTHERS = [
    ("GET", "/v1/responses/{response_id}"),
    ("DELETE", "/v1/responses/{response_id}"),
    ("POST", "/v1/responses/{response_id}/cancel"),
    ("GET", "/v1/responses/{response_id}/input_items"),
    ("GET", "/v1/models/{model}"),
]


@sampled("method, path", OTHERS)  # 3 s: drawn bodies
def test_paths_of_our_own_schema_are_answered_or_refused(
    method: str, path: str, document: dict[str, Any], tally: Tally
) -> None:
    @hypothesis.seed(4)
    @drawn(20)
    @given(schemathesis.openapi.from_dict(document)[path][method].as_strategy())
    def send(case: Any) -> None:
        filled = {name: quote(str(v), safe="") for name, v in case.path_parameters.items()}
        query = "&".join(f"{k}={quote(str(v))}" for k, v in (case.query or {}).items())
        tally.send(method, f"{path.format(**filled)}?{query}".rstrip("?"))

    send()
    assert tally.statuses.total() >= 5
