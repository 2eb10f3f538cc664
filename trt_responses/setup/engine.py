"""The engine that a server serves: one that a program hands in, of another server, or prepared."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses import __version__
from trt_responses.backends.dialects import dialect_of
from trt_responses.backends.engines import chosen_engine, engine_elsewhere
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.shelf_builds import builds_of, loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine
    from trt_responses.features.limits.counts import Counts
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.features.rollout.versions import Versions
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.settings import Settings

logger = logging.getLogger(__name__)

ELSEWHERE = {
    "triton": "The engine is a Triton's: load and unload its versions there.",
    "grpc": "The engine is another server's: start that one with another model, and it is found "
    "again.",
}
"""Why no version is exchanged here, for each kind of engine that another server serves."""


class Given(NamedTuple):
    """What a program hands in: an engine, or one with its version; the builds that may take its
    place; its dialect; and the counts of several apps over one engine."""

    engine: Engine | Loaded | None = None
    builds: Builds | None = None
    speaks: Dialect | None = None
    counts: Counts | None = None

    @property
    def dialect(self) -> Dialect:
        return self.speaks or dialect_of()


class ServedEngine(NamedTuple):
    """The engine, the dialect of its model, and the builds that can replace it, or the reason why
    none can."""

    loaded: Loaded
    model: str
    builds: Builds | str
    dialect: Dialect


def served_engine(
    settings: Settings, given: Given, engine_of: Callable[[Selection, Settings], Engine]
) -> ServedEngine:
    """The engine that was given, that of another server, or the one that the settings choose."""
    engine = given.engine
    if isinstance(engine, Loaded):
        none = "The program that runs this server has given it no other versions."
        return ServedEngine(engine, engine.version.name, given.builds or none, given.dialect)
    if engine is not None:  # by the program that embeds this one
        model = settings.model or settings.engine or "demo"
        loaded_one = Loaded(Version(model, "given"), engine)
        why = "The engine was given by the program that runs this server, which exchanges it."
        return ServedEngine(loaded_one, model, why, given.dialect)
    if (far := engine_elsewhere(settings)) is not None:
        kind, place = ("triton", settings.triton) if settings.triton else ("grpc", settings.grpc)
        model = settings.model or str(place).partition("/")[2]
        found = Loaded(Version(model, kind), far, card={"kind": kind, "name": place})
        return ServedEngine(found, model, ELSEWHERE[kind], dialect_of())
    selection = chosen_engine(settings)
    logger.info("%s", selection.reason)
    found = loaded(selection, settings, engine_of)
    others = builds_of(settings, selection.card, engine_of)
    dialect = dialect_of(selection.directory, selection.card)
    return ServedEngine(found, found.version.name, others, dialect)


def about(model: str, versions: Versions) -> dict[str, Any]:
    """The model, the server's version and the engine, as the health route tells them."""
    version = versions.promoted.version
    engine: dict[str, Any] = {"kind": version.kind, "version": version.digest}
    if version.number is not None:
        engine["number"] = version.number
    return {"model": model, "version": __version__, "engine": engine}
