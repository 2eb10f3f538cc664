"""What a server costs beside its tokens: the way to the first one, prompts, and hostile texts.

All in this process. How long the event loop was held is CPU time too, between two of its turns.
"""

from __future__ import annotations

import asyncio
import base64
import random
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.asgi import living, post, scrape
from bench.asks import BODY, MANY_TOOLS, TOOLS, body_with
from bench.floor import floor
from bench.ours import Playing
from bench.script import prose, script
from bench.timing import cpu_ns
from trt_responses.backends.dialects import spelled
from trt_responses.errors import InvalidRequest
from trt_responses.harmony.write.render import Renderer, kept
from trt_responses.language.messages import Developer, Message, System
from trt_responses.stores.limits import Bounds
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp

    from trt_responses.store import Kind
    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary

CONTEXT_TOKENS = 131_072
CONVERSATION_TOKENS = 100_000
TURN_TOKENS = 215
FIRST_DELTAS = 100
SCRAPES = 100
SCRAPE_STREAMS, SCRAPE_ROUNDS = 64, 4
SCRAPE_EVERY_NS = 50_000_000
"""Twenty a second, as a router asks."""
SCRAPE_LOOK_S = 0.002
SYSTEM = System("You are a harbour master.", "2024-06", "2026-01-01", "medium", False)
DEVELOPER = Developer("Answer as a harbour master would: short, and with numbers.")


@dataclass(frozen=True, slots=True)
class FirstDelta:
    """CPU time from the request to its first delta, in µs, over SQLite. The least of each: whatever
    disturbs one makes it longer."""

    floor_us: float
    ours_us: float
    with_tools_us: float
    """With five function tools and instructions."""
    with_many_tools_us: float
    """With fifty."""


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What `/metrics` costs a server that streams."""

    lines: int
    one_us: float
    """CPU time of one, the median."""
    share: float
    """CPU time of 64 streams with twenty scrapes a second, by that without: median of the pairs."""


@dataclass(frozen=True, slots=True)
class NextTurn:
    """The prompt of a long conversation: all of it for the first time, and its next turn."""

    tokens: int
    cold_us: float
    next_us: float
    longest_hold_us: float
    """Of the cold one: how long the loop was kept from everybody else."""

    @property
    def share(self) -> float:
        return self.next_us / self.cold_us


@dataclass(frozen=True, slots=True)
class Trap:
    """A text that a quadratic tokeniser would not survive."""

    name: str
    tokens: int
    total_us: float
    """Of the whole of it, with nothing that bounds it."""
    longest_hold_us: float
    """As served: where the context bounds it."""
    unbounded_hold_us: float


async def first_delta(vocabulary: Vocabulary, length: int) -> FirstDelta:
    words = script(vocabulary, length)
    base = floor(vocabulary, words, 1)
    with tempfile.TemporaryDirectory() as folder:
        playing = Playing(SqliteStore(Path(folder) / "history.db", Bounds(), spell=spelled()))
        playing.play(words, 1)
        ours: ASGIApp = playing.app
        asks = (BODY, body_with(TOOLS), body_with(MANY_TOOLS))
        runs = ((base, BODY), *((ours, body) for body in asks))
        times: list[list[float]] = [[] for _ in runs]
        async with living(ours):
            for _ in range(FIRST_DELTAS):
                for seconds, (app, body) in zip(times, runs, strict=True):
                    seconds.append(await _to_first_delta(app, body))
    return FirstDelta(*map(min, times))


async def _to_first_delta(app: ASGIApp, body: bytes) -> float:
    first_ns: list[int] = []

    def look(part: bytes) -> None:
        if not first_ns and b".delta" in part:
            first_ns.append(cpu_ns())

    start_ns = cpu_ns()
    await post(app, body, look)
    return (first_ns[0] - start_ns) / 1000


async def scrapes(vocabulary: Vocabulary, playing: Playing, length: int, repeats: int) -> Scrapes:
    playing.play(script(vocabulary, length), 1)
    app: ASGIApp = playing.app
    await _streams(app)
    lines = (await scrape(app)).count(b"\n")
    times, shares = [], []
    for _ in range(SCRAPES):
        start_ns = cpu_ns()
        await scrape(app)
        times.append((cpu_ns() - start_ns) / 1000)
    for _ in range(repeats):
        without_ns = await _streams(app)
        scraping = asyncio.create_task(_scrape_on(app))
        shares.append(await _streams(app) / without_ns)
        scraping.cancel()
    return Scrapes(lines, statistics.median(times), statistics.median(shares))


async def _streams(app: ASGIApp) -> int:
    """CPU time of many responses at once."""
    start_ns = cpu_ns()
    for _ in range(SCRAPE_ROUNDS):
        await asyncio.gather(*(post(app, BODY, len) for _ in range(SCRAPE_STREAMS)))
    return cpu_ns() - start_ns


async def _scrape_on(app: ASGIApp) -> None:
    """Timed by the process's own time, so that a busy neighbour does not make them more."""
    while True:
        due_ns = cpu_ns() + SCRAPE_EVERY_NS
        await scrape(app)
        while cpu_ns() < due_ns:  # noqa: ASYNC110 - the event would be the clock
            await asyncio.sleep(SCRAPE_LOOK_S)


async def next_turn(vocabulary: Vocabulary, tokeniser: Tokeniser, repeats: int) -> NextTurn:
    """Medians; each repeat with a renderer that has seen nothing."""
    texts = _turns(vocabulary)
    messages = [
        Message("user", text) if place % 2 == 0 else Message("assistant", text, channel="final")
        for place, text in enumerate(texts)
    ]
    kinds: list[Kind] = ["user" if m.role == "user" else "final" for m in messages]
    cold, warm, holds = [], [], []
    tokens = 0
    for repeat in range(repeats):
        renderer = Renderer(vocabulary, tokeniser)
        blocks: list[bytes] = []
        spent_us, hold_us = await _timed(_prompt(renderer, messages, kinds, blocks))
        cold.append(spent_us)
        holds.append(hold_us)
        added = [Message("user", f"And at {repeat} o'clock? {texts[repeat]}")]
        spent_us, _ = await _timed(_prompt(renderer, added, [*kinds, "user"], blocks))
        warm.append(spent_us)
        tokens = sum(map(len, blocks)) // 4
    return NextTurn(
        tokens, statistics.median(cold), statistics.median(warm), statistics.median(holds)
    )


async def _prompt(
    renderer: Renderer, messages: list[Message], kinds: list[Kind], blocks: list[bytes]
) -> None:
    """As a run does it: known messages are blocks, new ones are rendered, then all are joined."""
    blocks += [(await renderer.message(message)).tobytes() for message in messages]
    chosen = [block for block, keep in zip(blocks, kept(kinds), strict=True) if keep]
    renderer.join(await renderer.system(SYSTEM), await renderer.developer(DEVELOPER), chosen)


def _turns(vocabulary: Vocabulary) -> list[str]:
    running = prose(vocabulary, CONVERSATION_TOKENS)
    return [
        vocabulary.text(running[at : at + TURN_TOKENS])
        for at in range(0, len(running), TURN_TOKENS)
    ]


def trap_texts() -> dict[str, str]:
    chance = random.Random(2024)
    return {
        "160,000 × a": "a" * 160_000,
        "40,000 CJK characters": "".join(
            chr(chance.randrange(0x4E00, 0x9FA5)) for _ in range(40_000)
        ),
        "40,000 emoji": "".join(chance.choice("🌊🚩🧭🦭🪢⛵🌬🐚") for _ in range(40_000)),
        "10 MB of base64": base64.b64encode(chance.randbytes(7_500_000)).decode(),
    }


async def trap(tokeniser: Tokeniser, name: str, text: str) -> Trap:
    counts: list[int] = []

    async def encode(at_most: int | None = None) -> None:
        with suppress(InvalidRequest):
            counts.append(len(await tokeniser.encode(text, at_most=at_most)))

    total_us, unbounded_us = await _timed(encode())
    _, served_us = await _timed(encode(CONTEXT_TOKENS))
    return Trap(name, counts[0], total_us, served_us, unbounded_us)


async def _timed(work: Awaitable[None]) -> tuple[float, float]:
    """CPU time in all, and the longest that the loop was held; both in µs."""
    longest_ns = 0

    async def watch() -> None:
        nonlocal longest_ns
        before = time.thread_time_ns()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time_ns()
            longest_ns = max(longest_ns, now - before)
            before = now

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    start_ns = time.thread_time_ns()
    await work
    spent_ns = time.thread_time_ns() - start_ns
    await asyncio.sleep(0)
    watching.cancel()
    return spent_ns / 1000, longest_ns / 1000
