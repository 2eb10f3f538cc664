"""Cassettes: a server that records another one, or replays what was recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from trt_responses.setup.server import Server
from trt_responses.wire.limits import RequestLimits

PACED = "#paced"


def install(server: Server) -> None:
    """`record://FILE#URL` records what URL answers; `replay://FILE` answers from the file, and
    with `#paced` behind it at the recorded pace."""
    kind, place = server.served.kind, str(server.served.card.get("name", ""))
    if kind == "record":
        from trt_responses.features.cassette.exchanges import Cassette
        from trt_responses.features.cassette.record import Records, Upstream

        file, _, url = place.partition("#")
        answer = Records(Upstream(url), Cassette(Path(file))).answer
    elif kind == "replay":
        from trt_responses.features.cassette.exchanges import read
        from trt_responses.features.cassette.replay import Replays

        exchanges = read(Path(place.removesuffix(PACED)))
        answer = Replays(exchanges, paced=place.endswith(PACED)).answer
    else:
        return
    from trt_responses.features.cassette.layer import Layer

    hosts = server.settings.hosts()
    limits = RequestLimits(body_bytes=server.settings.max_body_bytes)
    server.layers.append(partial(Layer, hosts=hosts, limits=limits, answer=answer))
