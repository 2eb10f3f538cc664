"""Checks where responses are stored, and whether that place is usable. Opens no database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from trt_responses.backends.installed import maker
from trt_responses.backends.store_place import store_place
from trt_responses.backends.stores import OWN
from trt_responses.doctor.check import Check
from trt_responses.doctor.listening import why_not
from trt_responses.doctor.machine import may_write
from trt_responses.errors import StartupError
from trt_responses.prepare.files import nearest
from trt_responses.settings import Settings

REDIS_PORT, POSTGRES_PORT = 6379, 5432
VARIABLE = "TRT_RESPONSES_STORE"


def store_check(settings: Settings, allowed: Callable[[Path], bool] = may_write) -> Check:
    """Whether the server can store responses in the configured place."""
    if settings.store is None:
        return _file(settings.data_dir, allowed)
    try:
        place = store_place(settings)
    except StartupError as error:
        remedy = f"set {VARIABLE} to memory://, sqlite:///path, redis://… or postgresql://…"
        return Check("store", "fault", str(error), remedy)
    match place.kind:
        case "memory":
            return Check("store", "ok", "memory: lost when the server stops")
        case "sqlite":
            return _file(Path(place.where), allowed)
        case "redis":
            url = urlsplit(place.where)
            if url.scheme == "unix":
                return Check("store", "ok", f"Redis: the socket {url.path}")
            return _reachable("Redis", url.hostname or "localhost", url.port or REDIS_PORT)
        case "postgresql" | "postgres":
            return _postgres(place.where)
        case kind:
            try:
                maker("stores", kind, OWN)
            except StartupError as error:
                return Check("store", "fault", f"{VARIABLE}: {error}")
            return Check("store", "ok", f"{kind}: an installed package brings it")


def _file(place: Path, allowed: Callable[[Path], bool]) -> Check:
    if allowed(nearest(place)):
        return Check("store", "ok", f"SQLite: {place.resolve()}")
    return Check(
        "store", "fault", f"{place.resolve()} cannot be written", f"set {VARIABLE} elsewhere"
    )


def _postgres(url: str) -> Check:
    """The check of the first server that listens; the URL may name several."""
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    ends = [urlsplit(f"//{host}") for host in hosts]
    try:
        tried = [
            _reachable("PostgreSQL", end.hostname or "localhost", end.port or POSTGRES_PORT)
            for end in ends
        ]
    except ValueError as error:
        return Check("store", "fault", f"PostgreSQL: {error}")
    return next((check for check in tried if check.state == "ok"), tried[0])


def _reachable(what: str, host: str, port: int) -> Check:
    error = why_not(host, port)
    if error is not None:
        return Check("store", "fault", f"{what}: cannot connect to {host}:{port} ({error})")
    return Check("store", "ok", f"{what}: {host}:{port} listens")
