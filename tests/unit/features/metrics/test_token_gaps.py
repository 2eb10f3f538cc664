"""Seconds between tokens, from counts that are taken now and then."""

from __future__ import annotations

from dataclasses import dataclass

from trt_responses.features.metrics.families import Histogram
from trt_responses.features.metrics.token_gaps import TokenGaps
from trt_responses.run.facts import Progress, RunFacts
from trt_responses.wire.response import InputTokensDetails, OutputTokensDetails, Response, Usage

MS = 1_000_000


@dataclass
class Server:
    """What is running, on a clock that is turned by hand."""

    now_ms: int = 0
    first_ms: int | None = 0
    tokens: int = 1

    def __post_init__(self) -> None:
        self.gaps = Histogram((0.01, 0.05, 0.5))
        self.token_gaps = TokenGaps(self.gaps, lambda: [self.run()], lambda: self.now_ms * MS)

    def run(self) -> Progress:
        first = None if self.first_ms is None else self.first_ms * MS
        return Progress("resp_1", first, self.tokens)

    def look(self, now_ms: int, tokens: int) -> None:
        self.now_ms, self.tokens = now_ms, tokens
        self.token_gaps.count()

    def end(self, last_ms: int, tokens: int) -> None:
        used = Usage(1, tokens, tokens + 1, InputTokensDetails(), OutputTokensDetails(0))
        response = Response(id="resp_1", created_at=0, model="m", usage=used)
        first = self.run().first_token_ns
        last_ns, end_ns = last_ms * MS, 10**15
        self.token_gaps.run_ended(RunFacts(response, {}, 0, 0, first, last_ns, end_ns))

    def counts(self) -> tuple[float, ...]:
        """Of each bucket with all before it, of all, and their sum."""
        ((_, numbers),) = self.gaps.samples()
        return numbers


def test_gaps_are_shared_by_the_tokens_that_came_between_two_looks() -> None:
    server = Server()
    server.look(100, 11)  # ten of 10 ms
    server.look(200, 13)  # two of 50 ms
    assert server.counts() == (10, 12, 12, 12, 12, 0.2)


def test_a_stall_is_one_long_gap_however_often_it_is_looked_at() -> None:
    server = Server()
    for now_ms in (100, 200, 300, 400):
        server.look(now_ms, 1)
    server.look(500, 2)
    assert server.counts() == (0, 0, 1, 1, 1, 0.5)


def test_the_sum_is_the_time_from_the_first_token_to_the_last_whenever_it_was_looked_at() -> None:
    for looks in ([], [(30, 4)], [(30, 4), (60, 4), (90, 9)]):
        server = Server(first_ms=20)
        for now_ms, tokens in looks:
            server.look(now_ms, tokens)
        server.end(120, 11)
        *_, count, total = server.counts()
        assert count == 10
        assert abs(total - 0.1) < 1e-9


def test_before_the_first_token_there_is_no_gap() -> None:
    server = Server(first_ms=None, tokens=0)
    server.look(100, 0)
    server.end(200, 0)
    assert server.counts() == (0, 0, 0, 0, 0, 0.0)


def test_what_has_ended_is_forgotten() -> None:
    server = Server()
    server.look(100, 5)
    server.end(200, 9)
    counted = server.counts()
    server.look(300, 5)  # another one under its id: the tokens before are not known to it
    assert server.counts()[-2] == counted[-2] + 4
