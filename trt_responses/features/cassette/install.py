"""Cassettes: a server that records another one, or replays what was recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.features.cassette.exchanges import Cassette, read
from trt_responses.features.cassette.record import Records
from trt_responses.features.cassette.replay import Replays

if TYPE_CHECKING:
    from trt_responses.setup.server import Server

PACED = "#paced"


def install(server: Server) -> None:
    """`record://FILE#URL` records what URL answers; `replay://FILE` answers from the file, and
    with `#paced` behind it at the recorded pace."""
    place, hosts = str(server.served.card.get("name", "")), server.settings.hosts()
    if server.served.kind == "record":
        file, _, url = place.partition("#")
        cassette = Cassette(Path(file))
        server.layers.append(partial(Records, hosts=hosts, url=url, cassette=cassette))
    elif server.served.kind == "replay":
        exchanges = read(Path(place.removesuffix(PACED)))
        paced = place.endswith(PACED)
        server.layers.append(partial(Replays, hosts=hosts, exchanges=exchanges, paced=paced))
