"""An engine that has work and makes no step, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from trt_responses.engine import Health
from trt_responses.features.stall.install import GIVE_UP, MAX_FAILURES, StallWatch
from trt_responses.health.lifecycle import Lifecycle

if TYPE_CHECKING:
    from trt_responses.errors import ApiError
    from trt_responses.run.facts import RunFacts


PAUSE_S = 600.0


@dataclass
class Parts:
    """All that a watch looks at, with numbers that a test sets."""

    running: int = 0
    paused: int = 0
    now_s: float = 100.0
    progress_s: float = 100.0
    failed: list[ApiError] = field(default_factory=list)
    is_ready: bool = True

    def health(self) -> Health:
        return Health(alive=True, ready=self.is_ready, last_progress_ns=int(self.progress_s * 1e9))

    def fail_begun(self, error: ApiError) -> None:
        self.failed.append(error)
        self.running = 0


def watch_of(parts: Parts, lifecycle: Lifecycle) -> StallWatch:
    return StallWatch(
        parts.health,
        lambda: parts.running > parts.paused,
        lifecycle,
        fail_begun=parts.fail_begun,
        stall_s=10,
        pause_s=PAUSE_S,
        clock_ns=lambda: int(parts.now_s * 1e9),
    )


def is_stalled(watch: StallWatch, parts: Parts) -> bool:
    return watch.reason(parts.health().last_progress_ns) is not None


def ready() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.ready()
    return lifecycle


def test_an_engine_without_work_may_stand_still() -> None:
    parts = Parts()
    watch = watch_of(parts, ready())
    parts.now_s += 1000
    watch.look()
    assert not is_stalled(watch, parts)
    parts.running = 1
    parts.now_s += 9
    assert not is_stalled(watch, parts), "its work has just begun"


def test_work_that_waits_for_an_engine_to_come_back_is_none() -> None:
    parts = Parts(running=2, paused=2)
    watch = watch_of(parts, ready())
    parts.now_s += 1000
    watch.look()
    assert not is_stalled(watch, parts)
    assert not parts.failed
    parts.paused = 1
    parts.now_s += 10
    assert is_stalled(watch, parts)


def test_work_without_a_step_is_a_stall_and_a_step_ends_it() -> None:
    parts = Parts(running=1)
    watch = watch_of(parts, ready())
    parts.now_s += 10
    assert is_stalled(watch, parts)
    assert watch.still_s(parts.health().last_progress_ns) == 10
    parts.progress_s = parts.now_s
    assert not is_stalled(watch, parts)


def test_work_that_an_engine_holds_while_it_mends_itself_waits_as_long_as_a_pause_may_take() -> (
    None
):
    parts, lifecycle = Parts(running=1), ready()
    watch = watch_of(parts, lifecycle)
    for parts.is_ready in (False, True, False):
        for _ in range(6):
            parts.now_s += PAUSE_S / 6 - 1 if not parts.is_ready else 1
            watch.look()
            assert not is_stalled(watch, parts)
    assert not parts.failed
    parts.now_s += 6
    watch.look()
    assert [error.code for error in parts.failed] == ["engine_lost"]
    assert "away for more than 600 s" in parts.failed[0].message
    assert lifecycle.state == "ready"


def test_what_stands_still_for_long_fails_and_after_several_times_the_server_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, lifecycle = Parts(running=1), ready()
    watch = watch_of(parts, lifecycle)
    for time in range(1, MAX_FAILURES + 1):
        assert lifecycle.state == "ready"
        parts.running = 1
        parts.now_s += GIVE_UP * 10 - 1
        watch.look()
        assert len(parts.failed) == time - 1
        parts.now_s += 1
        watch.look()
        assert len(parts.failed) == time
        assert "no step for 30 s" in parts.failed[-1].message
        assert parts.failed[-1].code == "engine_lost"
        assert f"no step for 30 s stalls_in_a_row={time}" in caplog.messages[-1]
    assert lifecycle.state == "failed"


@pytest.mark.parametrize(("status", "forgiven"), [("completed", True), ("failed", False)])
def test_a_good_end_between_two_failures_is_a_new_beginning(status: str, forgiven: bool) -> None:
    parts, lifecycle = Parts(running=1), ready()
    watch = watch_of(parts, lifecycle)
    for _ in range(MAX_FAILURES):
        watch.run_ended(cast("RunFacts", SimpleNamespace(response=SimpleNamespace(status=status))))
        parts.running = 1
        parts.now_s += GIVE_UP * 10
        watch.look()
    assert len(parts.failed) == MAX_FAILURES
    assert (lifecycle.state == "ready") is forgiven
