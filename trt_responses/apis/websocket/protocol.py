"""WebSocket connections: uvicorn's protocol, changed in what it reads at once and in how it ends.

What has come is parsed in turns of a few frames, and not beyond a message that the app has yet to
take; nothing is read from the client meanwhile. When the server is stopped the app closes the
connection, behind the responses that are being made, and not uvicorn at once. A client that takes
nothing any more does not hold the connection open for as long as it likes. Knows connections; knows
no app.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.server import ServerProtocol
from websockets.streams import StreamReader

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator
    from typing import Any

    from uvicorn._types import ASGIReceiveEvent
    from websockets.frames import Frame

CLOSING_S = 10.0
"""Seconds that a client gets to take the last bytes."""
PIECE_BYTES = 65_536
"""Bytes of a message that must come in each `read_timeout_s`, unless it ends: a drip is no upload.
"""
FRAMES_AT_ONCE = 32
"""Frames that are parsed in one turn: 0.3 ms when they are empty. A client's request is one."""
PAUSE_S = 0.002
"""Seconds between two turns, of all connections together."""
FRAGMENTS = 4096
"""Frames of one message: enough for the largest one (`MAX_BODY_BYTES`) in pieces of 1 KiB."""
INVALID_TEXT, POLICY = 1007, 1008
"""Codes with which a connection is closed."""


class Turns:
    """The connections of a server that have more to parse than one turn allows, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[SocketProtocol] = deque()
        self._due: asyncio.TimerHandle | None = None

    def wait(self, connection: SocketProtocol) -> None:
        self._waiting.append(connection)
        if self._due is None:
            self._due = connection.loop.call_later(PAUSE_S, self._next)

    def _next(self) -> None:
        self._due = None
        connection = self._waiting.popleft()
        connection.take_turn()
        if self._due is None and self._waiting:
            self._due = connection.loop.call_later(PAUSE_S, self._next)


class SocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection. `socket_protocol` sets its class attributes."""

    turns: Turns
    read_timeout_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: _Frames = _Frames(max_size=self.config.ws_max_size, logger=self.logger)
        self._frames_left = FRAMES_AT_ONCE
        self._waits = False
        """Whether it waits for its next turn."""
        self._came = 0
        """Bytes that have come since the last look at its pace."""
        self._seen: int | None = None
        """The message that had begun at the last look."""
        self._messages = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.read_timeout_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    # --- what comes ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        self.conn.reader.feed_data(data)
        if not self._waits:
            self._frames_left = 0 if self._is_large() else FRAMES_AT_ONCE
        self._parse()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        self._parse()
        return message

    def take_turn(self) -> None:
        """Parse the next frames."""
        self._waits, self._frames_left = False, FRAMES_AT_ONCE
        self._parse()

    def _parse(self) -> None:
        """Parse what has come, as far as it may be now, and read on if that is all."""
        gate = self.conn.gate
        while gate.buffer and not self.transport.is_closing():
            if (gate.closed or self._is_large()) and self._must_wait():
                if not self.read_paused:
                    self.read_paused = True
                    self.transport.pause_reading()
                return
            if gate.closed:
                self._frames_left -= 1
                gate.closed = False
            super().data_received(b"")
            if not gate.closed:
                break  # the rest of the frame has yet to come
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def _is_large(self) -> bool:
        """Whether so much has come that even one frame of it takes a turn."""
        return self.handshake_complete and len(self.conn.gate.buffer) > PIECE_BYTES

    def _must_wait(self) -> bool:
        """Whether the next frame waits: for the connection to be accepted, for the app to take a
        message, or for the next turn."""
        if self._waits or not self.handshake_complete or not self.queue.empty():
            return True
        if not self._frames_left:
            self._waits = True
            self.turns.wait(self)
        return self._waits

    def start_keepalive(self) -> None:
        super().start_keepalive()
        self._parse()  # what has come before the connection was accepted

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        if len(self.frames) >= FRAGMENTS:
            self._fail(POLICY, f"a message has more than {FRAGMENTS} frames")

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():  # or a client that only sends would have them pile up
            self.transport.write(pong)

    def send_receive_event_to_app(self) -> None:
        data, self.frames = b"".join(self.frames), []
        self._messages += 1
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
            return
        try:
            self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
        except UnicodeDecodeError:
            self._fail(INVALID_TEXT, "the text is no UTF-8")

    # --- how it ends --------------------------------------------------------------------------

    def _look(self) -> None:
        """End a connection whose client sends a message too slowly."""
        if self.transport.is_closing():
            return
        begun = self.frames or not self.conn.gate.closed
        message = self._messages if begun and not self.read_paused else None
        if message is not None and message == self._seen and self._came < PIECE_BYTES:
            self._fail(
                POLICY, f"{PIECE_BYTES} bytes of a message take over {self.read_timeout_s:g} s"
            )
            return
        self._seen, self._came = message, 0
        self._timer = self.loop.call_later(self.read_timeout_s, self._look)

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self.disconnected = True  # what the app still sends is dropped
        self.writable.set()

    def shutdown(self) -> None:
        """Leave the end to the app, if it has accepted the connection."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()

    async def run_asgi(self) -> None:
        """Run the app. uvicorn would log each upgrade that the app refuses as an error."""
        try:
            await self.app(self.scope, self.receive, self.send)
        except ClientDisconnected:
            pass
        except BaseException:
            self.logger.exception("failed to serve a WebSocket connection")
            self.send_500_response()
        if self.close_timer is None:
            self.transport.close()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(CLOSING_S, self.transport.abort)  # nothing, if it is closed by then


class _Frames(ServerProtocol):
    """A parser that parses a frame only when its gate is open."""

    gate: _Gate

    def parse(self) -> Generator[None]:
        self.reader = self.gate = _Gate()
        yield from super().parse()


class _Gate(StreamReader):
    """The bytes that have come, and a gate before each frame, which closes behind it."""

    closed = False

    def at_eof(self) -> Generator[None, None, bool]:
        """Called before each frame."""
        self.closed = True
        while self.closed:
            yield
        return (yield from super().at_eof())


def socket_protocol(*, read_timeout_s: float) -> type[SocketProtocol]:
    """A class to hand to uvicorn as `ws`."""
    attributes = {"turns": Turns(), "read_timeout_s": read_timeout_s}
    return type("SocketProtocol", (SocketProtocol,), attributes)
