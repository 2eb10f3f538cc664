"""Which phase of a long preparation runs, how long each took, and about how much is left.

Knows names, a clock and expectations; knows nothing of what is being done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.prepare.progress import Progress

BYTES_PER_S = 1e9
"""Reading weights, when nothing better is known."""
START_S, WARMUP_S, RESTART_S = 240.0, 120.0, 120.0
"""Beside the weights: tuning and compiling at the first start, graphs at every one."""


class Steps:
    """Tells `progress` of each phase with its number and the time that is left, as expected."""

    def __init__(
        self,
        progress: Progress,
        clock: Callable[[], float],
        weights_bytes: int,
        plan_only: bool,
        earlier: Mapping[str, float] | None = None,
    ) -> None:
        """`earlier`: what the phases took the last time, which is better than any guess."""
        load_s = weights_bytes / BYTES_PER_S
        self._expected = {"validate": load_s, "plan": 0.0}
        if not plan_only:
            self._expected |= {
                "start": START_S + load_s,
                "warm-up": WARMUP_S,
                "restart": RESTART_S + load_s,
            }
        known = earlier or {}
        self._expected = {name: known.get(name, guess) for name, guess in self._expected.items()}
        self._progress = progress
        self._clock = clock
        self._began: list[tuple[str, float]] = []

    @property
    def done(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._began)

    def begin(self, name: str, total_bytes: int = 0) -> None:
        self._began.append((name, self._clock()))
        names = list(self._expected)
        left_s = sum(self._expected[later] for later in names[names.index(name) :])
        place = f"{names.index(name) + 1} of {len(names)}"
        self._progress.phase(f"{name} ({place}, about {left(left_s)} left)", total_bytes)

    def seconds(self) -> dict[str, float]:
        """What each phase took, the last one up to now."""
        ends = [*(began for _, began in self._began[1:]), self._clock()]
        pairs = zip(self._began, ends, strict=True)
        return {name: round(end - began, 3) for (name, began), end in pairs}


def left(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
