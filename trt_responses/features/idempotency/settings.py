"""The settings of `features/idempotency/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import FixedGroup


class IdempotencyNumbers(FixedGroup):
    """Bounds of idempotency keys."""

    idempotency_keys: int = Field(256, description="Each holds a whole response.")
    idempotency_ttl_s: float = Field(600.0, description="No client retries for longer.")
