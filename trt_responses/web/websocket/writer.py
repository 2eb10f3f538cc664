"""A log as the text frames of a WebSocket: a second listener beside the one of `web/stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.web.stream.sse import Writer

if TYPE_CHECKING:
    from starlette.types import Send

    from trt_responses.response.run import Run

PINGS = 3
"""Silent spells between two repeated events: a snapshot may be large."""


class FrameWriter(Writer):
    """Writes a run's events, each as a frame. In a long silence it repeats one, for clients count
    events and not pings."""

    def __init__(self, run: Run, send: Send, max_backlog_bytes: int) -> None:
        self._silent = 0
        super().__init__(run, _as_text(send), max_backlog_bytes=max_backlog_bytes)

    def ping(self) -> None:
        self._silent += 1
        entries = self._log.entries
        if self._free and self._silent % PINGS == 0 and len(entries) > 1:
            self._write(b"".join(entries[1].frames(0)))  # `response.in_progress`, as it was


def _as_text(send: Send) -> Send:
    """The `send` of a stream, for frames that are a message each."""

    async def send_frames(message: Any) -> None:
        for frame in message["body"].split(b"\n\n")[:-1]:
            await send({"type": "websocket.send", "text": frame.decode()})

    return send_frames
