"""A fleet in one process: its versions, engines behind sockets, and front ends that follow it."""

from __future__ import annotations

import asyncio
import itertools
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import Client, living
from tests.support.cards import carded
from tests.support.served import SETTINGS
from tests.support.versions import ADMIN
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.engines.remote.server import EngineServer
from trt_responses.features.rollout.shelf_builds import PreparedBuilds, loaded
from trt_responses.fleet.following import Following
from trt_responses.fleet.versions import FleetVersions, OwnEngine
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import read_card
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.asgi import Call
    from trt_responses.engine import Engine
    from trt_responses.features.rollout.loaded import Version
    from trt_responses.features.rollout.shelf_builds import PreparedBuild
    from trt_responses.prepare.shelf.shelf import Selection


class Process:
    """What stands for an engine's process: an engine at a socket."""

    numbers = itertools.count()

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.engine = engine
        self.path = ""
        self.alive = True
        self.pid: int | None = None
        self.fault: str | None = None
        self.stopped = asyncio.Event()
        self._folder = folder
        self._lost = asyncio.Event()
        self._server = EngineServer(engine, __version__)
        self._listening = socket.socket(socket.AF_UNIX)

    async def start(self) -> None:
        self.pid = next(self.numbers)
        self.path = str(self._folder / f"{self.pid}.sock")
        self._listening.bind(self.path)
        self._listening.listen()
        await self.engine.start()
        await self._server.start(self._listening)

    async def stop(self, deadline_s: float) -> None:
        self.stopped.set()
        await self.engine.stop(deadline_s)
        await self._server.stop()

    async def give_up(self, why: str) -> None:
        """End, as a process that is not restarted any more."""
        self.alive, self.fault = False, why
        self._lost.set()
        await self._server.stop()

    async def why(self, deadline_s: float) -> str:
        return self.fault or "it gave no reason"

    async def lost(self) -> str:
        await self._lost.wait()
        return self.fault or ""


class Narrow:
    """Prepared versions of which memory holds one at a time, for a reason."""

    def __init__(self, builds: PreparedBuilds, why: str | None) -> None:
        self.name, self.versions = builds.name, builds.versions
        self.promote, self.note = builds.promote, builds.note
        self._builds = builds
        self._why = why

    def find(self, wanted: str | None, served: Version) -> NarrowBuild:
        return NarrowBuild(self._builds.find(wanted, served), self._why)


class NarrowBuild:
    """One of them."""

    def __init__(self, build: PreparedBuild, why: str | None) -> None:
        self.version, self.fault, self.load = build.version, build.fault, build.load
        self._why = why

    def no_room(self, served: Version, *, beside: bool) -> str | None:
        return self._why if beside else None


class FrontEnd:
    """One server of the fleet."""

    def __init__(self, client: Client, app: Any) -> None:
        self.client = client
        self.app = app

    async def act(self, act: str, **body: Any) -> Call:
        return await self.client.send(
            "POST", f"/admin/engines/mine/{act}", orjson.dumps(body), ADMIN
        )

    async def state(self) -> dict[str, Any]:
        return (await self.client.send("GET", "/admin/engines/mine", headers=ADMIN)).json()

    async def version(self, **fields: Any) -> str:
        """The version that makes a response to this."""
        reply = await self.client.create(model="mine", **fields)
        assert reply.status == 200, reply.body
        return reply.headers["x-trt-engine"]


class Fleet:
    """The versions, and front ends that begin and end."""

    def __init__(self, folder: Path, *engines: Callable[[], Engine], narrow: str | None) -> None:
        self.processes: list[Process] = []
        """All that were begun, in their order."""
        self.killed: list[int] = []
        self.faults: list[str] = []
        self.folder = folder
        self._engines = engines
        prompts = folder / "gate.jsonl"
        prompts.write_text('{"input": "Hello!"}\n' * 2, "utf-8")
        given = {"engines_dir": folder, "model": "mine", "admin_key": "boss", "store": "memory"}
        given |= {"data_dir": folder}
        self.settings = Settings(**(SETTINGS | given))
        for number in range(1, len(engines) + 1):
            self._build(number)
        selection = shelf.Selection(*self._on_shelf("mine@1"), "the first")
        builds = PreparedBuilds("mine", self.settings, self._engine_of)
        self.versions = FleetVersions(
            loaded(selection, self.settings, self._engine_of),
            Narrow(builds, narrow),
            fail=self.faults.append,
            kill=self.killed.append,
        )

    def _build(self, number: int) -> None:
        home = self.folder / "mine"
        home.mkdir(exist_ok=True)
        digest = f"{number:012x}"
        assert versions.new_number(home, digest) == number
        libraries = {"xllamacpp": installed("xllamacpp")}
        card, _ = carded(self.folder, version=digest, number=number, libraries=libraries)
        versions.promote_first(home, [card])

    def _on_shelf(self, name: str) -> tuple[Path, Any]:
        directory = shelf.find(self.folder, name)
        return directory, read_card(directory)

    def _engine_of(self, selection: Selection, settings: Settings) -> OwnEngine:
        number = selection.card.number
        assert number is not None
        self.processes.append(Process(self.folder, self._engines[number - 1]()))
        return OwnEngine(self.processes[-1])  # type: ignore[arg-type]

    @asynccontextmanager
    async def front_end(self, number: int) -> AsyncIterator[FrontEnd]:
        place = self.versions.began(number)
        chosen = self.settings.model_copy(update={"engine": f"mine@{place['digest']}"})
        following = Following(self.folder, number, chosen, "mine")
        given = Given(new_acts=following.over)
        app = create_app(chosen, engine_of=lambda *_: following.engine(place["path"]), given=given)
        try:
            async with living(app):
                yield FrontEnd(Client(app), app)
        finally:
            self.versions.ended(number)


@asynccontextmanager
async def fleet(
    folder: Path, *engines: Callable[[], Engine], narrow: str | None = None
) -> AsyncIterator[Fleet]:
    """A fleet that serves the first of these versions, and may load the others."""
    made = Fleet(folder, *engines, narrow=narrow)
    async with made.versions.life(folder):
        await made.versions.start()
        yield made
        made.versions.drain()


@asynccontextmanager
async def two(made: Fleet) -> AsyncIterator[tuple[FrontEnd, FrontEnd]]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(made.front_end(0))
        yield first, await stack.enter_async_context(made.front_end(1))
