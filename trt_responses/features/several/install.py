"""Several engines behind one server: models by name, and replicas of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from trt_responses.features.several.engine import SeveralEngines
from trt_responses.features.several.replica import Replica
from trt_responses.features.several.spec import KIND
from trt_responses.setup.server import LabelledReading, Server


def install(server: Server) -> None:
    served = server.served
    engines = served.new_engine() if served.kind == KIND else served.given.engine
    if not isinstance(engines, SeveralEngines):
        return
    from trt_responses.features.several.endpoint import routes
    from trt_responses.features.several.leases import Counted, Model, ModelLeases

    before, about, card_of = server.loaded, server.about, server.card_of
    others = [Model(name) for name in engines.groups if name != engines.model]
    server.engine = server.engine or engines
    server.leases = leases = ModelLeases(engines, server.settings, server.new_steering)
    server.features.append(Counted(leases, served.model))
    server.loaded = lambda: (*before(), *others)
    server.about = lambda: {**about(), "engines": engines.state()}
    server.card_of = lambda id: {**card_of(id), "engines": list(engines.made(id))}
    server.provide(engines)
    server.each_look.append(engines.look)
    server.labelled_readings += readings(engines)
    server.add_routes(81, routes)


def readings(engines: SeveralEngines) -> list[LabelledReading]:
    """What metrics say of each engine."""

    def each(number: Callable[[Replica], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {replica.label: number(replica) for replica in engines.replicas()}

    numbers: tuple[
        tuple[str, str, Callable[[Replica], float], Literal["gauge", "counter"]], ...
    ] = (
        ("ready", "Whether an engine takes new requests.", lambda one: one.able, "gauge"),
        ("running", "Requests that run on an engine.", lambda one: one.running, "gauge"),
        ("requests", "Requests that went to an engine.", lambda one: one.requests, "counter"),
        (
            "warm_requests",
            "Requests that went to an engine which had read most of their prompt lately.",
            lambda one: one.warm_requests,
            "counter",
        ),
    )
    return [
        LabelledReading(f"replica_{name}", text, "engine", each(number), kind)
        for name, text, number, kind in numbers
    ]
