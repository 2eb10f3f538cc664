"""The worker killed and frozen, a version swapped in place, and a drain, each under streams."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from trt_responses.prove.bench import LOAD_LIMIT_S, Bench
from trt_responses.prove.claims import Figures, Skipped, check
from trt_responses.prove.client import GONE, MODEL, Reply, Streamed, broken
from trt_responses.prove.server import LOOK_S, Server, below, until

COUNT = 4
STREAM = "Count from {} upwards, in words."
BEFORE_IT_IS_BACK = "refused, 503"
"""How a stream ends that reaches the server only when its worker is gone."""
LIVE_S = 5.0
"""The longest accepted reply of `/health/live`."""


class Pulse(threading.Thread):
    """Requests `/health/live` until `stop`; notes the slowest reply, and how many were not 200."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server, self._over = server, threading.Event()
        self.slowest_s, self.bad = 0.0, 0

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            began, status = time.monotonic(), 0
            with suppress(*GONE):
                status = self._server.client.reply("GET", "/health/live", timeout_s=30).status
            self.bad += status != 200
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def stop(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def streaming(bench: Bench, server: Server, start: int) -> Iterator[Callable[[], list[Streamed]]]:
    """Streams that run from the first token of one of them on. Gives a function that waits for
    their ends. `start` makes their prompts: one that loses its worker twice is refused."""
    first, tokens = threading.Event(), 200 if bench.wish.quick else 1500

    def stream(n: int) -> Streamed:
        text = STREAM.format(start + n)
        ended = server.client.stream(first.set, input=text, max_output_tokens=tokens)
        first.set()
        return ended

    with ThreadPoolExecutor(COUNT) as pool:
        found = [pool.submit(stream, n) for n in range(COUNT)]
        first.wait()
        yield lambda: [future.result() for future in found]


def kill(bench: Bench) -> Figures:
    """Streams resume or end with a reason, and the server serves again."""
    return _lost_worker(bench, signal.SIGKILL)


def freeze(bench: Bench) -> Figures:
    """The server notices that nothing moves, and replaces the worker."""
    return _lost_worker(bench, signal.SIGSTOP)


def _lost_worker(bench: Bench, number: signal.Signals) -> Figures:
    server = bench.server()
    if (worker := server.worker()) is None:
        raise Skipped("the engine runs in the server's own process")
    limit_s = 4 * bench.stall_s + 2 * bench.load_s + 60
    pulse = Pulse(server)
    with streaming(bench, server, 10 * number) as ends:
        pulse.start()
        os.kill(worker, number)
        try:
            gone_s = until(
                lambda: worker not in below(server.pid), limit_s, "the worker was not replaced"
            )
            back_s = until(lambda: _answers(server), limit_s, "no answer came again")
        finally:
            pulse.stop()
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        ended = ends()
    cut = [f"{end.end}, {end.why}" for end in ended if end.end in ("cut", "refused")]
    cut = [why for why in cut if not why.startswith(BEFORE_IT_IS_BACK)]
    figures: Figures = {
        "worker gone after s": round(gone_s, 1),
        "answers again after s": round(gone_s + back_s, 1),
        "streams completed": COUNT - len(broken(ended)),
        "streams failed or refused with a reason": len(broken(ended)) - len(cut),
        "/health/live, slowest s": round(pulse.slowest_s, 2),
    }
    wrong = {
        f"a stream broke off without an event ({', '.join(cut)})": cut,
        f"/health/live failed {pulse.bad} times": pulse.bad,
        f"/health/live took {pulse.slowest_s:.1f} s": pulse.slowest_s > LIVE_S,
    }
    return check(wrong, figures)


def swap(bench: Bench) -> Figures:
    """Another build of the same weights is loaded under streams, then the first one through the
    gate."""
    server = bench.server()
    with streaming(bench, server, 1000) as ends:
        there = _swapped(bench, server, 2, gate=False)
        ended = ends()
    figures: Figures = {"there": there}
    check({why: why for why in broken(ended)[:3]}, figures)
    return figures | {"back": _swapped(bench, server, 1, gate=not bench.wish.quick)}


def _swapped(bench: Bench, server: Server, number: int, *, gate: bool) -> Figures:
    began, path = time.monotonic(), f"/admin/engines/{bench.name}/load"
    body = {"version": number, "gate": gate, "reason": "proof"}
    got = server.client.reply("POST", path, body, timeout_s=LOAD_LIMIT_S)
    seconds, why = round(time.monotonic() - began, 1), got.body.get("error", got.body)
    check({f"version {number} was not loaded ({got.status}): {why}": got.status != 200})
    label = _short(server).headers.get("x-trt-engine", "")
    check({f"{label} answers, not version {number}": not label.endswith(f"@{number}")})
    return {"seconds": seconds, **{name: got.body.get(name) for name in ("paused", "gate")}}


def drain(bench: Bench) -> Figures:
    """A SIGTERM lets streams end, refuses new work, and ends the server with status 0."""
    server = bench.server()
    with streaming(bench, server, 2000) as ends:
        server.terminate()
        refused_s = until(lambda: _refuses(server), 60, "new work was not refused")
        ended = ends()
    status = server.end(150.0)
    wrong = {f"a stream ended {why}": why for why in broken(ended)[:3]}
    ended_badly = {f"the server ended with status {status}": status != 0}
    return check(
        {**wrong, **ended_badly},
        {"refused new work after s": round(refused_s, 1), "status": status},
    )


def _short(server: Server) -> Reply:
    fields = {"model": MODEL, "input": "Hello!", "max_output_tokens": 8, "store": False}
    return server.client.reply("POST", "/v1/responses", fields)


def _answers(server: Server) -> bool:
    """Whether a short request gets its answer."""
    got = _short(server)
    return got.status == 200 and got.body["status"] in ("completed", "incomplete")


def _refuses(server: Server) -> bool:
    """Whether new work is refused, or nothing listens any more."""
    try:
        return _short(server).status == 503
    except GONE:
        return True
