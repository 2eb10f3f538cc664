"""Who may ask. A server without keys is still reachable from any web page, so
Host and Origin are checked as well as the key. Knows headers; knows no route."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trt_responses.errors import Forbidden, Unauthorized
from trt_responses.web.headers import header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request

ANYONE = ""
"""The owner of everything on a server without keys."""


class Guard:
    """`owners` maps keys to the owners they stand for; when it is empty, nobody needs a key."""

    def __init__(
        self, *, hosts: Iterable[str], origins: Iterable[str], owners: Mapping[str, str]
    ) -> None:
        self._hosts = frozenset(map(str.lower, hosts))
        self._origins = frozenset(origins)
        self._owners = {_digest(key): owner for key, owner in owners.items()}

    def owner(self, request: Request) -> str:
        """The owner that the request speaks for, or the reason why it may not."""
        self._check_host(request)
        self._check_origin(request)
        return self._check_key(request)

    def _check_host(self, request: Request) -> None:
        host = header(request, b"host") or ""
        if "*" not in self._hosts and _name(host) not in self._hosts:
            raise Forbidden(
                f"This server does not answer for the host {host!r:.100}: ask for one of "
                f"{', '.join(sorted(self._hosts))}, or allow it in TRT_RESPONSES_ALLOWED_HOSTS.",
                code="host_not_allowed",
            )

    def _check_origin(self, request: Request) -> None:
        origin = header(request, b"origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        if _netloc(origin) and _netloc(origin) == header(request, b"host"):
            return
        raise Forbidden(
            f"Pages of {origin!r:.100} may not use this server: allow the origin in "
            "TRT_RESPONSES_ALLOWED_ORIGINS.",
            code="origin_not_allowed",
        )

    def _check_key(self, request: Request) -> str:
        if not self._owners:
            return ANYONE
        scheme, _, key = (header(request, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthorized("No API key: send it as `Authorization: Bearer KEY`.")
        owner = self._owners.get(_digest(key.strip()))
        if owner is None:
            raise Unauthorized("The API key is not one of this server's.")
        return owner


def _name(host: str) -> str:
    """A Host header without its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty when it has none, as `null` has, or is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _digest(key: str) -> bytes:
    """Keys are looked up by digest, so that no comparison's time tells anything of a key."""
    return hashlib.sha256(key.encode()).digest()
