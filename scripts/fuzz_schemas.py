"""Random schemas on a random model: `python -m scripts.fuzz_schemas [count]`, 200 if none is given.

The embedded engine answers each by its guide. Every answer that is called completed is judged by
rules that share no code with the guide or with the check; fewer than 80 % are a failure. Twice as
many schemas of numbers are sent too, with bounds and steps of all kinds: each answer follows its
schema or was cut, what is refused is refused by name, and no request is a failure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import jsonschema

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from scripts.gguf_model import convert
from tests.support import random_schemas
from tests.support.asgi import Client, living
from tests.support.steering_bench import (
    NO_THOUGHT,
    SLOTS,
    answer,
    completed,
    formatted,
    random_wish,
)
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.engines.stand_ins import StandIns
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.settings import Settings
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from tests.support.asgi import Call

Json = dict[str, Any]

LEAST = 0.8
CLOSED: Json = {"additionalProperties": False}


def model(folder: Path) -> Path:
    """A gpt-oss of two layers with nothing to say."""
    checkpoint = write_checkpoint(folder / "random", Recipe(replace(TINY, layers=2), "f32"))
    target = folder / "random.gguf"
    convert(open_checkpoint(checkpoint), target, vocabularies.load(), weight_type="q8_0")
    return target


async def share(gguf: Path, count: int) -> float:
    """Of the schemas whose answer was completed; each of those is judged."""
    spelled = StandIns(vocabularies.load())
    engine = LlamaCppEngine(gguf, context_tokens=2560, slots=SLOTS, threads=1, spelled=spelled)
    app = create_app(Settings(model="demo", max_waiting=3 * count), engine=engine)
    wishes = [random_wish(seed) for seed in range(count)]
    numbers = [number_wish(seed) for seed in range(2 * count)]
    async with living(app):
        client = Client(app)
        calls = await asyncio.gather(*(client.create(**fields) for _, fields in wishes))
        others = await asyncio.gather(*(client.create(**fields) for _, fields in numbers))
    failed: list[str] = []
    for (schema, _), call in zip((*wishes, *numbers), (*calls, *others), strict=True):
        if call.status not in (200, 400):
            failed.append(f"{call.status} {call.error['message']}: {schema}")
    judged = [is_lawful(schema, call) for (schema, _), call in zip(numbers, others, strict=True)]
    print(f"{2 * count} schemas of numbers: {sum(judged)} completed, each of them judged lawful")
    made = [completed(schema, call) for (schema, _), call in zip(wishes, calls, strict=True)]
    print("\n".join([f"{len(failed)} requests failed", *failed]))
    if failed:
        raise SystemExit(1)
    return sum(made) / count


def number_wish(seed: int) -> tuple[Json, Json]:
    schema = random_schemas.numbers(Random(seed))
    form = formatted({"type": "object", "properties": {"n": schema}, "required": ["n"]} | CLOSED)
    return schema, {"text": form, "reasoning": NO_THOUGHT, "seed": seed, "max_output_tokens": 48}


def is_lawful(schema: Json, call: Call) -> bool:
    """Whether the answer is called completed; if so, it follows its schema. A step is left to our
    own judge: `jsonschema` computes it in floats."""
    if call.status != 200 or call.json()["status"] != "completed":
        return False
    without_step = {key: value for key, value in schema.items() if key != "multipleOf"}
    jsonschema.validate(json.loads(answer(call))["n"], without_step)
    return True


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(share(model(Path(folder)), count))
    print(f"{count} random schemas: {found:.0%} completed, each of them judged lawful")
    if found < LEAST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
