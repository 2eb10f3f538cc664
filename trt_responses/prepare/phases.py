"""Which phase of a preparation runs, how long each took, and about how much is left.

Knows names, a clock and expectations; knows nothing of what is being done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.prepare.progress import Progress


class Phases:
    """Tells `progress` of each phase, with its number and the time left where one is expected."""

    def __init__(
        self,
        progress: Progress,
        clock: Callable[[], float],
        expected: Mapping[str, float],
        announce: Callable[[], object] = lambda: None,
    ) -> None:
        """`expected`: the seconds of each phase in their order; `announce` comes before the first
        phase, and never where nothing has to be done."""
        self.advance = progress.advance
        self._expected = expected
        self._progress = progress
        self._clock = clock
        self._announce = announce
        self._began: list[tuple[str, float]] = []

    @property
    def done(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._began)

    def begin(self, name: str, total_bytes: int = 0, note: str = "") -> None:
        if not self._began:
            self._announce()
        self._began.append((name, self._clock()))
        note = note or self._place(name)
        self._progress.phase(f"{name} ({note})" if note else name, total_bytes)

    def _place(self, name: str) -> str:
        if name not in self._expected:
            return ""
        names = list(self._expected)
        left_s = sum(self._expected[later] for later in names[names.index(name) :])
        return f"{names.index(name) + 1} of {len(names)}, about {rounded(left_s)} left"

    def seconds(self) -> dict[str, float]:
        """What each phase took, the last one up to now."""
        ends = [*(began for _, began in self._began[1:]), self._clock()]
        pairs = zip(self._began, ends, strict=True)
        return {name: round(end - began, 3) for (name, began), end in pairs}


def rounded(seconds: float) -> str:
    """A time to wait, as a person would say it."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
