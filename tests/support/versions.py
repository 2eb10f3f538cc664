"""Versions of an engine that a test loads: builds without files, engines with a fault, and an app
that has them."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import JSON, Client, living
from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, Served, script
from trt_responses.app import create_app
from trt_responses.engine import Chunk
from trt_responses.errors import StartupError
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.support.asgi import Call
    from trt_responses.engine import Engine, GenerateOptions, Handle, Health, Limits, Sink
    from trt_responses.features.rollout.builds import Act


def version(number: int) -> Version:
    return Version("demo", "scripted", number, f"{number:012x}")


@dataclass
class TestBuild:
    """A version, and what happens when it is loaded."""

    __test__ = False

    version: Version
    engine: Callable[[], Engine]
    why: str | None = None
    narrow: str | None = None
    """Why memory does not hold it beside another."""
    alone: str | None = None
    """Why memory does not hold it in the place of another, either."""

    def fault(self, beside: Version) -> str | None:
        return self.why

    def no_room(self, served: Version, *, beside: bool) -> str | None:
        return self.narrow if beside else self.alone

    def load(self) -> Loaded:
        return loaded(self.version, self.engine())


def loaded(version: Version, engine: Engine) -> Loaded:
    """A version whose card says which one it is."""
    return Loaded(version, engine, card={"version": version.label})


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
    before_promotion: Callable[[], None] = lambda: None
    """Runs in the thread that moves the pointer."""

    def versions(self) -> list[Version]:
        return [self.builds[number].version for number in sorted(self.builds, reverse=True)]

    def find(self, wanted: str | None, served: Version) -> TestBuild:
        if wanted is None:
            wanted = max(self.builds)
        wanted = wanted.lstrip("0")  # a digest here is the number with zeros before it
        if wanted not in self.builds:
            raise StartupError(f"Engine demo has no version {wanted}")
        return self.builds[wanted]

    def promote(self, version: Version, reason: str) -> None:
        if self.promoted == version.label:
            return
        self.before_promotion()
        if self.broken is not None:
            raise StartupError(self.broken)
        self.promoted = version.label
        self.journal.append(("promoted", version.label, reason))

    def note(self, act: Act, version: Version, reason: str) -> None:
        self.journal.append((act, version.label, reason))


class Faulty:
    """An engine with a fault: it takes `factor` times as long, `later_s` more for each step, or
    dies at the request `dies_at`, which it `mends` or does not. All else is the other engine's."""

    def __init__(
        self,
        engine: Engine,
        *,
        factor: float = 1.0,
        later_s: float = 0.0,
        dies_at: int | None = None,
        mends: bool = False,
        kill: Callable[[], object] | None = None,
    ) -> None:
        self._engine = engine
        self._factor = factor
        self._later_s = later_s
        self._dies_at = dies_at
        self._mends = mends
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
        if self._mends:
            return replace(health, restarts=int(self.dead))
        return replace(health, alive=False, ready=False, reason="burnt") if self.dead else health

    def limits(self) -> Limits:
        return self._engine.limits()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        self._requests += 1
        if self._requests == self._dies_at:
            if self._kill is not None:
                sink = Kills(sink, self._kill)
            else:
                self.dead = True
                if not self._mends:
                    return Dead(sink)
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


class Kills:
    """A sink that kills the engine when the first of an answer has come."""

    def __init__(self, sink: Sink, kill: Callable[[], object]) -> None:
        self._sink = sink
        self._kill: Callable[[], object] | None = kill

    def push(self, chunk: Chunk, /) -> None:
        if self._kill is not None:
            self._kill()
            self._kill = None
        self._sink.push(chunk)


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


ADMIN = JSON | {"authorization": "Bearer boss"}


def scripted(
    text: str = ANSWER, *, manual: bool = False, adapters: tuple[str, ...] = ()
) -> ScriptedEngine:
    clock = StepClock.manual(settle_turns=40) if manual else StepClock.free()
    return ScriptedEngine(lambda *_: script(text), clock=clock, adapters=adapters)


class Exchanged(Served):
    """An app whose engine has versions."""

    builds: TestBuilds
    first: Faulty
    """The engine of version 1."""

    async def load(self, act: str = "load", **body: Any) -> Call:
        sent = orjson.dumps(body)
        return await self.client.send("POST", f"/admin/engines/demo/{act}", sent, ADMIN)

    async def version(self, **body: Any) -> str:
        """The version that makes a response to this."""
        headers = JSON | {"x-session-id": body.pop("session")} if "session" in body else JSON
        sent = orjson.dumps({"model": "demo", "input": "Hello!"} | body)
        reply = await self.client.send("POST", "/v1/responses", sent, headers)
        assert reply.status == 200, reply.body
        return reply.headers["x-trt-engine"]

    async def explained(self, response_id: str) -> str:
        """The version that an explanation of a response names."""
        told = await self.client.get(f"/v1/responses/{response_id}/explain")
        made_by: str = told.json()["engine"]["version"]
        return made_by


def app_with(
    tmp_path: Path,
    *builds: Callable[[], Any],
    first: ScriptedEngine | None = None,
    **settings: object,
) -> tuple[Any, TestBuilds, Faulty]:
    """An app that serves version 1 and may load 2, 3, …, with its builds and its first engine."""
    prompts = tmp_path / "gate.jsonl"
    prompts.write_text('{"input": "Hello!"}\n' * 4, "utf-8")
    held = TestBuilds(
        {str(n): TestBuild(version(n), engine) for n, engine in enumerate(builds, 2)}
        | {"1": TestBuild(version(1), scripted)}
    )
    given = {"admin_key": "boss", "data_dir": tmp_path, "engines_dir": tmp_path}
    old = Faulty(first or scripted())
    app = create_app(
        Settings(**(SETTINGS | given | settings)), given=Given(loaded(version(1), old), held)
    )
    return app, held, old


@asynccontextmanager
async def exchanged(
    tmp_path: Path,
    *builds: Callable[[], Any],
    first: ScriptedEngine | None = None,
    **settings: object,
) -> AsyncIterator[Exchanged]:
    engine = first or scripted()
    app, held, old = app_with(tmp_path, *builds, first=engine, **settings)
    async with living(app):
        s = Exchanged(Client(app, lambda: engine.clock.steps), engine, app)
        s.builds, s.first = held, old
        yield s
