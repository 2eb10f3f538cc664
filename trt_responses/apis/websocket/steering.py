"""Messages that steer the responses of a connection: accepted, and kept until a response takes
them.

Knows no lane and no frame; sends nothing and starts no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.features.steer.messages import (
    NOT_ACTIVE,
    NOT_SUPPORTED,
    Steering,
    required_input,
    steerable,
    successor,
)
from trt_responses.frozen import replace
from trt_responses.run.parts import mint
from trt_responses.run.run import Run
from trt_responses.wire.items import InputMessage, ItemPlace

Json = dict[str, Any]

MOST, MOST_BYTES = 64, 4 * 1024 * 1024
"""Messages that may wait on one connection for what goes on behind their responses."""
NOT_FOUND, COMPLETED = "response_not_found", "response_already_completed"
INVALID, TOO_MANY = "invalid_input", "too_many_pending_steers"
NO_SUCCESSOR = "successor_creation_failed"
CODES = (NOT_FOUND, COMPLETED, NOT_ACTIVE, NOT_SUPPORTED, TOO_MANY)


class Steer(Steering):
    """A client's event that steers a response."""

    type: Literal["response.steer"]
    previous_response_id: str


class Submission(NamedTuple):
    """One accepted event."""

    id: str
    response_id: str
    sent: bytes
    """The input as it came, in JSON."""
    messages: Sequence[InputMessage]

    def event(self, kind: str, **more: Any) -> Json:
        """An event that tells of it."""
        steer = {"id": self.id, "previous_response_id": self.response_id}
        return {"type": f"response.steer.{kind}", "steer": steer, **more}

    def failed(self, code: str, message: str) -> Json:
        """The event that gives the input back."""
        return failed(self.response_id, self.sent, InvalidRequest(message, code=code), self.id)


class Steered:
    """A response, and the messages that wait for what goes on behind it."""

    def __init__(self, run: Run) -> None:
        """Raises an `InvalidRequest` for a response that cannot be steered."""
        self.accepted = steerable(run)
        self.submissions: list[Submission] = []
        self.required: Sequence[Json] | None = None
        """What the client is to bring first; None: nothing, or the response has not ended."""

    @property
    def messages(self) -> list[InputMessage]:
        return [message for each in self.submissions for message in each.messages]

    @property
    def successor(self) -> Accepted:
        """The request that goes on by itself."""
        return successor(self.accepted, self.submissions[0].response_id, self.messages)

    def before(self, accepted: Accepted) -> Accepted:
        """A client's own request that goes on, with the messages before its input."""
        items, first = accepted.input, self.messages
        rest = [InputMessage(role="user", content=items)] if isinstance(items, str) else items
        own = [ItemPlace(f"input[{place}]") for place in range(len(rest))]
        places = [ItemPlace("input")] * len(first) + own
        return replace(accepted, input=[*first, *rest], places=places)

    def add(self, response_id: str, sent: bytes, messages: Sequence[InputMessage]) -> Submission:
        """Keep one more."""
        self.submissions.append(one := Submission(mint("steer"), response_id, sent, messages))
        return one

    def ended(self, run: Run) -> list[Json] | None:
        """The events to send when the run has ended; None: its successor follows."""
        last = run.log.response
        if last.status not in ("completed", "incomplete"):
            why = f"Response '{last.id}' has ended: {last.status}."
            return [each.failed(NOT_ACTIVE, why) for each in self.submissions]
        self.required = required_input(last)
        return [self.pending(each) for each in self.submissions] if self.required else None

    def pending(self, one: Submission) -> Json:
        """The event that says what a message waits for."""
        reason = "waiting_for_required_input"
        return one.event("pending", reason=reason, required_input=self.required)


def failed(response_id: str, sent: bytes, error: ApiError, steer_id: str | None = None) -> Json:
    """The event of a message that no response takes."""
    general = INVALID if isinstance(error, InvalidRequest) else NO_SUCCESSOR
    code = error.code if error.code in (*CODES, NO_SUCCESSOR) else general
    body = {"type": "invalid_request_error", "code": code, "message": error.message}
    items = orjson.loads(sent) or ""  # the event has no null
    if isinstance(items, list):  # the event's messages name their type, which clients may leave out
        items = [{"type": "message"} | each if isinstance(each, dict) else each for each in items]
    steer = {"input": items, "previous_response_id": response_id}
    named = {"id": steer_id} if steer_id else {}
    return {"type": "response.steer.failed", "error": body, "steer": named | steer}
