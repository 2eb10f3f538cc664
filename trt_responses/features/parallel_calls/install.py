"""A plan for several calls in one turn, although engines stop at the first `<|call|>`.

After each call the plan generates another header on trial. If it is a call of an offered tool, the
turn continues; any other header is dropped. Wraps any plan; no request and no engine here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trt_responses.features.guides.harmony_plans import MESSAGE_ENDS, Body, StepwisePlan
from trt_responses.features.guides.harmony_turns import steer
from trt_responses.harmony.dialect import Harmony
from trt_responses.language.gate import Gate
from trt_responses.language.steering import Segment
from trt_responses.setup.server import Server
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trt_responses.engine import Finish
    from trt_responses.features.guides.harmony_plans import Budget, Language
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import Guides, SteeringPlan


HEADER_TOKENS = 64
"""The maximum tokens of a header; a longer one names no tool."""
LEAST_TOKENS = 16
"""The tokens of a short call; with fewer left, no further call is begun."""
RECIPIENT = re.compile(rb"(?:^| )to=([^\s<]+)")


class CallGate(Gate):
    """A gate that admits a header if it is a complete call, and else nothing."""

    def __init__(self, recipients: Collection[str], token_bytes: Sequence[bytes]) -> None:
        super().__init__(MESSAGE_ENDS | {CONTROL.start}, ())
        self._recipients = recipients
        self._token_bytes = token_bytes
        self._held: list[int] = []

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        for place, token_id in enumerate(() if self.over else token_ids):
            self._held.append(token_id)
            if token_id == CONTROL.message or token_id in self._ends:
                self.over = True
                if token_id == CONTROL.message and self._calls():
                    self.discarded = list(token_ids[place + 1 :])
                    return tuple(self._held)
                break
        self.discarded += token_ids
        return ()

    def finish(self, finish: Finish) -> Sequence[int]:
        """Discard a header that was cut; the turn is complete without it."""
        self.over = self.over or finish != "error"
        return ()

    def _calls(self) -> bool:
        words = b"".join(
            self._token_bytes[i] if 0 <= i < FIRST_CONTROL_ID else b" " for i in self._held
        )
        recipient = RECIPIENT.search(words)
        return recipient is not None and recipient[1].decode("utf-8", "replace") in self._recipients


class ParallelCalls(StepwisePlan):
    """A plan followed by further calls, while the model makes them. `most` counts the first."""

    def __init__(
        self,
        plan: SteeringPlan,
        language: Language,
        guides: Guides,
        bodies: Mapping[str, Body],
        most: int,
        budget: Budget,
    ) -> None:
        super().__init__(language, guides, bodies, budget)
        self._plan = plan
        self._most = most

    def __str__(self) -> str:
        return f"{self._plan}, and up to {self._most - 1} more calls"

    def _turn(self) -> Iterator[Segment]:
        reader = self._reader
        assert reader is not None
        while (segment := self._plan.next(reader)) is not None:
            yield segment
        for _ in range(1, self._most):
            if not reader.kept or reader.kept[-1] != CONTROL.call or self._room() < LEAST_TOKENS:
                return
            yield self._header()
            if (body := self._begun(reader)) is None:
                reader.take_back()
                return
            yield self._body(body)

    def _room(self) -> int:
        return self._left(self._language.assistant)

    def _header(self) -> Segment:
        gate = CallGate(self._bodies, self._language.token_bytes)
        stops = tuple(sorted(MESSAGE_ENDS | {CONTROL.message}))
        tokens = min(HEADER_TOKENS, self._room())
        return Segment(tokens, stops, self._language.assistant, gate=gate, name="header")

    def _begun(self, reader: Reader) -> Body | None:
        return self._bodies.get(reader.recipient or "")


def install(server: Server) -> None:
    for dialect in server.dialects():
        if isinstance(dialect, Harmony):
            steer(dialect, ParallelCalls)
