"""Keys of owners and admins, and the line before the engine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from trt_responses.errors import UsageError
from trt_responses.features.limits.admission import Admission, Bounds
from trt_responses.features.limits.audit import audit_of
from trt_responses.features.limits.endpoint import AdminActs
from trt_responses.features.limits.key_file import WatchedKeys
from trt_responses.features.limits.keys import KeyFault, KeyRing, OwnerLimits
from trt_responses.features.limits.settings import KeySettings, LimitNumbers, LimitSettings
from trt_responses.settings import Settings
from trt_responses.setup.server import Reading, Server


def install(server: Server) -> None:
    settings, own = server.settings, LimitSettings.of(server.settings)
    keys = server.keys = _keys(settings)
    admission = server.admission = Admission(
        server.places,
        Bounds(own.max_waiting, LimitNumbers.of(settings).max_waiting_tokens),
        limits_of=keys.limits_of,
        clock_s=time.monotonic,
        counts=server.served.given.counts,
    )
    server.each_look.append(admission.look)  # the engine may have come back
    server.provide(keys, audit_of(settings))
    server.add_routes(75, lambda shared: [AdminActs(shared)])
    watched = _watched(settings, keys, server.sleep)
    if watched is not None:
        server.lives.append(watched.life)
        server.readings += (
            Reading("keys", "Keys of the file that are known.", lambda: len(watched)),
            Reading(
                "keys_file_fault",
                "Whether the file as it is cannot be used, and older keys are.",
                lambda: watched.fault is not None,
            ),
        )


def _keys(settings: Settings) -> KeyRing:
    own, named = LimitSettings.of(settings), KeySettings.of(settings)
    # Half of the queue, so that one owner leaves room for the others.
    waiting = own.max_waiting // 2 if named.asks_for_keys else None
    return KeyRing(
        named.owners(),
        from_file=named.keys_file is not None,
        admin_key=named.admin_key,
        limits=OwnerLimits(
            running=own.owner_running,
            waiting=waiting,
            requests_per_minute=own.owner_requests_per_minute,
            tokens_per_minute=own.owner_tokens_per_minute,
        ),
    )


def _watched(
    settings: Settings, keys: KeyRing, sleep: Callable[[float], Awaitable[None]]
) -> WatchedKeys | None:
    """The file of keys, loaded. Raises a `UsageError` for one that cannot be used."""
    if (path := KeySettings.of(settings).keys_file) is None:
        return None
    watched = WatchedKeys(path, keys, audit_of(settings), sleep)
    try:
        watched.load()
    except KeyFault as fault:
        raise UsageError(
            f"{settings.option('keys_file')} {path}: {fault}; "
            "`trt-responses keys new OWNER` makes a file of keys."
        ) from None
    return watched
