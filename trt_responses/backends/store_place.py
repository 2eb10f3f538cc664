"""The place where responses are kept, as the setting STORE names it."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from trt_responses.errors import UsageError
from trt_responses.settings import PREFIX, Settings

REDIS_OPTIONS = {"db", "protocol"}
"""Options in a Redis URL's query, besides those of TLS, which begin with `ssl_`."""


class StorePlace(NamedTuple):
    """A kind of store, and where it is."""

    kind: str
    """memory, sqlite, redis, postgresql, or the name of one that another package brings."""
    where: str
    """A file's path, a server's URL, or nothing."""
    synchronous: Literal["normal", "full"] = "normal"
    """What survives in a file: the server's death, or the machine's too."""


def store_place(settings: Settings) -> StorePlace:
    """The place where responses are kept; a STORE that names no place stops the start."""
    try:
        return place_of(settings.store or "memory://")
    except ValueError as fault:
        raise UsageError(f"{PREFIX}STORE: {fault}.") from None


def place_of(url: str) -> StorePlace:
    """The place that a URL names. Raises `ValueError` with the reason, in which no password is
    repeated, for one that names none."""
    kind, _, rest = url.partition("://")
    if kind == "memory" and not rest:
        return StorePlace("memory", "")
    if kind == "sqlite" and (path := rest.removeprefix("/")):
        path, _, option = path.partition("?")
        if option not in ("", "synchronous=normal", "synchronous=full"):
            raise ValueError(f"expected ?synchronous=full behind the path, got {option!r:.60}")
        return StorePlace("sqlite", path, "full" if option.endswith("full") else "normal")
    try:
        urlsplit(url).netloc.encode()
    except ValueError:  # its own words may repeat a password
        raise ValueError("the address of the server is malformed") from None
    if kind in ("redis", "rediss", "unix"):
        if why := _redis_fault(url):
            raise ValueError(why)
        return StorePlace("redis", url)
    if rest and kind.isidentifier() and kind not in ("memory", "sqlite"):
        return StorePlace(kind, url)
    raise ValueError(
        "expected memory://, sqlite:///path, redis://host:port/number or postgresql://host/name, "
        f"got {kind + '://…' if '://' in url else url!r:.60}"
    )


def _redis_fault(url: str) -> str | None:
    """The reason why a Redis URL names no server; None when it names one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the port of the Redis server is no number from 1 to 65535"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    number = options.get("db", "0")
    if parts.scheme == "unix":
        place = parts.path
    else:
        place, number = parts.hostname or "", parts.path.strip("/") or number
    if not place or port == 0:
        return "expected redis://host:port/number or unix:///path/of/socket"
    if not (number.isascii() and number.isdecimal() and len(number) < 6):
        return f"the database of the Redis server must be a number, got {number!r:.60}"
    for name in options:
        if name not in REDIS_OPTIONS and not name.startswith("ssl_"):
            return f"{name!r:.60} is no option of a Redis URL that this server knows"
    return None
