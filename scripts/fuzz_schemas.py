"""Random schemas on a random model: `python -m scripts.fuzz_schemas [count]`, 200 if none is given.

The embedded engine answers each by its guide. Every answer that is called completed is judged by
rules that share no code with the guide or with the check; fewer than 80 % are a failure.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.asgi import Client, living
from tests.support.steering_bench import SLOTS, completed, random_wish
from trt_responses.app import create_app
from trt_responses.engine.llamacpp.engine import LlamaCppEngine
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.llamacpp.gguf import convert
from trt_responses.settings import Settings
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.stand_ins import StandIns

LEAST = 0.8


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
    app = create_app(Settings(model="demo", max_waiting=count), engine=engine)
    wishes = [random_wish(seed) for seed in range(count)]
    async with living(app):
        client = Client(app)
        calls = await asyncio.gather(*(client.create(**asked) for _, asked in wishes))
    made = [completed(schema, call) for (schema, _), call in zip(wishes, calls, strict=True)]
    return sum(made) / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(share(model(Path(folder)), count))
    print(f"{count} random schemas: {found:.0%} completed, each of them judged lawful")
    if found < LEAST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
