"""A server's way from its start to its end, by a clock that the test moves."""

from __future__ import annotations

import pytest

from trt_responses.errors import ServerDraining, ServerStarting
from trt_responses.health.lifecycle import Lifecycle


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_start_says_what_it_is_at_and_refuses_everything() -> None:
    clock = Clock()
    life = Lifecycle(clock)
    life.start()
    life.step("loading the engine")
    clock.now_s += 12
    with pytest.raises(ServerStarting, match="loading the engine for 12 s") as refused:
        life.check_open()
    assert (refused.value.status, refused.value.code) == (503, "starting")
    life.ready()
    assert (life.state, life.reason) == ("ready", None)
    life.check_takes_work()


def test_a_drain_takes_work_for_its_linger_and_answers_the_rest_until_it_closes() -> None:
    clock = Clock()
    life = Lifecycle(clock)
    life.ready()
    life.drain(5)
    assert life.state == "draining"
    clock.now_s += 4.9
    life.check_takes_work()
    clock.now_s += 0.2
    life.check_open()
    with pytest.raises(ServerDraining) as refused:
        life.check_takes_work()
    assert (refused.value.status, refused.value.code) == (503, "server_draining")
    assert refused.value.retry_after_s in range(1, 6)
    life.close()
    with pytest.raises(ServerDraining):
        life.check_open()


def test_a_second_drain_can_only_shorten_the_linger() -> None:
    clock = Clock()
    life = Lifecycle(clock)
    life.ready()
    life.drain(5)
    life.drain(60)
    assert life.linger_left_s == 5
    life.drain(0)
    assert life.linger_left_s == 0


def test_a_drain_that_comes_while_it_starts_stands() -> None:
    life = Lifecycle(Clock())
    life.start()
    life.drain(5)
    life.step("loading the engine")
    life.ready()
    assert life.draining
    assert life.linger_left_s == 0


def test_what_has_failed_stays_so_until_it_is_started_again() -> None:
    life = Lifecycle(Clock())
    life.ready()
    life.fail("the engine is lost")
    life.drain(5)
    assert (life.state, life.reason) == ("failed", "the engine is lost")
    life.start()
    life.ready()
    assert life.state == "ready"
