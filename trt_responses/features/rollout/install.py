"""Versions of the engine: which of them makes a response, and how they are exchanged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trt_responses import __version__
from trt_responses.features.rollout.acts import Acts
from trt_responses.features.rollout.endpoint import routes
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.gate import Gate
from trt_responses.features.rollout.leases import VersionLeases, made_by, pause
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.names import VersionNames
from trt_responses.features.rollout.shelf_builds import PreparedBuilds, gate_prompts, loaded
from trt_responses.features.rollout.versions import Versions
from trt_responses.setup.server import Reading

if TYPE_CHECKING:
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.setup.server import Server

WHY_NONE = {  # by the kind of engine
    "triton": "The engine is a Triton's: load and unload its versions there.",
    "given": "The engine was given by the program that runs this server, which exchanges it.",
    "several": "Of several engines none is exchanged: restart the server with the version.",
}
ANOTHERS = "The engine is not prepared here: start its server with another model."
NO_OTHERS = "The program that runs this server has given it no other versions."


def install(server: Server) -> None:
    served = server.served
    first, builds = _first(server)
    versions = Versions(first)
    server.engine, server.leases = versions, VersionLeases(versions)
    server.loaded = lambda: versions
    # those of other folders, too
    server.new_names = partial(VersionNames, loaded=lambda: tuple(server.loaded()))
    server.card_of = versions.card_of
    server.about = lambda: about(served.model, versions)
    server.provide(versions)
    server.readings.append(
        Reading(
            "engine_version_gone",
            "Responses that continue one of a version that is not loaded any more.",
            lambda: versions.gone,
            kind="counter",
        )
    )
    server.add_routes(80, routes)
    server.when_built(partial(_build, server, versions, builds))


def _first(server: Server) -> tuple[Loaded, Builds | str]:
    """The version that is loaded first, and the builds that can replace it, or the reason why none
    can."""
    served, settings = server.served, server.settings
    engine = served.given.engine
    if isinstance(engine, Loaded):
        return engine, served.given.builds or NO_OTHERS
    if served.selection is not None and served.engine_of is not None:
        first = loaded(served.selection, settings, served.engine_of)
        return first, PreparedBuilds(served.selection.card.name, settings, served.engine_of)
    version = Version(served.model, served.kind)
    none = WHY_NONE.get("several" if served.dialects else served.kind, ANOTHERS)
    return Loaded(version, served.new_engine(), card=served.card), none


def _build(server: Server, versions: Versions, builds: Builds | str) -> None:
    """Each version that is loaded later is compared by the gate's prompts first."""
    prompts = gate_prompts(server.settings.engines_dir)
    new_gate = partial(Gate, server.parts, prompts, partial(made_by, server.runs), server.sleep)
    may_pause = partial(pause, server.runs) if server.parts.recovery is not None else None
    acts: Acts
    if (new_acts := server.served.given.new_acts) is not None:
        acts = new_acts(versions, new_gate, may_pause)
    else:
        acts = Exchange(versions, builds, new_gate, server.lifecycle, may_pause)
        server.provide(acts)
    server.by_class[Acts] = acts
    server.lives.append(acts.life)


def about(model: str, versions: Versions) -> dict[str, Any]:
    """The model, the server's version and the engine, as the health route tells them."""
    version = versions.promoted.version
    engine: dict[str, Any] = {"kind": version.kind, "version": version.digest}
    if version.number is not None:
        engine["number"] = version.number
    return {"model": model, "version": __version__, "engine": engine}
