"""A log as the text frames of a WebSocket: a second listener beside the one of `web/stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.web.stream.sse import Writer

if TYPE_CHECKING:
    from starlette.types import Send

    from trt_responses.run.run import Run


class FrameWriter(Writer):
    """Writes a run's events, each as a frame. There are no comments between frames."""

    def __init__(self, run: Run, send: Send, max_backlog_bytes: int) -> None:
        self._send_frames = _as_text(send)
        super().__init__(run, self._send_frames, max_backlog_bytes=max_backlog_bytes)

    async def written(self) -> bool:
        whole = await super().written()
        if whole and (rest := self.rest()):
            await self._send_frames({"body": rest})
        return whole

    def ping(self, *, event: bool) -> None:
        if event:
            super().ping(event=True)


def _as_text(send: Send) -> Send:
    """The `send` of a stream, for frames that are a message each."""

    async def send_frames(message: Any) -> None:
        for frame in message["body"].split(b"\n\n")[:-1]:
            await send({"type": "websocket.send", "text": frame.decode()})

    return send_frames
