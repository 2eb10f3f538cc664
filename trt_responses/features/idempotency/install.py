"""Idempotency keys."""

from __future__ import annotations

import time

from trt_responses.features.idempotency.repeats import Repeats
from trt_responses.features.idempotency.settings import IdempotencyNumbers
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    own = IdempotencyNumbers.of(server.settings)
    repeats = server.repeats = Repeats(
        max_keys=own.idempotency_keys,
        ttl_s=own.idempotency_ttl_s,
        clock_s=time.monotonic,
    )
    server.lives.append(repeats.life)
    server.on_delete.append(repeats.forget)
