"""WebSocket connections: uvicorn's protocol, changed in how a connection ends.

When the server is stopped a connection is closed by the app, behind the responses that are being
made, and not by uvicorn at once. A client that takes nothing any more does not hold the connection
open for as long as it likes. Knows connections; knows no app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio

PING_S = 20.0
"""Seconds between pings, so that no proxy takes the connection for dead. Nobody waits for the pong:
some clients read nothing between two responses, and TCP tells of those that are gone."""
CLOSING_S = 10.0
"""Seconds that a client gets to take the last bytes."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    def shutdown(self) -> None:
        """Leave the end to the app, if it has accepted the connection."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(CLOSING_S, self.transport.abort)  # nothing, if it is closed by then
