"""Requests and tokens a minute: buckets that fill evenly. Knows a clock; knows no owner."""

from __future__ import annotations

from collections.abc import Callable

from trt_responses.features.limits.counts import Level

MINUTE_S = 60.0


class Bucket:
    """Holds what may be used at once, a minute's worth at most. It may be overdrawn, since what a
    response costs is known at its end; then nothing is given until it has filled again.

    What it holds stands in `held`, where others may count, too."""

    def __init__(self, per_minute: int, clock_s: Callable[[], float], held: Level) -> None:
        self.per_minute = per_minute
        self._clock_s = clock_s
        self._held = held

    @property
    def level(self) -> float:
        return self._now()[0]

    def _now(self) -> tuple[float, float]:
        """The level now, and the time of it."""
        now_s, (level, at_s) = self._clock_s(), self._held.read()
        filled = level + (now_s - at_s) * self.per_minute / MINUTE_S
        return min(float(self.per_minute), filled), now_s

    def take(self, amount: float) -> None:
        """Take so much out of it, at once."""
        level, now_s = self._now()
        self._held.write(level - amount, now_s)

    def seconds_until(self, level: float) -> float:
        """How many seconds until the bucket holds so much; 0 when it does."""
        return max(0.0, (level - self.level) * MINUTE_S / self.per_minute)

    def headers(self, what: str) -> dict[str, str]:
        """The API's headers for it; `what` is `requests` or `tokens`."""
        return {
            f"x-ratelimit-limit-{what}": str(self.per_minute),
            f"x-ratelimit-remaining-{what}": str(max(0, int(self.level))),
            f"x-ratelimit-reset-{what}": duration(self.seconds_until(self.per_minute)),
        }


def duration(seconds: float) -> str:
    """A duration as the API writes it: `6m0s`, `1s`, `120ms`."""
    if 0 < seconds < 1:
        return f"{max(1, int(seconds * 1000))}ms"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
