"""How many front ends `--frontends auto` starts: from cores, memory, the engine and the store.

Knows numbers and names; starts nothing.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.http import SERVERS, scheme_of
from trt_responses.backends.store_place import store_place
from trt_responses.settings import Settings
from trt_responses.setup.engine import selected

MOST = 8
"""About 500,000 tokens a second. More front ends spread work that one host's GPUs do not make."""
FRONT_END_BYTES = 400 * 1024 * 1024
"""One front end with a thousand streams."""
ENGINE_CORES = {"trtllm": 1, "tensorrt": 1, "grpc": 0, "triton": 0, **dict.fromkeys(SERVERS, 0)}
"""Cores that an engine itself keeps busy; one that is not here computes on all of them."""


class Host(NamedTuple):
    """The part of this machine that the server may use."""

    cores: int
    free_bytes: int
    shares_ports: bool
    """Whether several processes can listen on one port here."""


class Choice(NamedTuple):
    """How many front ends, and the reason in one clause."""

    frontends: int
    reason: str


def choice(host: Host, engine: str, store: str) -> Choice:
    """The number of front ends for a kind of engine and a kind of store."""
    if engine not in ENGINE_CORES:
        return Choice(1, f"a {engine} engine computes on the same cores")
    if store == "memory":
        return Choice(1, "memory:// belongs to one process")
    if not host.shares_ports:
        return Choice(1, "several processes cannot share the port here")
    bounds = {
        f"{host.cores} cores, {ENGINE_CORES[engine]} for the engine": (
            host.cores - ENGINE_CORES[engine]
        ),
        f"{host.free_bytes / 1e9:.1f} GB of free memory": host.free_bytes // 2 // FRONT_END_BYTES,
        f"{host.cores} cores; {MOST} front ends are enough for one host": MOST,
    }
    reason = min(bounds, key=bounds.__getitem__)
    return Choice(max(1, bounds[reason]), reason)


def with_front_ends(settings: Settings, free_bytes: int) -> Settings:
    """The settings with the number of front ends that this machine carries, of whose memory so much
    is free."""
    engine = _kind_of(settings)
    # A server keeps responses in SQLite unless its settings name another store.
    store = store_place(settings).kind if settings.store else "sqlite"
    count, reason = choice(this_host(free_bytes), engine, store)
    print(f"front ends: {count} ({reason})", file=sys.stderr, flush=True)
    return settings.model_copy(update={"frontends": count})


def _kind_of(settings: Settings) -> str:
    """The kind of the engine; of several, that of the one which keeps the most cores busy."""
    if (elsewhere := elsewhere_in(settings)) is None:
        return selected(settings).card.kind
    if elsewhere.kind != "several":
        return scheme_of(elsewhere.kind)
    places = [entry.partition("=")[2] for entry in elsewhere.place.split(",")]
    kinds = [_kind_of(settings.model_copy(update={"engine": place})) for place in places]
    return max(kinds, key=lambda kind: ENGINE_CORES.get(kind, math.inf))


def this_host(free_bytes: int, root: Path = Path("/")) -> Host:
    """This machine, cut to the limits of a container."""
    alone = "LISTEN_FDS" in os.environ  # systemd holds the only socket
    balances = sys.platform.startswith(("linux", "freebsd"))
    return Host(_cores(root), free_bytes, balances and not alone)


def _cores(root: Path) -> int:
    """The cores that this process may use; a container's share of time counts in whole ones."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or `max`: no limit
        return cores
