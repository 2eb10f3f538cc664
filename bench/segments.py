"""What a segment adds: a prompt of 2,000 tokens on the embedded engine, free and steered; and what
it costs to follow a guided token, without an engine.

`python -m bench.segments MODEL.gguf`. Both ask for the same number of tokens after the prompt; the
steered one is cut into two segments, so the second must find the prompt in the engine's cache.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.engine import Chunk, GenerateOptions, Guide
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.features.guides.steering import PIECES
from trt_responses.schema.compile import Forms
from trt_responses.schema.matching import Pieces
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine import Engine
    from trt_responses.tokens.vocabulary import Vocabulary

PROMPT_TOKENS = 2000
HALF = 16
REPEATS = 7
LEAST_CACHED = 0.95
NUMBER = Guide("regex", "[0-9]{64}")
"""Longer than the limit: both halves have the same number of tokens in either way."""


PERSON: dict[str, object] = {
    **{"name": "Johann Sebastian Bach", "age": 65, "city": "Leipzig in Saxony"},
    "tags": ["music", "organ", "counterpoint", "baroque and later"],
}
VALUES: dict[str, dict[str, object]] = {
    "a person": PERSON,
    "a long text": {"text": "Lorem ipsum dolor sit amet, consectetur elit. " * 40},
    "a list of people": {"people": [PERSON] * 20},
    "1,000 properties": {f"property_{n}": "some value" for n in range(1000)},
}
FOLLOWED = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians in milliseconds, and the least share of a second prompt that was cached."""

    whole_ms: float
    halves_ms: float
    guided_ms: float
    cached: float
    follow_us: Mapping[str, float]
    """Of processor time, per token, by the schema that is followed."""

    @property
    def segment_ms(self) -> float:
        """What one more segment costs."""
        return self.halves_ms - self.whole_ms

    @property
    def guide_ms(self) -> float:
        """What its guide costs on top, compiled before."""
        return self.guided_ms - self.halves_ms

    def lines(self) -> list[str]:
        return [
            f"one segment of {2 * HALF} tokens      {self.whole_ms:8.1f} ms",
            f"two segments of {HALF} tokens     {self.halves_ms:8.1f} ms",
            f"  the second one guided     {self.guided_ms:8.1f} ms",
            f"a segment adds {self.segment_ms:.1f} ms, its guide {self.guide_ms:.1f} ms; "
            f"{self.cached:.1%} of {PROMPT_TOKENS + HALF} prompt tokens cached",
            "to follow a guided token: "
            + ", ".join(f"{name} {us:.1f} µs" for name, us in self.follow_us.items()),
        ]


class _Answer:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.cached = 0
        self.end: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()

    def push(self, chunk: Chunk, /) -> None:
        self.ids += chunk.token_ids
        self.cached = chunk.cached_tokens or self.cached
        if chunk.finish is not None:
            self.end.set_result(chunk)


async def measure(gguf: Path) -> Figures:
    engine = LlamaCppEngine(gguf, context_tokens=4096, slots=1, threads=1)
    await engine.start()
    try:
        return await _measure(engine)
    finally:
        await engine.stop(5)


async def _measure(engine: Engine) -> Figures:
    prompts = [[300 + n, *range(1000, 1000 + PROMPT_TOKENS - 1)] for n in range(REPEATS)]
    await _ask(engine, prompts[0][:50], HALF, NUMBER)  # compiles the guide
    whole, halves, guided, cached = [], [], [], []
    for prompt in prompts:
        whole.append(await _timed(engine, prompt, (2 * HALF, None)))
        halves.append(await _timed(engine, [1, *prompt[1:]], (HALF, None), (HALF, None)))
        begin = [2, *prompt[1:]]
        guided.append(await _timed(engine, begin, (HALF, None), (HALF, NUMBER)))
        first = await _ask(engine, [3, *prompt[1:]], HALF, None)
        second = await _ask(engine, [3, *prompt[1:], *first.ids], HALF, NUMBER)
        cached.append(second.cached / (PROMPT_TOKENS + len(first.ids)))
    whole_ms, halves_ms, guided_ms = (
        1000 * statistics.median(times) for times in (whole, halves, guided)
    )
    return Figures(whole_ms, halves_ms, guided_ms, min(cached), followed())


def followed() -> dict[str, float]:
    """The cost of a token by schema, the least of several tries each."""
    vocabulary = vocabularies.load()
    forms = Forms(pieces=Pieces(vocabulary.token_bytes[:PIECES]))
    return {name: _follow_us(forms, vocabulary, value) for name, value in VALUES.items()}


def _follow_us(forms: Forms, vocabulary: Vocabulary, value: dict[str, object]) -> float:
    form = forms.form(_schema_of(value), "text.format.schema")
    text = json.dumps(value, separators=(",", ":"))
    pieces = [vocabulary.token_bytes[n] for n in vocabulary.encode_plain(text)]
    spent = []
    for _ in range(FOLLOWED):
        follower = form.follow()
        begun = time.thread_time()
        for piece in pieces:
            follower.feed(piece)
        spent.append(time.thread_time() - begun)
        assert follower.whole
    return min(spent) / len(pieces) * 1e6


def _schema_of(value: object) -> dict[str, object]:
    match value:
        case dict():
            properties = {name: _schema_of(inner) for name, inner in value.items()}
            closed = {"required": list(value), "additionalProperties": False}
            return {"type": "object", "properties": properties, **closed}
        case list():
            return {"type": "array", "items": _schema_of(value[0])}
        case int():
            return {"type": "integer"}
    return {"type": "string"}


async def _timed(
    engine: Engine, prompt: Sequence[int], *segments: tuple[int, Guide | None]
) -> float:
    begun, ids = time.perf_counter(), list(prompt)
    for tokens, guide in segments:
        ids += (await _ask(engine, ids, tokens, guide)).ids
    return time.perf_counter() - begun


async def _ask(engine: Engine, prompt: Sequence[int], tokens: int, guide: Guide | None) -> _Answer:
    answer = _Answer()
    options = GenerateOptions(tokens, (), temperature=0.0, guide=guide)
    engine.generate(prompt, options, answer)
    end = await answer.end
    if end.finish == "error":
        raise SystemExit(end.error)
    return answer


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    figures = asyncio.run(measure(Path(sys.argv[1])))
    print("\n".join(figures.lines()))
    if figures.cached < LEAST_CACHED:
        raise SystemExit(f"Less than {LEAST_CACHED:.0%} was cached.")


if __name__ == "__main__":
    main()
