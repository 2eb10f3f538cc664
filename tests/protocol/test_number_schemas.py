"""Schemas of numbers through the whole server: each is answered or refused, and none is a 500.

The engine writes random texts that its guide allows. `make fuzz` plays 400 of others on a model.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import TYPE_CHECKING

import jsonschema

from tests.support import random_schemas
from tests.support.schemas import form, walk
from tests.support.served import script, served
from tests.support.steering import GUIDES
from trt_responses.schema.judge import Unreadable, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions

COUNT = 60


def is_readable(text: str) -> bool:
    """No exponent of many digits, which no model writes and no reader takes."""
    try:
        read(text)
    except Unreadable:
        return False
    return True


def test_no_schema_of_numbers_is_a_failure_of_the_server() -> None:
    random = Random(16)

    def say(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        assert options.guide is not None
        if options.guide.kind == "regex":
            return script("final<|endoftext|>")
        found = form(json.loads(options.guide.source))
        texts = (walk(found, random, 60) for _ in range(20))
        return script(f"{next(text for text in texts if text and is_readable(text))}<|endoftext|>")

    async def story() -> None:
        completed = 0
        async with served(*[say] * (2 * COUNT), guides=GUIDES) as s:
            for _ in range(COUNT):
                schema = random_schemas.numbers(random)
                form_of = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
                call = await s.client.create(text={"format": form_of}, reasoning={"effort": "none"})
                assert call.status in (200, 400), (schema, call.error)
                if call.status == 400:
                    assert call.error["code"] == "invalid_json_schema"
                    continue
                completed += 1
                value = json.loads(call.json()["output"][-1]["content"][0]["text"])
                without_step = {k: v for k, v in schema.items() if k != "multipleOf"}
                jsonschema.validate(value, without_step)
        assert completed > COUNT / 3

    asyncio.run(story())
