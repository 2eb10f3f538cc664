"""A server while it is put together: what the core needs, and what its folders bring.

Each folder of `features/` and `apis/` has a module `install` with one function of that name, which
is called with the server before its parts are made. Three rules bind it:

1. It starts nothing. What lives as long as the server goes to `lives`.
2. It adds to the lists and replaces what stands for it: the engine, the admission, the leases.
3. What needs the parts or the runs waits for `when_built`. Another folder's part is found by
   its class, with `of`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from trt_responses import __version__
from trt_responses.accept.model_names import ModelNames
from trt_responses.accept.responses import accept
from trt_responses.backends.dialects import spelled
from trt_responses.backends.settings import EngineSettings
from trt_responses.backends.stores import store_of
from trt_responses.backends.tools import tools_of
from trt_responses.errors import StartupError, UsageError
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.run.admission import OpenAdmission
from trt_responses.run.parts import Parts, mint
from trt_responses.run.runs import Runs
from trt_responses.steering.steering import Steering
from trt_responses.stores.whole import whole_store
from trt_responses.tasks import beside
from trt_responses.web.guard import own_alone
from trt_responses.web.headers import ReplyHeaders
from trt_responses.web.stream.keepalive import KeepAlive
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.wire import parse
from trt_responses.wire.request import Request as CreateRequest

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from trt_responses.accept.accepted import Accepted
    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine
    from trt_responses.feature import Feature
    from trt_responses.features.references.sealed import Sealing
    from trt_responses.prompt.carrier import Carrier
    from trt_responses.run.admission import Admission
    from trt_responses.run.facts import Listener
    from trt_responses.run.generation import Recorder
    from trt_responses.run.parts import Leases, NewChance, Overflow, Recovery, Translation
    from trt_responses.settings import Settings
    from trt_responses.setup.engine import Served
    from trt_responses.store import Store
    from trt_responses.tool import Tool
    from trt_responses.web.guard import Keys
    from trt_responses.web.jobs import Jobs
    from trt_responses.web.middleware import Ended
    from trt_responses.web.repeats import Repeats
    from trt_responses.web.shared import Routes, Steps
    from trt_responses.wire.dialect import Dialect as Spelling
    from trt_responses.wire.fields import Field
    from trt_responses.wire.limits import RequestLimits

    NewSteps = Callable[[RequestLimits, Mapping[str, Sequence[str]]], Steps]
    Life = Callable[[], AbstractAsyncContextManager[object]]

T = TypeVar("T")


DAY_S = 86_400
LOOKS = 4
"""The looks at the engine in each `stall_s`; there is at least one a second."""


@lru_cache(maxsize=1)
def _date_of(day: int) -> str:
    """The date of a day since the epoch, in UTC."""
    return datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d")


class Reading(NamedTuple):
    """A number that metrics ask for at each scrape."""

    name: str
    help_text: str
    read: Callable[[], float]
    kind: Literal["gauge", "counter"] = "gauge"


class LabelledReading(NamedTuple):
    """Numbers that metrics ask for at each scrape, by the values of a label."""

    name: str
    help_text: str
    label: str
    read: Callable[[], Mapping[str, float]]
    kind: Literal["gauge", "counter"] = "gauge"


def plain_steps(limits: RequestLimits, built_in: Mapping[str, Sequence[str]]) -> Steps:
    """Reads every request as if none had come before."""

    def steps(body: bytes, dialect: Spelling) -> Generator[None, None, tuple[Accepted, bool, Any]]:
        request = yield from parse.steps(body, CreateRequest, limits)
        return accept(request, dialect, built_in), bool(request.stream), None

    return steps


class Server:
    """One server. Its parts are there when `build` has been called."""

    parts: Parts
    runs: Runs
    stream_limits: StreamLimits
    names: ModelNames

    def __init__(
        self,
        settings: Settings,
        served: Served,
        store: Store | None = None,
        tools: Sequence[Tool] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A store and tools that are not given are those that the settings name."""
        self.settings = settings
        self.served = served
        self.store = store_of(settings, spelled()) if store is None else whole_store(store)
        self.tools = _tools_of(settings) if tools is None else tools
        self.sleep = sleep
        self.lifecycle = Lifecycle(time.monotonic)
        self.headers = ReplyHeaders(time.monotonic_ns, self.lifecycle)
        self.allows_origin: Callable[[str], bool] = own_alone
        """Whether pages of another origin may send requests."""
        self.mint: Callable[[str], str] = mint
        self.engine: Engine | None = None
        """None: the one that is served, as it is."""
        self.leases: Leases | None = None
        self.loaded: Callable[[], Iterable[Any]] = tuple
        """The versions of the engine by which clients may ask for it."""
        self.new_names: Callable[[str, Sequence[str]], ModelNames] = ModelNames
        self.admission: Admission | None = None
        self.new_recovery: Callable[[Engine], Recovery] | None = None
        self.recovery: Recovery | None = None
        self.second_chance: NewChance | None = None
        self.new_steering: Callable[[Dialect], Steering] = Steering
        self.sealing: Sealing | None = None
        self.carrier: Carrier | None = None
        self.overflow: Overflow | None = None
        self.translation: Translation | None = None
        self.keys: Keys | None = None
        self.jobs: Jobs | None = None
        self.repeats: Repeats | None = None
        self.reading: NewSteps = plain_steps
        """Makes what reads a body of the Responses API."""
        self.features: list[Feature] = []
        self.listeners: list[Listener] = []
        self.recorder: Recorder | None = None
        self.request_ended: list[Ended] = []
        self.routes: list[tuple[int, Routes]] = []
        self.preflight: Callable[[Request], Response | None] | None = None
        """Replies to a browser's preflight."""
        self.layers: list[Callable[[ASGIApp], ASGIApp]] = []
        """ASGI layers around all routes."""
        self.http: Callable[[str | None], type[asyncio.Protocol]] | None = None
        """Makes the class of HTTP connections, which let a WebSocket begin at a path; None:
        uvicorn's own."""
        self.on_listen: list[Callable[[Sequence[socket.socket]], None]] = []
        """Called with the listening sockets."""
        self.field_tables: dict[str, Iterable[Field]] = {}
        """The fields of requests that each endpoint reads."""
        self.own_fields: list[Field] = []
        """Fields of requests that a folder reads, out of those that the core ignores."""
        self.readings: list[Reading] = []
        self.labelled_readings: list[LabelledReading] = []
        self.lives: list[Life] = []
        self.each_look: list[Callable[[], None]] = []
        """Called once a second, and four times in each `stall_s`."""
        self.on_delete: list[Callable[[str, str], None]] = []
        """Called with the id of each deleted response and its owner."""
        self.card_of: Callable[[str], Mapping[str, Any]] = lambda response_id: served.card
        """Returns what is known of the engine that made a response."""
        self.model_facts: dict[str, object] = {}
        """Further fields of the model in `/v1/models`."""
        self.hints = ["run `trt-responses chat --url {base}/v1`"]
        """Ways to try the server, printed when it is ready."""
        self.about: Callable[[], Mapping[str, Any]] = self._about
        self.stall: Callable[[int], str | None] = lambda last_progress_ns: None
        """Returns the words for a stall of the engine, by the time of its last step."""
        self.by_class: dict[type, object] = {}
        self._later: list[Callable[[], None]] = []

    # --- for the folders ----------------------------------------------------------------------

    def add_routes(self, order: int, routes: Routes) -> None:
        """Add endpoints; the API is described in their order."""
        self.routes.append((order, routes))

    def provide(self, *parts: object) -> None:
        """Let others find parts by their classes."""
        self.by_class |= {type(part): part for part in parts}

    def of(self, kind: type[T]) -> T:
        """The part of this class. Raises a `KeyError` if no folder has added it."""
        part = self.by_class[kind]
        assert isinstance(part, kind)
        return part

    def when_built(self, then: Callable[[], None]) -> None:
        """Call it when the parts and the runs are there."""
        self._later.append(then)

    def dialect_of(self, model: str) -> Dialect:
        """The dialect of a model, by its name in a response."""
        served = self.served
        return served.dialects.get(model.partition(":")[0], served.dialect)

    def dialects(self) -> list[Dialect]:
        """The dialects of all models."""
        served = self.served
        return list({id(one): one for one in (served.dialect, *served.dialects.values())}.values())

    def places(self) -> int:
        """The engine's places, now; none while it mends itself."""
        assert self.engine is not None
        health = self.engine.health()
        if health.alive and not health.ready:
            return 0
        return min(self.settings.max_running or sys.maxsize, self.engine.limits().max_batch)

    @property
    def paused(self) -> int:
        """The number of runs that wait for the engine to come back."""
        return 0 if self.recovery is None else self.recovery.paused

    # --- how it is put together -----------------------------------------------------------------

    def build(self) -> None:
        """Make the parts, once every folder is installed."""
        settings = self.settings
        engine = self.engine = self.engine or self.served.new_engine()
        admission = self.admission = self.admission or OpenAdmission(self.places)
        if self.new_recovery is not None:
            self.recovery = self.new_recovery(engine)
        names = self.names = self.new_names(self.served.model, settings.model)
        self.by_class[ModelNames] = names
        self.parts = self._parts(engine, admission, names)
        self.runs = Runs(self.parts, self.lifecycle)
        keep_alive = KeepAlive(settings.keep_alive_s, settings.keep_alive_event_s, self.sleep)
        self.stream_limits = StreamLimits(keep_alive, settings.max_backlog_bytes)
        self.lives += (keep_alive.life, lambda: beside(self._look()))
        self.provide(self.lifecycle, keep_alive)
        for then in self._later:
            then()

    def _parts(
        self,
        engine: Engine,
        admission: Admission,
        names: ModelNames,
    ) -> Parts:
        settings, dialect = self.settings, self.served.dialect
        return Parts(
            engine=engine,
            store=self.store,
            dialect=dialect,
            steering=self.new_steering(dialect),
            model=names.served,
            identity=settings.identity,
            knowledge_cutoff=settings.knowledge_cutoff,
            admission=admission,
            mint=self.mint,
            today=lambda: settings.date or _date_of(int(time.time() // DAY_S)),
            clock_s=time.time,
            clock_ns=time.monotonic_ns,
            listeners=self.listeners,
            recorder=self.recorder,
            recovery=self.recovery,
            max_calls=EngineSettings.of(settings).max_calls or dialect.takes.calls,
            tools={tool.kind: tool for tool in self.tools},
            features=self.features,
            own_fields=frozenset(field.path for field in self.own_fields),
            leases=self.leases,
            carrier=self.carrier,
            names=names,
            second_chance=self.second_chance,
            overflow=self.overflow,
            translation=self.translation,
            note_media=settings.note_images,
        )

    async def _look(self) -> None:
        while True:
            await self.sleep(min(1.0, self.settings.stall_s / LOOKS))
            for look in self.each_look:
                look()

    def _about(self) -> Mapping[str, Any]:
        """The model, the server's version and the engine, as the health route tells them."""
        served = self.served
        engine = {"kind": served.kind, "version": ""}
        return {"model": served.model, "version": __version__, "engine": engine}


def _tools_of(settings: Settings) -> list[Tool]:
    try:
        return tools_of(settings)
    except StartupError as error:  # each names a setting, or an extra that a setting needs
        raise UsageError(str(error)) from None
