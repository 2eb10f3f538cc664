"""Compaction in tests: a server that seals and steers, and its streams as a strict client takes
them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from openai.types.responses import Response

from tests.support import sdk_judge
from tests.support.served import KEYED, served
from tests.support.steering import GUIDES

if TYPE_CHECKING:
    from tests.support.asgi import Call

sealing = partial(served, guides=GUIDES, **KEYED)


def judged(made: Call) -> dict[str, Any]:
    """The last snapshot of a stream, whose events are the SDK's types and agree with it."""
    assert made.status == 200, made.body
    for event in made.events:
        sdk_judge.SDK.validate_json(orjson.dumps(event))
    assert [e["sequence_number"] for e in made.events] == list(range(len(made.events)))
    last: dict[str, Any] = made.events[-1]["response"]
    Response.model_validate(last)
    done = [e["item"] for e in made.events if e["type"] == "response.output_item.done"]
    assert [item["id"] for item in done] == [item["id"] for item in last["output"]]
    return last
