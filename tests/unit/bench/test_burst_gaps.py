"""What is computed of running streams' gaps, and its client beside a server of the standard
library: no time is asserted. Budget: 2 s."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from bench import goals
from bench.burst_gaps import Arrivals, Row, main, plain, table
from bench.report import Report
from bench.script import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.tokens.vocabulary import Vocabulary

FRAME = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(FRAME), FRAME)
ROLE = CHUNK.replace(b"content", b"role")


def test_a_delta_comes_with_the_end_of_its_frame_and_two_in_one_read_have_no_gap() -> None:
    times_s = iter((1.0, 2.0, 3.0, 3.5, 4.0))
    gaps_ms: list[float] = []
    arrivals = Arrivals(gaps_ms, lambda: next(times_s))
    for read in (ROLE, CHUNK, CHUNK + CHUNK[:-3], CHUNK[-3:] + CHUNK + CHUNK[:20], CHUNK[20:]):
        arrivals.look(read)
    assert gaps_ms == [1000, 500, 0, 500]


def test_a_run_with_bursts_is_compared_with_the_one_alone_just_before() -> None:
    """The machine became twice as slow half-way."""
    row = Row(((20, 22, 30), (40, 44, 60)), ((20, 24.2, 60), (40, 48.4, 120)))
    assert row.ratios == pytest.approx((1, 1.1, 2))


@pytest.mark.parametrize(
    ("p99_ms", "verdict"), [(24, "[green]≤ 1.2[/]"), (25, "[red]missed: 1.2[/]")]
)
def test_the_goal_is_that_of_p99(p99_ms: float, verdict: str) -> None:
    row = Row(((20, 20, 20),), ((20, p99_ms, 100),))
    *_, column = table(row).columns
    assert [*column.cells][-1] == verdict
    (goal,) = goals.goals(Report({}, 0.0, burst_gaps=row))
    assert (goal.measured, goal.met) == (p99_ms / 20, "green" in verdict)


def test_each_step_of_a_plain_answer_brings_a_delta(vocabulary: Vocabulary) -> None:
    said = plain(vocabulary, 300)
    seen = [*pieces(vocabulary, said.token_ids[3:-1])]
    assert (len(seen), "".join(seen)) == (300, said.answer)
    assert all(seen)


class Says(BaseHTTPRequestHandler):
    """Answers each request with three deltas."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        last = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        self.wfile.write(ROLE + 3 * CHUNK + last)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_client_begins_so_many_streams_at_each_time(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    main(str(port), "{}", "2", "0", "0.01", "0.02")
    replies, gaps_ms = json.loads(capsys.readouterr().out)
    assert replies == [2, 2, 2]
    assert len(gaps_ms) == 6 * 2
