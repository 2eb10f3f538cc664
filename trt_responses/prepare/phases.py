"""The phases of a preparation: the current one, the seconds of each, and an estimate of the rest.
Works with names, a clock and expected times; does none of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trt_responses.prepare.progress import Progress


class Phases:
    """Reports each phase to `progress`, with its number and the estimated time left."""

    def __init__(
        self,
        progress: Progress,
        clock: Callable[[], float],
        expected: Mapping[str, float],
        announce: Callable[[], object] = lambda: None,
    ) -> None:
        """`expected`: the seconds of each phase in order. `announce` is called before the first
        phase, and not at all if there is nothing to do."""
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
        """The seconds of each phase, of the last one up to now."""
        ends = [*(began for _, began in self._began[1:]), self._clock()]
        pairs = zip(self._began, ends, strict=True)
        return {name: round(end - began, 3) for (name, began), end in pairs}


def rounded(seconds: float) -> str:
    """A time to wait, in words for a person."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
