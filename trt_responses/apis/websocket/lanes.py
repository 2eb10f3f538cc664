"""The lanes of a connection: what waits on each, and which response each can go on from.

Knows records and the store's seam; knows no frame but by its event, and no run but by its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from trt_responses.apis.websocket.frames import ClientEvent
from trt_responses.apis.websocket.steering import (
    COMPLETED,
    MOST,
    MOST_BYTES,
    NOT_FOUND,
    TOO_MANY,
    Steer,
    Steered,
    Submission,
)
from trt_responses.apis.websocket.writers import FrameWriter, KeptFrames
from trt_responses.errors import InvalidRequest
from trt_responses.feature import Step
from trt_responses.run.commit import Write
from trt_responses.run.draft import Draft
from trt_responses.run.run import Run
from trt_responses.store import Found, Record, Records

REMEMBERED = 64
"""Responses of which a lane knows that it has made them."""


class Waiting(NamedTuple):
    """A request that waits for its turn."""

    event: ClientEvent
    arrival_ns: int
    steered: Steered | None = None
    """It goes on by itself from a response that was steered."""


class Lane:
    """Responses that are made one after another. The latest can be continued, though unstored."""

    def __init__(self, stream_id: str | None, lanes: Lanes) -> None:
        self.stream_id = stream_id
        self.waiting: deque[Waiting] = deque()
        self.busy = False
        self.run: Run | None = None
        self.writer: FrameWriter | KeptFrames | None = None
        self.latest: Record | None = None
        self.stores = False
        """Whether the store keeps what is being made."""
        self.newest = ""
        """The id of the response that is being made, or was made last."""
        self.made: deque[str] = deque(maxlen=REMEMBERED)
        """Its id, and those before it."""
        self._last_number = 0
        self.headers: Mapping[str, str] = {}
        """Of a response that goes on without the connection."""
        self.steered: dict[str, Steered] = {}
        """Responses that were steered, while the messages wait."""
        self.lanes = lanes

    def begin(self, run: Run, writer: FrameWriter | KeptFrames) -> None:
        self.run, self.writer, self.newest = run, writer, run.id
        self.made.append(run.id)

    def end(self) -> None:
        self._last_number, self.run, self.writer = self.last_number, None, None

    @property
    def last_number(self) -> int:
        """The number of the newest response's last event."""
        return self._last_number if self.run is None else max(0, self.run.log.next_number - 1)

    @property
    def submissions(self) -> list[Submission]:
        """The messages that wait."""
        return [one for steered in self.steered.values() for one in steered.submissions]

    def remember(self, record: Record) -> None:
        """Note the latest response; one that is stored is found in the store."""
        self.latest = None if self.stores else replace(record, body=b"")
        self.lanes.trim(self)

    def forget(self, response_id: object) -> None:
        """A request that went on from this response has failed."""
        if self.latest is not None and self.latest.id == response_id:
            self.latest = None

    def leave(self) -> None:
        """Drop waiting requests and cancel the run, unless it goes on: the client has left."""
        self.waiting.clear()
        if self.writer is not None:
            self.writer.drop()
        if self.run is not None and not self.run.kept:
            self.run.cancel()


class LaneStep(Step):
    """Has a lane's response go on from its latest, and be its latest."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    async def acquire(self, draft: Draft) -> None:
        draft.records = self._lane.lanes

    async def committed(self, write: Write, draft: Draft) -> None:
        if write.record.continuable:
            self._lane.remember(write.record)


class Lanes:
    """All lanes of one connection: the one without a name, and as many with one as may be."""

    def __init__(self, records: Records, *, most: int, memory_bytes: int) -> None:
        self._records = records
        self._most = most
        self._memory_bytes = memory_bytes
        self._lanes: dict[str | None, Lane] = {None: Lane(None, self)}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def named(self, stream_id: str | None) -> Lane:
        lane = self._lanes.get(stream_id)
        if lane is None:
            if len(self._lanes) > self._most:
                raise InvalidRequest(
                    "This connection has reached the maximum number of distinct stream IDs "
                    f"({self._most}). Reuse an existing stream_id or open a new WebSocket "
                    "connection.",
                    param="stream_id",
                    code="websocket_stream_limit_reached",
                )
            lane = self._lanes[stream_id] = Lane(stream_id, self)
        return lane

    async def get(self, response_id: str, owner: str) -> Found:
        """A lane's latest response, or one of the store's."""
        for lane in self:
            if lane.latest is not None and lane.latest.id == response_id:
                return lane.latest
        return await self._records.get(response_id, owner)

    def maker_of(self, response_id: object) -> Lane | None:
        """The lane that makes this response, or has made it."""
        return next((lane for lane in self if response_id in lane.made), None)

    def running(self, response_id: str) -> Run | None:
        """The run of this response, if it is being made."""
        lane = self.maker_of(response_id)
        return lane.run if lane is not None and lane.newest == response_id else None

    def submit(self, wanted: Steer, sent: bytes) -> tuple[Lane, Submission]:
        """Keep a message with its response. Raises an `InvalidRequest` where that takes none."""
        response_id, messages = wanted.previous_response_id, wanted.messages
        if (lane := self.maker_of(response_id)) is None:
            why = f"Response '{response_id:.100}' was not made on this connection."
            raise InvalidRequest(why, code=NOT_FOUND)
        if (steered := lane.steered.get(response_id)) is None:
            if lane.run is None or lane.newest != response_id:
                why = f"Response '{response_id}' has ended: send the input with 'response.create'."
                raise InvalidRequest(why, code=COMPLETED)
            steered = Steered(lane.run)
        waiting = [len(one.sent) for each in self for one in each.submissions]
        if len(waiting) >= MOST or sum(waiting) + len(sent) > MOST_BYTES:
            raise InvalidRequest("Too many messages wait on this connection.", code=TOO_MANY)
        lane.steered[response_id] = steered
        return lane, steered.add(response_id, sent, messages)

    def trim(self, newest: Lane) -> None:
        """Forget other lanes' responses, then the newest, until the rest fits."""
        for lane in (*(each for each in self if each is not newest), newest):
            if sum(map(_size, self)) <= self._memory_bytes:
                return
            lane.latest = None


def _size(lane: Lane) -> int:
    blocks = lane.latest.blocks if lane.latest is not None else ()
    return sum(len(block.item) + len(block.ids) for block in blocks)
