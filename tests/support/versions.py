"""Versions of an engine that a test loads: builds without files, and engines with a fault."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trt_responses.engine.base import Chunk
from trt_responses.errors import StartupError
from trt_responses.response.versions.versions import Loaded, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.engine.base import Engine, GenerateOptions, Handle, Health, Limits, Sink
    from trt_responses.response.versions.exchange import Act


def version(number: int) -> Version:
    return Version("demo", "scripted", number, f"{number:012x}")


@dataclass
class TestBuild:
    """A version, and what happens when it is loaded."""

    __test__ = False

    version: Version
    engine: Callable[[], Engine]
    why: str | None = None

    def fault(self, beside: Version) -> str | None:
        return self.why

    def load(self) -> Loaded:
        return Loaded(self.version, self.engine())


@dataclass
class TestBuilds:
    """Builds in memory, with their pointer and their journal."""

    __test__ = False

    builds: dict[str, TestBuild] = field(default_factory=dict)
    name: str = "demo"
    promoted: str = "demo@1"
    journal: list[tuple[str, str, str]] = field(default_factory=list)
    broken: str | None = None
    """Why the pointer cannot be moved."""

    def find(self, wanted: str | None, served: Version) -> TestBuild:
        if wanted is None:
            wanted = max(self.builds)
        if wanted not in self.builds:
            raise StartupError(f"engine 'demo@{wanted}': found no version {wanted}")
        return self.builds[wanted]

    def promote(self, version: Version, reason: str) -> None:
        if self.broken is not None:
            raise StartupError(self.broken)
        self.promoted = version.label
        self.journal.append(("promoted", version.label, reason))

    def note(self, act: Act, version: Version, reason: str) -> None:
        self.journal.append((act, version.label, reason))


class Faulty:
    """An engine with a fault: it takes `factor` times as long, `later_s` more for each step, or
    dies at the request `dies_at`. All else is the other engine's."""

    def __init__(
        self,
        engine: Engine,
        *,
        factor: float = 1.0,
        later_s: float = 0.0,
        dies_at: int | None = None,
        kill: Callable[[], object] | None = None,
    ) -> None:
        self._engine = engine
        self._factor = factor
        self._later_s = later_s
        self._dies_at = dies_at
        self._kill = kill
        self._requests = 0
        self.dead = False
        self.stopped = False

    async def start(self) -> None:
        await self._engine.start()

    async def stop(self, deadline_s: float) -> None:
        self.stopped = True
        await self._engine.stop(deadline_s)

    def health(self) -> Health:
        health = self._engine.health()
        return replace(health, alive=False, ready=False, reason="burnt") if self.dead else health

    def limits(self) -> Limits:
        return self._engine.limits()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        self._requests += 1
        if self._requests == self._dies_at:
            if self._kill is None:
                self.dead = True
                return Dead(sink)
            self._kill()
        if self._factor == 1 and not self._later_s:
            return self._engine.generate(prompt_ids, options, sink)
        slow = Slow(sink, self._factor, self._later_s)
        slow.inner = self._engine.generate(prompt_ids, options, slow)
        return slow


class Dead:
    """A request to an engine that dies of it."""

    def __init__(self, sink: Sink) -> None:
        chunk = Chunk(finish="error", error="The engine died.")
        self._call = asyncio.get_running_loop().call_soon(sink.push, chunk)

    def abort(self) -> None:
        self._call.cancel()


class Slow:
    """A sink that passes on later what comes, in order, and its handle."""

    inner: Handle

    def __init__(self, sink: Sink, factor: float, later_s: float) -> None:
        self._sink = sink
        self._factor = factor
        self._later_s = later_s
        self._began_s = time.monotonic()
        self._chunks = 0
        self._calls: set[asyncio.TimerHandle] = set()

    def push(self, chunk: Chunk, /) -> None:
        self._chunks += 1
        took_s = time.monotonic() - self._began_s
        wait_s = took_s * (self._factor - 1) + self._chunks * self._later_s
        self._calls.add(asyncio.get_running_loop().call_later(wait_s, self._sink.push, chunk))

    def abort(self) -> None:
        self.inner.abort()
        for call in self._calls:
            call.cancel()
