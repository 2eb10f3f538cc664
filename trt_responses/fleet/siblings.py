"""What the front ends of a fleet have counted, from any of them.

Each answers on a socket of its own with its numbers, and has first written them to a file: from
there its successor goes on, so that no count goes back when a front end dies. Knows numbers and
their names; knows no metric's meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson

from trt_responses.features.metrics.families import Kind
from trt_responses.features.metrics.metrics import Metrics, Samples, added

PATIENCE_S = 1.0
"""Seconds that a sibling may take to answer; then its last numbers count."""
COUNTS: frozenset[Kind] = frozenset({"counter", "histogram"})
"""The kinds of numbers that last when a front end has died."""


class Siblings:
    """One of `count` front ends, and its way to the numbers of the others."""

    def __init__(self, folder: Path, number: int, count: int, metrics: Metrics) -> None:
        self._folder = folder
        self._number = number
        self._others = [other for other in range(count) if other != number]
        self._metrics = metrics
        self._before = _read(self._file(number))
        """The numbers that processes in this place had counted before they died."""

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Answer the others for as long as the context lasts."""
        path = self._socket(self._number)
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._answer, path)
        try:
            yield
        finally:
            server.close()
            self._keep()

    async def others(self) -> list[Samples]:
        """The numbers of the other front ends, to be added to those of this process."""
        self._keep()
        others = await asyncio.gather(*map(self._ask, self._others))
        return [self._before, *others]

    def _keep(self) -> None:
        part = self._file(self._number).with_suffix(".part")
        part.write_bytes(orjson.dumps(added(self._before, self._metrics.samples(COUNTS))))
        part.replace(self._file(self._number))

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep()
        writer.write(orjson.dumps(added(self._before, self._metrics.samples())))
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async def _ask(self, other: int) -> Samples:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(self._socket(other))
                try:
                    samples: Samples = orjson.loads(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, orjson.JSONDecodeError):
            return _read(self._file(other))
        return samples

    def _socket(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"


def _read(path: Path) -> Samples:
    try:
        samples: Samples = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return samples
