"""The settings of `features/connections/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import FixedGroup


class ConnectionNumbers(FixedGroup):
    """Bounds of a connection."""

    max_header_bytes: int = Field(
        64 * 1024, description="Head of a request: twice what proxies and browsers let through."
    )
