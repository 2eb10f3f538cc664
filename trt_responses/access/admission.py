"""Admission: who may begin a response, who waits for a place in the engine, and whose turn it is.

A response has its place in the engine for all of its segments, so that a run that has begun never
waits behind a new one. Places go to the owner who has fewest, and among equals to the one whose
last turn is longest ago: an owner who floods the server waits behind its own requests. Within an
owner, who came first goes first. Knows owners, counts and a clock; knows no HTTP and no engine.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import deque
from typing import TYPE_CHECKING, Literal

from trt_responses.access.keys import NO_LIMITS
from trt_responses.access.rates import Bucket
from trt_responses.errors import RETRY_AFTER_S, Overloaded, ServerBusy
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.access.keys import OwnerLimits


LOOK_S = 0.02
"""So often one who waits looks for a place that others have left."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What waits at once, whoever it belongs to."""

    waiting: int = 256
    waiting_tokens: int = 1_000_000
    """Tokens of the prompts that wait. One prompt may always wait, however long it is."""


class Admission:
    """The line before the engine."""

    def __init__(
        self,
        places: Callable[[], int],
        bounds: Bounds | None = None,
        *,
        limits_of: Callable[[str], OwnerLimits] = lambda owner: NO_LIMITS,
        clock_s: Callable[[], float],
        elsewhere: Callable[[int], int] | None = None,
    ) -> None:
        """`places` are those of the engine, now; `limits_of` are an owner's own. `elsewhere` is
        told how many run here, and says how many of the places others have."""
        self._places = places
        self._bounds = bounds or Bounds()
        self._limits_of = limits_of
        self._clock_s = clock_s
        self._elsewhere = elsewhere
        self._looking: asyncio.TimerHandle | None = None
        self._owners: dict[str, _Owner] = {}
        self._turns = itertools.count(1)
        self.running = 0
        self.waiting = 0
        """Those in line, and those whose prompt is still being read."""
        self.waiting_tokens = 0

    def enter(self, owner: str) -> Place:
        """A place for one response, or the reason why it has to come again later."""
        limits = self._limits_of(owner)
        held = self._owners.get(owner) or self._owners.setdefault(owner, _Owner())
        held.set_limits(limits, self._clock_s)
        self._check_owner(held)
        free = max(0, self._free())
        if self.waiting >= self._bounds.waiting + free:
            raise ServerBusy(
                f"{self.running} responses are being made and {self.waiting} wait, which is all "
                "this server takes: try again."
            )
        if held.requests is not None:
            held.requests.take(1)
        held.waiting += 1
        self.waiting += 1
        return Place(self, held)

    def look(self) -> None:
        """Give free places to those who wait. Called when a place may have become free."""
        while self._free() > 0 and (owner := self._next_owner()) is not None:
            self._grant(owner.line.popleft())
        if self._elsewhere is not None and self.waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        """Nobody tells when a place becomes free elsewhere."""
        self._looking = None
        self.look()

    def _free(self) -> int:
        others = 0 if self._elsewhere is None else self._elsewhere(self.running)
        return self._places() - self.running - others

    def _next_owner(self) -> _Owner | None:
        able = [owner for owner in self._owners.values() if owner.line and owner.may_run]
        return min(able, key=lambda owner: (owner.running, owner.last_turn), default=None)

    def _grant(self, place: Place) -> None:
        owner = place.owner
        self._leave_line(place)
        owner.running += 1
        self.running += 1
        owner.last_turn = next(self._turns)
        place.granted()

    def line_up(self, place: Place) -> None:
        """Raises when the tokens that wait would be too many."""
        owner, others = place.owner, self.waiting_tokens
        owner.line.append(place)
        self.waiting_tokens += place.tokens
        self.look()
        waits = place.state == "waiting" and others > 0
        if waits and self.waiting_tokens > self._bounds.waiting_tokens:
            raise ServerBusy(
                f"Prompts of {others} tokens wait, and with the {place.tokens} of this one they "
                f"would be more than the {self._bounds.waiting_tokens} that this server takes: "
                "try again."
            )
        if owner.tokens is not None:
            owner.tokens.take(place.tokens)

    def left(self, place: Place, generated_tokens: int) -> None:
        owner = place.owner
        if owner.tokens is not None:
            owner.tokens.take(generated_tokens)
        if place.state == "running":
            owner.running -= 1
            self.running -= 1
        else:
            if place.state == "waiting":
                owner.line.remove(place)
            self._leave_line(place)
        self.look()

    def _leave_line(self, place: Place) -> None:
        place.owner.waiting -= 1
        self.waiting -= 1
        if place.state == "waiting":
            self.waiting_tokens -= place.tokens

    def _check_owner(self, owner: _Owner) -> None:
        limits = owner.limits
        if limits.waiting is not None:
            running = min(limits.running or math.inf, max(1, self._places()))
            if owner.running + owner.waiting >= running + limits.waiting:
                raise _over(
                    f"{owner.running} responses of yours are being made and {owner.waiting} wait, "
                    "which is all that you may have at once",
                    random.randint(*RETRY_AFTER_S),
                    owner,
                )
        for bucket, needed, what in (
            *((owner.requests, 1.0, "requests"), (owner.tokens, 0.0, "tokens")),
        ):
            if bucket is not None and (wait_s := bucket.seconds_until(needed)):
                raise _over(
                    f"You may use {bucket.per_minute} {what} a minute",
                    math.ceil(wait_s),
                    owner,
                )


class Place:
    """One response's place: being read, waiting, running, gone."""

    def __init__(self, admission: Admission, owner: _Owner) -> None:
        self.owner = owner
        self.tokens = 0
        self.state: Literal["entered", "waiting", "running", "gone"] = "entered"
        self._admission = admission
        self._turn: asyncio.Future[None] | None = None

    def line_up(self, prompt_tokens: int) -> None:
        self.tokens, self.state = prompt_tokens, "waiting"
        self._admission.line_up(self)

    def turn(self) -> asyncio.Future[None] | None:
        if self.state != "waiting":
            return None
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
        return self._turn

    def granted(self) -> None:
        self.state = "running"
        self._tell()

    def headers(self) -> dict[str, str]:
        return self.owner.headers()

    def leave(self, generated_tokens: int = 0) -> None:
        if self.state != "gone":
            self._admission.left(self, generated_tokens)
            self.state = "gone"
            self._tell()

    def _tell(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class _Owner:
    """What one owner has at once, and may use in a minute."""

    def __init__(self) -> None:
        self.limits = NO_LIMITS
        self.line: deque[Place] = deque()
        self.running = 0
        self.waiting = 0
        self.last_turn = 0
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    @property
    def may_run(self) -> bool:
        return self.limits.running is None or self.running < self.limits.running

    def set_limits(self, limits: OwnerLimits, clock_s: Callable[[], float]) -> None:
        """They may have changed since the last request."""
        if limits != self.limits:
            self.limits = limits
            self.requests = _bucket(self.requests, limits.requests_per_minute, clock_s)
            self.tokens = _bucket(self.tokens, limits.tokens_per_minute, clock_s)

    def headers(self) -> dict[str, str]:
        requests = self.requests.headers("requests") if self.requests else {}
        return requests | (self.tokens.headers("tokens") if self.tokens else {})


def _bucket(
    old: Bucket | None, per_minute: int | None, clock_s: Callable[[], float]
) -> Bucket | None:
    if per_minute is None:
        return None
    if old is None:
        return Bucket(per_minute, clock_s)
    old.resize(per_minute)
    return old


def _over(why: str, wait_s: int, owner: _Owner) -> Overloaded:
    """Codex reads the wait out of the message, other clients out of the header."""
    return Overloaded(
        f"{why}: please try again in {wait_s}s.", retry_after_s=wait_s, headers=owner.headers()
    )
