"""One WebSocket connection: it takes requests, makes their responses lane by lane, and ends.

Knows frames, lanes and runs; knows no HTTP server, and no key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from starlette.types import Message, Receive, Send

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.model_names import ModelNames
from trt_responses.accept.responses import accept
from trt_responses.apis.websocket.frames import (
    STEER,
    ClientEvent,
    SocketSpelling,
    client_event,
    error_frame,
    frame_of,
)
from trt_responses.apis.websocket.intake import Intake
from trt_responses.apis.websocket.lanes import Lane, Lanes, LaneStep, Waiting
from trt_responses.apis.websocket.request import COLUMN, SocketRequest
from trt_responses.apis.websocket.settings import SocketNumbers
from trt_responses.apis.websocket.steering import (
    NO_SUCCESSOR,
    Steer,
    Steered,
    failed,
)
from trt_responses.apis.websocket.writers import FrameWriter, KeptFrames, request_of
from trt_responses.errors import ApiError, InvalidRequest, Overloaded
from trt_responses.features.steer.messages import STEERED, check_goes_on
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.web.body import COUNTED_AT_ONCE, check_values, in_pieces
from trt_responses.web.headers import (
    dropped_header,
    ignored_header,
    run_headers,
)
from trt_responses.web.jobs import installed, maker
from trt_responses.web.shared import Shared
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.parse import steps_of

logger = logging.getLogger(__name__)

WAITING_BODIES = 4
"""Of the largest size, that may wait on one connection."""
WAITING = 256
"""Requests that may wait on one connection, as many as wait for the engine by default."""
REFUSALS = 256
"""Requests refused in a row, behind which a connection is closed: no client that reads the answers
goes on for so long."""
IDLE_S = 90.0
"""Seconds that a connection may be open without a request, or idle while others wait for its place.
Clients send their first request at once, and connect anew when they are closed later."""
TAKING_S = 10.0
"""Seconds that a client gets to take the last frames before its connection is cut."""
NORMAL, NO_TEXT, POLICY, RESTART = 1000, 1003, 1008, 1012
"""Codes with which a connection is closed."""
TOO_OLD = InvalidRequest(
    "Responses websocket connection limit reached. Create a new websocket connection to continue.",
    code="websocket_connection_limit_reached",
)
TOO_IDLE = InvalidRequest(
    f"No request has come for {IDLE_S:g} s. Create a new websocket connection to continue.",
    code="websocket_connection_limit_reached",
)
TOO_MANY_REFUSED = InvalidRequest(
    f"{REFUSALS} requests in a row were refused: the connection is closed.",
    code="websocket_refusal_limit_reached",
)


class SlowClient(Exception):
    """The client does not take what is written to it."""


class Connection:
    """One client's connection. Its key is checked again before each response."""

    def __init__(
        self, shared: Shared, intake: Intake, send: Send, owner: Callable[[], str], dialect: Dialect
    ) -> None:
        numbers = SocketNumbers.of(shared.settings)
        self.owner = owner()
        self._turns = intake.of(self.owner)
        self._shared = shared
        self._send = send
        self._owner = owner
        self._dialect = dialect
        self._lanes = Lanes(
            shared.parts.store, most=numbers.websocket_lanes, memory_bytes=numbers.websocket_bytes
        )
        self._places = asyncio.Semaphore(numbers.websocket_running)
        self._waiting = 0
        self._waiting_bytes = 0
        self._refused = 0
        """Requests in a row."""
        self._used = self._active = False
        """Whether a response has been made, and whether a request has come since the last look."""
        self.idle_looks = 0
        """How many looks in a row, `IDLE_S` apart, have found no request."""
        self._code: int | None = None
        """With which it is closed as soon as nothing is being made."""
        self._last_frame: str | None = None
        self._gone = False
        self._tasks = asyncio.TaskGroup()

    async def serve(self, receive: Receive) -> None:
        """Serve the client until it leaves or this server ends the connection."""
        try:
            async with self._tasks:
                timer = self._tasks.create_task(self._grow_old())
                try:
                    while (message := await receive())["type"] == "websocket.receive":
                        await self._take(message)
                finally:
                    timer.cancel()
                    self._leave()
        except* (SlowClient, OSError):
            pass  # the server closes what is left of it

    def end_idle(self) -> None:
        """End an idle connection, or one whose slot another client needs."""
        self.end(NORMAL, error_frame(TOO_IDLE, None))

    def end(self, code: int = RESTART, last_frame: str | None = None) -> None:
        """Begin nothing new, and close when what is being made has ended."""
        if self._code is None:
            self._code, self._last_frame = code, last_frame
            for lane in self._lanes:
                lane.waiting.clear()
            self._close_if_idle()

    async def _grow_old(self) -> None:
        left_s = SocketNumbers.of(self._shared.settings).websocket_s
        while left_s > 0:
            await self._shared.sleep(min(IDLE_S, left_s))
            left_s -= IDLE_S
            busy = self._active or any(lane.busy for lane in self._lanes)
            self._active, self.idle_looks = False, 0 if busy else self.idle_looks + 1
            if self.idle_looks and not self._used:
                self.end_idle()
        self.end(NORMAL, error_frame(TOO_OLD, None))

    def _leave(self) -> None:
        self._gone = True
        for lane in self._lanes:
            lane.leave()

    def _close_if_idle(self) -> None:
        if self._code is not None and not (self._gone or any(lane.busy for lane in self._lanes)):
            self._tasks.create_task(self._close(self._code))

    async def _close(self, code: int) -> None:
        try:
            async with asyncio.timeout(TAKING_S):
                if self._last_frame is not None:
                    await self._tell(self._last_frame)
                if not self._gone:
                    self._gone = True
                    await self._send({"type": "websocket.close", "code": code})
        except TimeoutError:
            raise SlowClient from None

    async def _tell(self, frame: str) -> None:
        if not self._gone:
            await self._send({"type": "websocket.send", "text": frame})

    # --- what comes ---------------------------------------------------------------------------

    async def _take(self, message: Message) -> None:
        if (text := message.get("text")) is None:
            await self._close(NO_TEXT)
            return
        if self._code is not None:
            return  # it is being closed, and says so
        stream_id = None
        try:
            async with self._turns.turn():
                frame = text.encode()
                await check_values(frame, self._shared.limits)
                if len(frame) > COUNTED_AT_ONCE:
                    await asyncio.sleep(0)  # before it is parsed
                event = client_event(frame)
            stream_id = event.stream_id
            if event.fields["type"] == STEER:
                await self._steer(event)
            else:
                self._queue(self._lanes.named(stream_id), event)
        except ApiError as error:
            await self._refuse(error_frame(error, stream_id))

    async def _steer(self, event: ClientEvent) -> None:
        """Take a message that steers a response: end that, and go on behind it."""
        fields, size = event
        named, sent = fields.get("previous_response_id"), _json_of(fields.get("input"))
        try:
            async with self._turns.turn():
                wanted = await in_pieces(steps_of(fields, size, Steer, self._shared.limits))
                running = self._lanes.running(wanted.previous_response_id)
                owner, runs, parts = self._owner(), self._shared.runs, self._shared.parts
                await check_goes_on(wanted.messages, running, runs, parts, owner)
                lane, one = self._lanes.submit(wanted, sent)
                steered, run = lane.steered[one.response_id], lane.run
                waits = steered.pending(one) if steered.required else None
        except ApiError as error:
            refused = failed(named if isinstance(named, str) else "", sent, error)
            await self._refuse(_numbered(refused, self._lanes.maker_of(named)))
            return
        self._active, self.idle_looks = True, 0
        await self._tell(_numbered(one.event("accepted"), lane))
        if waits is not None:
            await self._tell(_numbered(waits, lane))
        elif run is not None and lane.run is run:
            run.end_as(STEERED)

    async def _go_on(self, lane: Lane, run: Run) -> None:
        """Go on behind a response that was steered, or say why not."""
        if (steered := lane.steered.get(lane.newest)) is None:
            return
        if (events := steered.ended(run)) is None:
            if self._code is None:
                event = ClientEvent({"previous_response_id": lane.newest}, 0)
                self._waiting += 1
                lane.waiting.appendleft(Waiting(event, time.monotonic_ns(), steered))
            return
        if not steered.required:
            del lane.steered[lane.newest]
        for each in events:
            await self._tell(_numbered(each, lane))

    async def _give_back(self, lane: Lane, steered: Steered, why: str) -> None:
        """Give back the messages that no response has used."""
        for one in steered.submissions:
            await self._tell(_numbered(one.failed(NO_SUCCESSOR, why), lane))

    async def _refuse(self, frame: str) -> None:
        """Answer a request that makes no response; too many in a row end the connection."""
        self._refused += 1
        await self._tell(frame)
        if self._refused >= REFUSALS:
            self.end(POLICY, error_frame(TOO_MANY_REFUSED, None))

    def _queue(self, lane: Lane, event: ClientEvent) -> None:
        most = WAITING_BODIES * self._shared.limits.body_bytes
        if self._waiting_bytes + event.size > most or self._waiting >= WAITING:
            raise Overloaded(
                f"More than {WAITING} requests, or {most} bytes of them, wait on this connection: "
                "wait for answers, or open another.",
                retry_after_s=1,
            )
        self._active, self.idle_looks = True, 0
        self._waiting += 1
        self._waiting_bytes += event.size
        lane.waiting.append(Waiting(event, time.monotonic_ns()))
        if not lane.busy:
            lane.busy = True
            self._tasks.create_task(self._work(lane))

    # --- what is made -------------------------------------------------------------------------

    async def _work(self, lane: Lane) -> None:
        """Make all that waits on a lane, one after another."""
        while lane.waiting:
            async with self._places:
                if lane.waiting:  # it may have been cleared meanwhile
                    await self._respond(lane, lane.waiting.popleft())
        if self._code is not None:
            for steered in lane.steered.values():
                await self._give_back(lane, steered, "The connection is being closed.")
            lane.steered.clear()
        lane.busy = False
        self._close_if_idle()

    async def _respond(self, lane: Lane, waiting: Waiting) -> None:
        named = waiting.event.fields.get("previous_response_id")
        steered = lane.steered.pop(named, None) if isinstance(named, str) else None
        try:
            run = await self._start(lane, waiting, steered)
        except Exception as fault:
            error = _api_error(fault)
            if steered is not None:
                await self._give_back(lane, steered, error.message)
            if waiting.steered is None:
                lane.forget(named)
                await self._refuse(error_frame(error, lane.stream_id))
            await asyncio.sleep(0)  # the lane's next request may be refused, too
            return
        finally:
            self._waiting -= 1
            self._waiting_bytes -= waiting.event.size
        self._used, self._refused = True, 0
        if run.kept:
            await self._relay(lane, run)
        else:
            await self._make(lane, run)
        if run.log.begun.status == "failed":
            lane.forget(named)
        await self._go_on(lane, run)

    async def _accepted(self, waiting: Waiting) -> Accepted:
        """What a request asks for."""
        shared, (fields, size) = self._shared, waiting.event
        async with self._turns.turn():
            wanted = await in_pieces(steps_of(fields, size, SocketRequest, shared.limits))
            accepted = accept(wanted, self._dialect, shared.runs.built_in, COLUMN)
            if wanted.generate is False:
                accepted = replace(accepted, generates=False)
        shared.of(ModelNames).check(wanted.model)
        return accepted

    async def _start(self, lane: Lane, waiting: Waiting, steered: Steered | None) -> Run:
        shared, owner = self._shared, self._owner()
        if waiting.steered is not None:
            accepted = waiting.steered.successor
        else:
            accepted = await self._accepted(waiting)
            if steered is not None:
                accepted = steered.before(accepted)
        lane.stores = accepted.store
        ignored = shared.runs.ignored(accepted)
        headers = ignored_header(ignored) | dropped_header(accepted.unsupported_tools)
        if (jobs := maker(shared.jobs, accepted, stream=True)) is not None:
            body = b"" if waiting.steered is not None else request_of(waiting.event.fields)
            kept = await jobs.start(
                accepted,
                owner=owner,
                arrival_ns=waiting.arrival_ns,
                dialect=self._dialect,
                request=body,
            )
            lane.headers = headers | run_headers(kept)
            return kept
        run = await shared.runs.start(
            RunRequest(
                accepted,
                owner,
                waiting.arrival_ns,
                self._dialect,
                lambda *_: SocketSpelling(self._dialect, lane.stream_id, headers),
                (LaneStep(lane),),
            )
        )
        headers |= run_headers(run)
        return run

    async def _relay(self, lane: Lane, run: Run) -> None:
        """Write the events of a run that goes on without this connection."""
        frames = KeptFrames(self._tell, lane.stream_id, lane.headers)
        lane.begin(run, frames)
        try:
            if not self._gone:
                stream = installed(self._shared.jobs).stream(run, {})
                await stream({"type": "http"}, frames.receive, frames.send)
        finally:
            lane.end()

    async def _make(self, lane: Lane, run: Run) -> None:
        """Make a run, and write its events meanwhile."""
        runs, limits = self._shared.runs, self._shared.stream_limits
        try:
            if self._gone:
                return
            writer = FrameWriter(run, self._send, limits.max_backlog_bytes)
            lane.begin(run, writer)
            with limits.keep_alive.over(writer):
                await runs.make(run)
                if not (await writer.written() or self._gone):
                    raise SlowClient
        finally:
            lane.end()
            await runs.release(run)


def _json_of(value: Any) -> bytes:
    """An input as it came, to be given back; null where a number is too long."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b"null"


def _numbered(event: Mapping[str, Any], lane: Lane | None) -> str:
    """A frame beside a response's own events, with the number of the last of them."""
    number, stream_id = (lane.last_number, lane.stream_id) if lane is not None else (0, None)
    return frame_of({**event, "sequence_number": number}, stream_id)


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    logger.error("failed to serve a request over a WebSocket", exc_info=error)
    return ApiError(f"The server failed ({type(error).__name__}); the log has the details.")
