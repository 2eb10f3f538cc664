"""The seconds between a response's tokens, without a look at a clock for any token.

Ten times a second the tokens of all running responses are counted: the time since the last count is
shared by the tokens that have come. So sums and means are exact, and what lies between two counts
is evened out: a stall is seen when it is longer than a tenth of a second. A clock read at each step
would cost 2 % of a token. Knows counts and times; knows no run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from trt_responses.features.metrics.families import Histogram
from trt_responses.run.facts import Progress, RunFacts
from trt_responses.tasks import beside

COUNT_EVERY_S = 0.1


class TokenGaps:
    """A listener that also counts the tokens of all that is running every tenth of a second."""

    def __init__(
        self,
        gaps_s: Histogram,
        running: Callable[[], Iterable[Progress]],
        clock_ns: Callable[[], int],
    ) -> None:
        self._gaps_s = gaps_s
        self._running = running
        self._clock_ns = clock_ns
        self._counted: dict[str, tuple[int, int]] = {}
        """For each response: when it was counted last, and how many tokens it had."""

    def count(self) -> None:
        now_ns = self._clock_ns()
        for run in self._running():
            if run.first_token_ns is not None:
                self._count(run.id, run.first_token_ns, now_ns, run.tokens)

    def run_ended(self, facts: RunFacts) -> None:
        first_ns, last_ns, usage = facts.first_token_ns, facts.last_token_ns, facts.response.usage
        if first_ns is not None and last_ns is not None and usage is not None:
            self._count(facts.response.id, first_ns, last_ns, usage.output_tokens)
        self._counted.pop(facts.response.id, None)

    def _count(self, response_id: str, first_ns: int, now_ns: int, tokens: int) -> None:
        since_ns, before = self._counted.get(response_id, (first_ns, 1))
        if (fresh := tokens - before) > 0 and now_ns >= since_ns:
            self._gaps_s.observe((now_ns - since_ns) / fresh / 1e9, fresh)
            self._counted[response_id] = now_ns, tokens

    def life(self) -> AbstractAsyncContextManager[object]:
        """Count the running responses ten times a second, for as long as the context lasts."""
        return beside(self._count_often())

    async def _count_often(self) -> None:
        while True:
            await asyncio.sleep(COUNT_EVERY_S)
            self.count()
