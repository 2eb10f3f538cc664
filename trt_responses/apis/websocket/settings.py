"""The settings of `apis/websocket/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import LARGEST, MIB, FixedGroup, SettingGroup


class SocketSettings(SettingGroup):
    """WebSocket connections."""

    websockets: int = Field(
        64,
        ge=0,
        le=LARGEST,
        description="Maximum open WebSocket connections, half of them for one owner when keys "
        "are required; 0 refuses every upgrade with 426.",
    )


class SocketNumbers(FixedGroup):
    """Bounds of a WebSocket connection."""

    websocket_s: float = Field(3600.0, description="Life of a connection: as OpenAI's.")
    websocket_running: int = Field(16, description="Responses made at once on one connection.")
    websocket_lanes: int = Field(32, description="Values of `stream_id` on one connection.")
    websocket_bytes: int = Field(
        8 * MIB, description="Unstored responses that one connection can continue."
    )
