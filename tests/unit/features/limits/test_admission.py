"""Whose turn it is, and who is told to come again: by counts and a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_responses.errors import Overloaded, ServerBusy
from trt_responses.features.limits.admission import Admission, Bounds, Place
from trt_responses.features.limits.counts import LocalLevel
from trt_responses.features.limits.keys import OwnerLimits
from trt_responses.features.limits.rates import Bucket, duration

if TYPE_CHECKING:
    from collections.abc import Iterable


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Line:
    """An admission of some places, and what it gave to whom."""

    def __init__(self, places: int, **limits: int) -> None:
        self.places = places
        self.clock = Clock()
        self.limits = OwnerLimits(**limits)
        self.admission = Admission(
            lambda: self.places,
            Bounds(waiting=100, waiting_tokens=1000),
            limits_of=lambda owner: self.limits,
            clock_s=self.clock,
        )
        self.names: dict[Place, str] = {}

    def enter(self, owner: str, tokens: int = 1) -> Place:
        place = self.admission.enter(owner)
        self.names[place] = owner
        place.line_up(tokens)
        return place

    def several(self, owners: Iterable[str]) -> list[Place]:
        return [self.enter(owner) for owner in owners]

    def running(self) -> list[str]:
        return sorted(owner for place, owner in self.names.items() if place.state == "running")

    def order(self) -> list[str]:
        """Owners in the order of their turns, when each response ends before the next begins."""
        turns = []
        while running := [place for place in self.names if place.state == "running"]:
            turns.append(self.names[running[0]])
            running[0].leave()
        return turns


def test_places_go_round_between_owners_whoever_floods() -> None:
    line = Line(1)
    line.several("aaaaaabbc")
    assert line.order() == ["a", "b", "c", "a", "b", "a", "a", "a", "a"]


def test_the_owner_with_fewest_running_is_next() -> None:
    line = Line(3)
    line.several("aaaaa")
    line.several("bbb")
    assert line.running() == ["a", "a", "a"]
    for place in [place for place in line.names if place.state == "running"][:3]:
        place.leave()
    assert line.running() == ["a", "b", "b"]


def test_an_owner_at_its_limit_waits_and_others_pass() -> None:
    line = Line(4, running=1)
    line.several("aaab")
    assert line.running() == ["a", "b"]
    assert (line.admission.running, line.admission.waiting) == (2, 2)


def test_more_than_may_wait_are_told_to_come_again() -> None:
    line = Line(2)
    line.several("ab" * 51)
    assert (line.admission.running, line.admission.waiting) == (2, 100)
    with pytest.raises(ServerBusy) as refused:
        line.enter("c")
    assert (refused.value.status, refused.value.code) == (503, "server_busy")
    assert refused.value.retry_after_s in range(1, 6)


def test_an_owner_over_its_own_bound_is_told_so_and_others_are_let_in() -> None:
    line = Line(2, waiting=3)
    line.several("aaaaa")
    with pytest.raises(Overloaded) as refused:
        line.enter("a")
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert refused.value.retry_after_s is not None
    assert f"try again in {refused.value.retry_after_s}s" in refused.value.message
    line.enter("b")


def test_those_whose_prompts_are_still_read_count_as_waiting() -> None:
    admission = Admission(lambda: 1, Bounds(waiting=1), clock_s=Clock())
    first, second = admission.enter("a"), admission.enter("a")
    with pytest.raises(ServerBusy):
        admission.enter("a")
    first.leave()
    third = admission.enter("a")
    third.line_up(5)
    second.line_up(5)
    assert (third.state, second.state) == ("running", "waiting")


def test_tokens_that_wait_are_bounded_but_one_prompt_may_always_wait() -> None:
    line = Line(1)
    line.enter("a", 5000)
    long = line.enter("a", 5000)
    with pytest.raises(ServerBusy, match="5000 tokens wait"):
        line.enter("b", 1)
    refused = list(line.names)[-1]
    refused.leave()  # as runs do with one that raised
    long.leave()
    for _ in range(10):
        line.enter("b", 100)
    with pytest.raises(ServerBusy):
        line.enter("b", 1)


def test_whoever_leaves_the_line_frees_its_place_and_hears_of_it() -> None:
    async def story() -> None:
        line = Line(1)
        first, second, third = line.several("aaa")
        waits, turn = second.turn(), third.turn()
        assert waits is not None
        assert turn is not None
        second.leave()
        second.leave()
        assert waits.done()
        assert line.admission.waiting == 1
        first.leave()
        assert turn.done()
        assert third.turn() is None
        third.leave()
        assert (line.admission.running, line.admission.waiting_tokens) == (0, 0)

    asyncio.run(story())


def test_places_that_come_back_are_given_out_when_somebody_looks() -> None:
    line = Line(0)
    line.several("ab")
    assert line.running() == []
    line.places = 2
    line.admission.look()
    assert line.running() == ["a", "b"]


def test_requests_a_minute_are_refused_with_the_wait_and_the_headers() -> None:
    line = Line(100, requests_per_minute=6)
    line.several("a" * 6)
    with pytest.raises(Overloaded) as refused:
        line.enter("a")
    assert refused.value.retry_after_s == 10
    assert "6 requests a minute: please try again in 10s." in refused.value.message
    assert refused.value.headers == {
        "x-ratelimit-limit-requests": "6",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "retry-after": "10",
        "x-should-retry": "true",
    }
    line.enter("b")
    line.clock.now_s += 10
    line.enter("a")


def test_tokens_a_minute_count_what_was_read_and_written() -> None:
    line = Line(100, tokens_per_minute=600)
    place = line.enter("a", 300)
    place.leave(400)
    with pytest.raises(Overloaded, match="600 tokens a minute: please try again in 10s") as refused:
        line.enter("a")
    assert refused.value.headers["x-ratelimit-remaining-tokens"] == "0"
    line.clock.now_s += 10.1
    line.enter("a")


def test_limits_that_change_hold_from_the_next_request_on() -> None:
    line = Line(100, requests_per_minute=60)
    line.enter("a")
    line.limits = OwnerLimits(requests_per_minute=1)
    line.enter("a")
    with pytest.raises(Overloaded):
        line.enter("a")
    line.limits = OwnerLimits()
    line.enter("a")


def test_a_bucket_never_holds_more_than_a_minute_of_it() -> None:
    clock = Clock()
    bucket = Bucket(60, clock, LocalLevel())
    clock.now_s += 3600
    assert bucket.level == 60
    bucket.take(90)
    assert bucket.seconds_until(0) == 30


@pytest.mark.parametrize(
    ("seconds", "written"), [(0, "0s"), (0.1204, "120ms"), (1, "1s"), (59.9, "59s"), (360, "6m0s")]
)
def test_a_duration_is_written_as_the_api_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60))
def test_whatever_comes_and_goes_the_counts_are_right(acts: list[tuple[str, int]]) -> None:
    line = Line(2, running=2)
    held: list[Place] = []
    for owner, number in acts:
        if number < 3 or not held:
            held.append(line.enter(owner, number))
        else:
            held.pop(number % len(held)).leave(number)
        states = [place.state for place in held]
        assert line.admission.running == states.count("running") <= 2
        assert line.admission.waiting == states.count("waiting")
        assert line.admission.waiting_tokens == sum(
            place.tokens for place in held if place.state == "waiting"
        )
        assert states.count("running") == 2 or "waiting" not in states
