"""The engine that a server serves: one that a program hands in, of another server, or prepared."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from trt_responses.backends.dialects import dialect_named, dialect_of
from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.engines import chosen_engine, engine_elsewhere
from trt_responses.backends.settings import EngineSettings
from trt_responses.dialect import Dialect
from trt_responses.errors import StartupError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.backends.elsewhere import Elsewhere
    from trt_responses.engine import Engine
    from trt_responses.features.limits.counts import Counts
    from trt_responses.features.rollout.acts import NewActs
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.features.rollout.loaded import Loaded
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.settings import Settings

logger = logging.getLogger(__name__)


class Given(NamedTuple):
    """What a program hands in: an engine, or one with its version; the builds that may take its
    place; its dialect; the counts of several apps over one engine, and the acts of one that follows
    a fleet's versions."""

    engine: Engine | Loaded | None = None
    builds: Builds | None = None
    speaks: Dialect | None = None
    counts: Counts | None = None
    new_acts: NewActs | None = None


@runtime_checkable
class KnowsModel(Protocol):
    """An engine of another server that knows its model: else the URL's path names it, and the
    settings its dialect."""

    model: str
    dialect: Dialect | None


@runtime_checkable
class KnowsDialects(Protocol):
    """Engines of several models that may speak different dialects."""

    dialects: Mapping[str, Dialect]
    """By the models' names."""


class Served(NamedTuple):
    """The engine that is served, and how it is made."""

    model: str
    kind: str
    dialect: Dialect
    new_engine: Callable[[], Engine]
    given: Given
    card: Mapping[str, Any]
    """The engine's public description."""
    selection: Selection | None = None
    """Where it is prepared; None for one that was given, or is another server's."""
    engine_of: Callable[[Selection, Settings], Engine] | None = None
    dialects: Mapping[str, Dialect] = MappingProxyType({})
    """Those of several models, by name."""


def served_engine(
    settings: Settings, given: Given, engine_of: Callable[[Selection, Settings], Engine]
) -> Served:
    """The engine that was given, that of another server, or the one that the settings choose."""
    if (engine := given.engine) is not None:  # by the program that embeds this one
        model = settings.model_name or settings.engine or "demo"
        dialect = given.speaks or _spoken(settings)
        served = Served(model, "given", dialect, lambda: engine, given, {"kind": "given"})
        return served._replace(dialects=_dialects(engine))
    if (elsewhere := elsewhere_in(settings)) is not None:
        kind, place = elsewhere
        far = _elsewhere(elsewhere, settings, engine_of)
        named: str = place.partition("/")[2]
        known: Dialect | None = None
        if isinstance(far, KnowsModel):
            named, known = far.model, far.dialect
        model = settings.model_name or named or kind
        about = {"kind": kind, "name": place}
        served = Served(model, kind, known or _spoken(settings), lambda: far, given, about)
        return served._replace(dialects=_dialects(far))
    selection = selected(settings)
    card = selection.card
    logger.info("serving %s (%s)", card.label, selection.reason)
    return Served(
        settings.model_name or card.name,
        card.kind,
        dialect_of(selection.directory, card),
        partial(engine_of, selection, settings),
        given,
        {"kind": card.kind},
        selection,
        engine_of,
    )


def selected(settings: Settings) -> Selection:
    """The prepared engine that the settings choose; an error names the option that chose it."""
    try:
        return chosen_engine(settings)
    except UsageError as error:
        raise UsageError(f"{settings.option('engine')}: {error}") from None


def _spoken(settings: Settings) -> Dialect:
    try:
        return dialect_named(EngineSettings.of(settings).speaks)
    except StartupError as error:
        raise UsageError(f"{settings.option('speaks')}: {error}") from None


def _dialects(engine: object) -> Mapping[str, Dialect]:
    return engine.dialects if isinstance(engine, KnowsDialects) else {}


def _elsewhere(
    elsewhere: Elsewhere, settings: Settings, engine_of: Callable[[Selection, Settings], Engine]
) -> Engine:
    try:
        return engine_elsewhere(elsewhere, settings, engine_of)
    except StartupError as error:
        raise UsageError(f"{settings.option('engine')}: {error}") from None
