"""The share of prompt tokens that two engines of one model read from their caches, with requests
sent where their prompt is warm, and with requests sent to the least loaded engine.

`python -m bench.affinity`: two embedded engines with the demo, 20 conversations of 5 turns, the
turns of all in one random order, four at a time. The demo is prepared first, if it is not yet.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import orjson

from bench.asgi import living, stream_of
from trt_responses.app import create_app
from trt_responses.cli.building import prepare_demo
from trt_responses.features.several.engine import SeveralEngines
from trt_responses.settings import Settings

CONVERSATIONS, TURNS, AT_ONCE = 20, 5, 4
SENTENCES = 30


class Read(NamedTuple):
    """The tokens of all prompts, those that were read from a cache, and the engines that each
    conversation met, added up."""

    tokens: int
    cached: int
    met: int


async def measured(count: int, *, affinity: bool) -> Read:
    settings = Settings.from_environment(
        engine=f"several://{','.join(['demo=demo'] * count)}",
        store="memory://",
        explain_bytes=2**28,
        log_level="error",
    )
    app = create_app(settings)
    engines = app.state.server.of(SeveralEngines)
    engines.first.affinity = affinity
    async with living(app):
        while not all(replica.able for replica in engines.replicas()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return await _talked(app, engines)


async def _talked(app: object, engines: SeveralEngines) -> Read:
    order = random.Random(7)
    last: dict[int, str] = {}
    met: set[tuple[int, str]] = set()
    tokens = cached = 0
    places = asyncio.Semaphore(AT_ONCE)

    async def turn(number: int) -> None:
        nonlocal tokens, cached
        text = f"I am guest {number}. " + "What is the weather in Bern today? " * SENTENCES
        body = {
            "model": "demo",
            "input": text if number not in last else "And tomorrow?",
            "previous_response_id": last.get(number),
            "max_output_tokens": 24,
        }
        async with places:
            made = orjson.loads(await stream_of(app, orjson.dumps(body)))  # type: ignore[arg-type]
        last[number] = made["id"]
        met.update((number, label) for label in engines.made(made["id"]))
        tokens += made["usage"]["input_tokens"]
        cached += made["usage"]["input_tokens_details"]["cached_tokens"]

    for _ in range(TURNS):
        numbers = list(range(CONVERSATIONS))
        order.shuffle(numbers)
        await asyncio.gather(*map(turn, numbers))
    return Read(tokens, cached, len(met))


def main() -> None:
    prepare_demo(Settings.from_environment())
    for name, count, affinity in (
        ("one engine", 1, True),
        ("two, where the prompt is warm", 2, True),
        ("two, the least loaded", 2, False),
    ):
        read = asyncio.run(measured(count, affinity=affinity))
        print(
            f"{name}: {read.cached / read.tokens:.0%} of {read.tokens} prompt tokens from a cache, "
            f"{read.met / CONVERSATIONS:.2f} engines for a conversation",
            flush=True,
        )


if __name__ == "__main__":
    main()
