"""Admission: who may begin a response, who waits for a place in the engine, and whose turn it is.

A response has its place in the engine for all of its segments, so that a run that has begun never
waits behind a new one. Places go to the owner who has fewest, and among equals to the one whose
last turn is longest ago: an owner who floods the server waits behind its own requests. Within an
owner, who came first goes first. Several front ends of one engine have a line each, and count
together: a place goes to the first request in all their lines. Knows owners, counts and a clock;
knows no HTTP and no engine.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Literal

from trt_responses.errors import RETRY_AFTER_S, Overloaded, ServerBusy
from trt_responses.features.limits.counts import Counts, Level, LocalCounts, OwnerCounts, Rank
from trt_responses.features.limits.keys import NO_LIMITS, OwnerLimits
from trt_responses.features.limits.rates import Bucket
from trt_responses.frozen import dataclass

LOOK_S = 0.005
"""Seconds between two looks for a place that another front end has left: there is no signal."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that may wait at once, over all owners."""

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
        counts: Counts | None = None,
    ) -> None:
        """`places` are those of the engine, now; `limits_of` are an owner's own. What it counts
        stands in `counts`, where other front ends may count, too."""
        self._places = places
        self._bounds = bounds or Bounds()
        self._limits_of = limits_of
        self._clock_s = clock_s
        self._counts: Counts = counts or LocalCounts()
        self._looking: asyncio.TimerHandle | None = None
        self._owners: dict[str, _Owner] = {}
        self.running = 0
        """Responses that run, of this front end alone, as are all counts below."""
        self.waiting = 0
        """Responses that wait in line, and those whose prompt is still being read."""
        self.waiting_tokens = 0

    def enter(self, owner: str) -> Place:
        """Give one response a place, or raise the reason why it has to come again later."""
        limits, counts = self._limits_of(owner), self._counts
        with counts.lock:
            known, theirs = self._owners.get(owner), counts.owner(owner)
            held = known or self._owners.setdefault(owner, _Owner(theirs))
            if held.limits is not limits or held.counts is not theirs:
                held.set_limits(limits, theirs, self._clock_s)
            if held.limited:
                self._check_owner(held)
            full = counts.waiting >= self._bounds.waiting
            if full and counts.waiting >= self._bounds.waiting + max(0, self._free()):
                raise ServerBusy(
                    f"{counts.running} responses are being made and {counts.waiting} wait, which "
                    "is all this server takes: try again."
                )
            if held.requests is not None:
                held.requests.take(1)
            self._count(held, waiting=1)
        return Place(self, held)

    def check_rates(self, owner: str, tokens: int) -> None:
        with self._counts.lock:
            if (held := self._owners.get(owner)) is not None:
                _check_rates(held, tokens)

    def _count(
        self, owner: _Owner, *, running: int = 0, waiting: int = 0, waiting_tokens: int = 0
    ) -> None:
        self.running += running
        self.waiting += waiting
        self.waiting_tokens += waiting_tokens
        self._counts.add(owner.counts, running, waiting, waiting_tokens)

    def look(self) -> None:
        """Give free places to those who wait. Called when a place may have become free."""
        with self._counts.lock:
            self._give_places()
        if self.waiting:
            self._look_later()

    def _give_places(self) -> None:
        now_s = self._clock_s()
        others = self._counts.offers(now_s)
        while (owner := self._next_owner()) is not None and self._free() > 0:
            if any(other < owner.rank for other in others):
                break
            self._grant(owner.line.popleft())
        if owner is None:
            self._counts.offer(None, 0.0, now_s)
        else:
            self._counts.offer(owner.counts, owner.line[0].since_s, now_s)

    def _look_later(self) -> None:
        if self._counts.shared and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        self.look()

    def _free(self) -> int:
        return self._places() - self._counts.running

    def _next_owner(self) -> _Owner | None:
        able = [owner for owner in self._owners.values() if owner.line and owner.may_run]
        return min(able, key=lambda owner: owner.rank, default=None)

    def _grant(self, place: Place) -> None:
        self._count(place.owner, running=1, waiting=-1, waiting_tokens=-place.tokens)
        place.owner.counts.take_turn()
        place.granted()

    def line_up(self, place: Place, tokens: int) -> None:
        """Put a place in line. Raises when too many tokens would wait."""
        with self._counts.lock:
            owner = place.owner
            alone = self._counts.waiting == 1 and self.waiting == 1
            if alone and (not owner.limited or owner.may_run) and self._free() > 0:
                self._grant(place)
            else:
                self._wait(place, tokens)
            if owner.tokens is not None:
                owner.tokens.take(tokens)
        if self.waiting:
            self._look_later()

    def _wait(self, place: Place, tokens: int) -> None:
        others, place.tokens, place.since_s = self._counts.waiting_tokens, tokens, self._clock_s()
        self._count(place.owner, waiting_tokens=tokens)
        place.owner.line.append(place)
        self._give_places()
        waits = place.state == "waiting" and others > 0
        if waits and others + tokens > self._bounds.waiting_tokens:
            raise ServerBusy(
                f"Prompts of {others} tokens wait, and with the {tokens} of this one they would be "
                f"more than the {self._bounds.waiting_tokens} that this server takes: try again."
            )

    def left(self, place: Place, generated_tokens: int) -> None:
        """Count a response as over, with the tokens that it wrote."""
        owner = place.owner
        with self._counts.lock:
            if owner.tokens is not None:
                owner.tokens.take(generated_tokens)
            if place.state == "running":
                self._count(owner, running=-1)
            else:
                if place.state == "waiting":
                    owner.line.remove(place)
                self._count(owner, waiting=-1, waiting_tokens=-place.tokens)
            if self.waiting or self._counts.shared:
                self._give_places()
        if self.waiting:
            self._look_later()

    def count_background(self, owner: str, more: int) -> int:
        """Count so many more background responses of an owner, or less, and return how many there
        are."""
        with self._counts.lock:
            counts = self._counts.owner(owner)
            counts.add(background=more)
            return counts.background

    def _check_owner(self, owner: _Owner) -> None:
        limits, counts = owner.limits, owner.counts
        if limits.waiting is not None:
            running = min(limits.running or math.inf, max(1, self._places()))
            if counts.running + counts.waiting >= running + limits.waiting:
                raise _over(
                    f"{counts.running} responses of yours are being made and {counts.waiting} "
                    "wait, which is all that you may have at once",
                    random.randint(*RETRY_AFTER_S),
                    owner,
                )
        _check_rates(owner)


class Place:
    """The place of one response, which is read, waits, runs and is gone."""

    def __init__(self, admission: Admission, owner: _Owner) -> None:
        self.owner = owner
        self.tokens = 0
        """Those of its prompt, once it waits."""
        self.since_s = 0.0
        """The time at which it lined up."""
        self.state: Literal["entered", "waiting", "running", "gone"] = "entered"
        self._admission = admission
        self._turn: asyncio.Future[None] | None = None

    def line_up(self, prompt_tokens: int) -> None:
        self.state = "waiting"
        self._admission.line_up(self, prompt_tokens)

    def turn(self) -> asyncio.Future[None] | None:
        if self.state != "waiting":
            return None
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
        return self._turn

    def granted(self) -> None:
        self.state = "running"
        if self._turn is not None:
            self._end_wait(self._turn)

    def headers(self) -> dict[str, str]:
        return self.owner.headers() if self.owner.limited else {}

    def leave(self, generated_tokens: int = 0) -> None:
        if self.state != "gone":
            self._admission.left(self, generated_tokens)
            self.state = "gone"
            if self._turn is not None:
                self._end_wait(self._turn)

    def _end_wait(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_result(None)


class _Owner:
    """One owner's responses at once, and what is left of its minute."""

    def __init__(self, counts: OwnerCounts) -> None:
        self.limits = NO_LIMITS
        self.limited = False
        """Whether any limit is set."""
        self.counts = counts
        self.line: deque[Place] = deque()
        """The places that wait in this front end."""
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    @property
    def may_run(self) -> bool:
        return self.limits.running is None or self.counts.running < self.limits.running

    @property
    def rank(self) -> Rank:
        """The order of owners: the smallest rank has the next turn."""
        return self.counts.running, self.counts.last_turn, self.line[0].since_s

    def set_limits(
        self, limits: OwnerLimits, counts: OwnerCounts, clock_s: Callable[[], float]
    ) -> None:
        """Take over the owner's limits, which may have changed since its last request."""
        self.limits, self.counts, self.limited = limits, counts, limits != NO_LIMITS
        self.requests = _bucket(limits.requests_per_minute, clock_s, self.counts.requests)
        self.tokens = _bucket(limits.tokens_per_minute, clock_s, self.counts.tokens)

    def headers(self) -> dict[str, str]:
        requests = self.requests.headers("requests") if self.requests else {}
        return requests | (self.tokens.headers("tokens") if self.tokens else {})


def _bucket(per_minute: int | None, clock_s: Callable[[], float], held: Level) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, clock_s, held)


def _check_rates(owner: _Owner, tokens: int = 0) -> None:
    for bucket, needed, what in (
        *((owner.requests, 1.0, "requests"), (owner.tokens, float(tokens), "tokens")),
    ):
        if bucket is not None and (wait_s := bucket.seconds_until(needed)):
            raise _over(
                f"You may use {bucket.per_minute} {what} a minute",
                math.ceil(wait_s),
                owner,
            )


def _over(why: str, wait_s: int, owner: _Owner) -> Overloaded:
    """The refusal of an owner that is over a limit. Codex reads the wait out of the message, other
    clients out of the header."""
    return Overloaded(
        f"{why}: please try again in {wait_s}s.", retry_after_s=wait_s, headers=owner.headers()
    )
