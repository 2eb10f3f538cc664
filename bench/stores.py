"""What each kind of store costs: `python -m bench.stores`, about a minute.

A record is that of a response of 64 and 448 tokens, the next turn of a conversation that goes on.
Times are wall times, for a disk and a server are waited for; how long the event loop was held is
the CPU time of its thread between two of its turns. Redis is left out where there is none.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from array import array
from base64 import b64encode
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from bench.script import ANALYSIS_TOKENS, LENGTHS, prose
from tests.support import postgres_server
from trt_responses.features.encryption.keys import StoreKeys
from trt_responses.features.encryption.store import EncryptedStore
from trt_responses.serve.server import freeze_heap
from trt_responses.store import Block, Record
from trt_responses.stores.at_rest.blocks import pack
from trt_responses.stores.at_rest.spelled import Spelled
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.sqlite.store import SqliteStore
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from trt_responses.stores.whole import Spell, WholeStore
    from trt_responses.tokens.vocabulary import Vocabulary

KINDS = ("memory", "sqlite", "sqlite full", "redis", "postgres")
ENCRYPTED = ", encrypted"
ROWS = (*KINDS, f"sqlite{ENCRYPTED}", f"postgres{ENCRYPTED}")
KEY = b64encode(bytes(32))
RECORDS, TURNS, AT_ONCE = 1000, 10, 64
LONG_BLOCKS, LARGE_BYTES = 1000, 4 * 1024 * 1024
HOLD_GOAL_US = 5_000
BOUNDS = Bounds(max_records=10**6)
UP = "ready to accept connections"


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    cpu_us: float
    """Of this process for a put, 64 of them under way; a database's own is apart."""
    puts_s: float
    """Records a second, 64 of them under way."""
    gets_s: float
    p50_us: float
    """Of a put alone, which a response's end waits for."""
    p99_us: float
    loaded_p99_us: float
    """Of a put among 64."""
    hold_us: float
    """The longest that the event loop was held by one put."""
    hard_hold_us: float
    """The same with a conversation of 1,000 messages, and with one message of 4 MiB."""


class Answers:
    """Turns of conversations, each of which has another answer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._running = prose(vocabulary, 60_000)
        self._count = 0

    def records(self, prefix: str) -> Iterator[Record]:
        """Conversations of ten turns, one after the other; each goes on where the last ended."""
        blocks: tuple[Block, ...] = ()
        while True:
            if self._count % TURNS == 0:
                blocks = ()
            written = (self._block("user", 40), self._block("reasoning", ANALYSIS_TOKENS))
            record = self._record(prefix, blocks, (*written, self._block("final", LENGTHS[0])))
            yield record
            blocks = tuple(_as_read(block) for block in record.blocks)

    def _block(self, kind: str, tokens: int) -> Block:
        self._count += 1
        at = self._count * 997 % (len(self._running) - tokens)
        ids = self._running[at : at + tokens]
        text = self._vocabulary.text(ids)
        item = {"id": f"msg_{self._count:048x}", "type": "message", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
        message = array("I", (CONTROL.start, CONTROL.message, *ids, CONTROL.end))
        return Block(kind, bytes(orjson.dumps(item)), message.tobytes())  # type: ignore[arg-type]

    def _record(self, prefix: str, prior: tuple[Block, ...], own: tuple[Block, ...]) -> Record:
        name = f"resp_{prefix}{self._count:040x}"
        body = {"id": name, "object": "response", "output": [orjson.loads(b.item) for b in own[1:]],
                "tools": [], "usage": {"input_tokens": 60, "output_tokens": 512}}  # fmt: skip
        now = int(time.time())
        return Record(
            name, "ann", orjson.dumps(body), (*prior, *own), len(prior), 1, True, "2026-01-01", now
        )


def _as_read(block: Block) -> Block:
    """As it comes from a store when a conversation goes on: with the name of its content."""
    return block if block.digest else replace(block, digest=pack(block).digest)


class Holds:
    """Takes a turn of the loop whenever it can: what came between two turns held it."""

    def __init__(self) -> None:
        self.longest_us = 0.0
        self._last = 0
        self._on = False

    def __enter__(self) -> Holds:
        self._on, self._last = True, time.thread_time_ns()
        asyncio.get_running_loop().call_soon(self._turn)
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False

    def _turn(self) -> None:
        if not self._on:
            return
        now = time.thread_time_ns()
        self.longest_us = max(self.longest_us, (now - self._last) / 1000)
        self._last = now
        asyncio.get_running_loop().call_soon(self._turn)


async def row(kind: str, store: WholeStore, answers: Answers) -> Row:
    await store.start()
    records = list(islice(answers.records("a"), RECORDS))
    alone = list(islice(answers.records("b"), RECORDS // 2))
    await _timed(store.put, list(islice(answers.records("w"), 2 * AT_ONCE)))
    freeze_heap()  # as a server does when it has started
    begun_s = time.process_time()
    loaded, puts_s = await _timed(store.put, records)
    cpu_us = (time.process_time() - begun_s) / RECORDS * 1e6
    _, gets_s = await _timed(lambda each: store.get(each.id, each.owner), records[-500:])
    with Holds() as holds:
        single = [await _alone(store.put, record) for record in alone]
    hard = await _hard(store)
    await store.stop()
    gc.unfreeze()
    ordinary = statistics.quantiles(single, n=100)
    return Row(
        kind, cpu_us, puts_s, gets_s, ordinary[49], ordinary[98],
        statistics.quantiles(loaded, n=100)[98], holds.longest_us, hard,
    )  # fmt: skip


async def _timed(
    do: Callable[[Record], Awaitable[object]], records: list[Record]
) -> tuple[list[float], float]:
    """Each one's time in µs, and how many there were a second, with 64 under way."""
    left, times = iter(records), list[float]()

    async def worker() -> None:
        for record in left:
            times.append(await _one(do, record))

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return times, len(records) / (time.perf_counter() - begun)


async def _one(do: Callable[[Record], Awaitable[object]], record: Record) -> float:
    begun = time.perf_counter()
    await do(record)
    return (time.perf_counter() - begun) * 1e6


async def _alone(do: Callable[[Record], Awaitable[object]], record: Record) -> float:
    await asyncio.sleep(0)  # a turn of the loop for each
    return await _one(do, record)


async def _hard(store: WholeStore) -> float:
    """A long conversation and a large message, put and read: what would hold the loop longest."""
    noise = os.urandom(1024)
    long = tuple(Block("user", noise + bytes([n % 251]) * n, noise) for n in range(LONG_BLOCKS))
    large = (Block("user", noise * (LARGE_BYTES // 1024), b""),)
    with Holds() as holds:
        for name, blocks in (("long", long), ("large", large)):
            now = int(time.time())
            record = Record(name, "ann", b"{}", blocks, 0, len(blocks), True, "2026-01-01", now)
            await store.put(record)
            await store.get(name, "ann")
    return holds.longest_us


@asynccontextmanager
async def opened(kind: str, spell: Spell) -> AsyncIterator[WholeStore | None]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        match kind:
            case "memory":
                yield MemoryStore(BOUNDS, spell=spell)
            case "sqlite":
                yield SqliteStore(folder / "history.db", BOUNDS, spell=spell)
            case "sqlite full":
                yield SqliteStore(folder / "history.db", BOUNDS, synchronous="full", spell=spell)
            case "redis":
                yield await _redis(folder, stack, spell)
            case _:
                yield _postgres(stack, spell)


async def _redis(folder: Path, stack: AsyncExitStack, spell: Spell) -> WholeStore | None:
    if shutil.which("redis-server") is None:
        return None
    from trt_responses.stores.redis.store import RedisStore

    socket = folder / "socket"
    server = subprocess.Popen(  # noqa: ASYNC220  # nothing else runs yet
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir",
         str(folder)], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stack.callback(server.wait)
    stack.callback(server.kill)
    assert server.stdout is not None
    stack.callback(server.stdout.close)
    if not any(UP in line.lower() for line in server.stdout):
        return None
    return RedisStore(f"unix://{socket}", spell=spell)


def _postgres(stack: AsyncExitStack, spell: Spell) -> WholeStore | None:
    if not postgres_server.PROGRAMS or find_spec("psycopg") is None:
        return None
    from trt_responses.stores.postgres.store import PostgresStore

    server = stack.enter_context(postgres_server.running(autovacuum="on", shared_buffers="128MB"))
    return PostgresStore(server.url, spell=spell)


def encrypted(store: WholeStore, spell: Spell) -> WholeStore:
    return cast("WholeStore", EncryptedStore(store, StoreKeys(lambda: KEY), spell))


async def measured_rows() -> list[Row]:
    vocabulary = vocabularies.load()
    answers, measured = Answers(vocabulary), list[Row]()
    spell = Spelled(vocabulary, Pieces(vocabulary))
    for kind in ROWS:
        async with opened(kind.removesuffix(ENCRYPTED), spell) as store:
            if store is not None:
                sealed = encrypted(store, spell) if kind.endswith(ENCRYPTED) else store
                measured.append(await row(kind, sealed, answers))
    return measured


# --- telling ----------------------------------------------------------------------------------


def table(measured: list[Row]) -> Table:
    shown = Table(title="Stores: records of 512 tokens, ten turns a conversation")
    for name in ("kind", "CPU µs", "× sqlite", "puts/s", "gets/s", "p50 µs", "× memory", "p99 µs",
                 "… of 64", "held ms", "… hard"):  # fmt: skip
        shown.add_column(name, justify="right")
    base = measured[0].p50_us
    cpu_us = next(each.cpu_us for each in measured if each.kind == "sqlite")
    for each in measured:
        shown.add_row(
            each.kind,
            f"{each.cpu_us:,.0f}",
            f"{each.cpu_us / cpu_us:.2f}",
            f"{each.puts_s:,.0f}",
            f"{each.gets_s:,.0f}",
            f"{each.p50_us:,.0f}",
            f"{each.p50_us / base:.1f}",
            *(f"{us:,.0f}" for us in (each.p99_us, each.loaded_p99_us)),
            _judged(each.hold_us / 1000, HOLD_GOAL_US / 1000),
            _judged(each.hard_hold_us / 1000, HOLD_GOAL_US / 1000),
        )
    return shown


def _judged(measured: float, goal: float) -> str:
    colour = "green" if measured <= goal else "red"
    return f"[{colour}]{measured:.1f}[/]"


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(measured_rows())
    Console().print(table(measured))


if __name__ == "__main__":
    main()
