"""The guard: which requests are let in, by host, origin and key.

A server without keys is still reachable from any web page, so Host and Origin are checked too.
Knows headers; knows no route.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from starlette.requests import Request

from trt_responses.errors import Forbidden, InvalidRequest, Unauthorized
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.web.headers import header, origin_refused

ANYONE = ""
"""The owner of everything on a server without keys."""
KNOWN_HOSTS = 64
"""The most Host headers that are remembered: with `*` a client can send any."""


def own_alone(origin: str) -> bool:
    """Lets no other page in than this server's own."""
    return False


class Keys(Protocol):
    """Whose the keys of requests are."""

    required: bool
    """Whether a request needs a key."""

    def owner_of(self, key: str) -> str | None:
        """The owner of a key."""
        ...

    def admin_of(self, key: str) -> str | None:
        """The name of the admin whose key it is."""
        ...


class Guard:
    """Lets a request in when its host and its origin are allowed and its key is known."""

    def __init__(
        self,
        *,
        hosts: Iterable[str],
        origins: Callable[[str], bool] = own_alone,
        keys: Keys | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        """`origins` says which other origins' pages may send requests. Without `keys` no request
        needs one. With a `lifecycle`, requests pass only while the server is open."""
        self._hosts = frozenset(map(str.lower, hosts))
        self._known_hosts: set[bytes] = set()
        """Host headers that were allowed."""
        self._allows_origin = origins
        self._keys = keys
        self._lifecycle = lifecycle

    @property
    def known_hosts(self) -> int:
        """The number of Host headers that are remembered."""
        return len(self._known_hosts)

    def owner(self, request: Request) -> str:
        """The owner that the request speaks for, or the reason why it may not."""
        self._check_place(request)
        keys, lifecycle = self._keys, self._lifecycle
        owner = ANYONE if keys is None or not keys.required else _owner_in(keys, request)
        if lifecycle is not None and not lifecycle.open:
            lifecycle.check_open()
        return owner

    def admin(self, request: Request) -> str:
        """The name of the admin whose key the request brings, or the reason why it may not."""
        self._check_place(request)
        if not key_of(request):
            raise Unauthorized("This request needs an admin key: send `Authorization: Bearer KEY`.")
        if (name := self.admin_of(request)) is None:
            raise Forbidden(
                "The API key is no admin's: TRT_RESPONSES_ADMIN_KEY is one, and "
                "`trt-responses keys new OWNER --admin` makes another.",
                code="admin_only",
            )
        return name

    def admin_of(self, request: Request) -> str | None:
        """The name of the admin whose key the request brings, if it is one's."""
        return None if self._keys is None else self._keys.admin_of(key_of(request))

    def _check_place(self, request: Request) -> None:
        hosts = [value for name, value in request.scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._known_hosts:
            self._check_host(hosts, request)
        if (origin := header(request, b"origin")) is not None:
            self._check_origin(origin, request)

    def _check_host(self, hosts: Sequence[bytes], request: Request) -> None:
        host = _host(hosts, request)
        if "*" not in self._hosts and _name(host) not in self._hosts:
            raise Forbidden(
                f"This server does not answer for the host {host!r:.100}: ask for one of "
                f"{', '.join(sorted(self._hosts))}, or allow it in TRT_RESPONSES_ALLOWED_HOSTS.",
                code="host_not_allowed",
            )
        if len(self._known_hosts) < KNOWN_HOSTS:
            self._known_hosts.update(hosts)

    def _check_origin(self, origin: str, request: Request) -> None:
        if self._allows_origin(origin):
            return
        scheme, _, authority = origin.partition("://")
        if not authority or (scheme, _with_port(scheme, authority)) != _own_origin(request):
            raise origin_refused(origin)


def _owner_in(keys: Keys, request: Request) -> str:
    if not (key := key_of(request)):
        raise Unauthorized("No API key: send it as `Authorization: Bearer KEY`.")
    owner = keys.owner_of(key)
    if owner is None:
        raise Unauthorized("The API key is not one of this server's.")
    return owner


def key_of(request: Request) -> str:
    """The key that a request brings, as OpenAI's clients do or as Anthropic's; empty when it
    brings none."""
    scheme, _, key = (header(request, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return (header(request, b"x-api-key") or "").strip()


HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.~-]*)(?::\d{0,5})?", re.ASCII)
"""A host and perhaps its port, as browsers and clients write them."""
PORTS = {"http": ":80", "https": ":443"}


def _host(hosts: Sequence[bytes], request: Request) -> str:
    """The one Host header. A request with none, with several, or with one that names no host is
    refused (RFC 9112, 3.2): a proxy may have read another host than we do."""
    if not hosts and request.scope.get("http_version") != "1.1":
        return ""
    host = str(hosts[0], "latin-1") if len(hosts) == 1 else ""
    if len(hosts) != 1 or not HOST.fullmatch(host):
        raise InvalidRequest(
            f"Expected one Host header that names a host and perhaps a port, got {len(hosts)}"
            f"{f': {host!r:.100}' if host else ''}.",
            code="invalid_host",
        )
    return host


def _name(host: str) -> str:
    """A Host header without its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _own_origin(request: Request) -> tuple[str, str]:
    """Scheme and authority of the pages that this server itself would have."""
    scheme = request.scope.get("scheme", "http")
    return scheme, _with_port(scheme, header(request, b"host") or "")


def _with_port(scheme: str, authority: str) -> str:
    """An authority with its port written out, also where it is the scheme's default."""
    authority = authority.lower()
    has_port = ":" in authority.rpartition("]")[2]
    return authority if has_port else authority + PORTS.get(scheme, "")
