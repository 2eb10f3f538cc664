"""An app over a running engine, requests with schemas, and the judge of its answers."""

from __future__ import annotations

import asyncio
import json
import re
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support import random_schemas
from tests.support.asgi import PATIENCE_S
from tests.support.schema_judge import valid

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.support.asgi import Call, Client
    from tests.support.steering import Noting

Json = dict[str, Any]
T = TypeVar("T")

SLOTS = 8
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
BLANK = re.compile(r"\s")
NO_THOUGHT = {"effort": "none"}


def formatted(schema: Json) -> Json:
    return {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}


def answer(call: Call) -> str:
    body: Json = call.json()
    text: str = body["output"][-1]["content"][0]["text"]
    return text


class Bench:
    """An app over an engine that runs, and the loop they run on."""

    def __init__(
        self, client: Client, engine: Noting, runner: asyncio.Runner, schemas: int
    ) -> None:
        self.schemas = schemas
        self.client = client
        self.engine = engine
        self._runner = runner

    def ask(self, *asked: Json) -> list[Call]:
        """At once."""
        self.engine.asked.clear()
        self.engine.cached.clear()

        async def all_of_them() -> list[Call]:
            return await asyncio.gather(*(self.client.create(**fields) for fields in asked))

        return self.run(all_of_them())

    def run(self, story: Coroutine[None, None, T]) -> T:
        return self._runner.run(asyncio.wait_for(story, PATIENCE_S))


def random_wish(seed: int) -> tuple[Json, Json]:
    """A schema, and a request for it."""
    schema = random_schemas.schema(Random(seed))
    asked = {"text": formatted(schema), "reasoning": NO_THOUGHT, "max_output_tokens": 160}
    return schema, asked | {"seed": seed}


def completed(schema: Json, call: Call) -> bool:
    """Whether the answer is called completed; if so, it is compact and follows its schema."""
    if call.status != 200 or call.json()["status"] != "completed":
        return False
    text = answer(call)
    assert valid(json.loads(text), schema, schema), (schema, text)
    assert not BLANK.search(STRINGS.sub("", text)), text
    return True
