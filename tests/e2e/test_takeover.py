"""Two server processes on one history, and one of them is killed or frozen while it makes a
background response that a client reads from the other.

Budget: 20 s on one core: the servers are forked from a process that has loaded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import openai
import orjson
import pytest

from tests.support import postgres_server, redis_server
from tests.support.asgi import PATIENCE_S
from tests.support.paced_server import TEXT, WORDS
from tests.support.server_processes import ROOT, asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

HEARD = 60
"""Events that the client has when the server goes."""


class Warm:
    """A process that has loaded what a server needs, and forks one for each store it is given."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.paced_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, store: str) -> Process:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{store}\n")
        pid, port = (int(self._process.stdout.readline()) for _ in range(2))
        return Process(pid, port)

    def close(self) -> None:
        with self._process as process:
            process.kill()


class Process(NamedTuple):
    pid: int
    port: int

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def get(self, path: str) -> Json:
        status, body = asked(self.port, "GET", path)
        assert status == 200, body
        found: Json = orjson.loads(body)
        return found

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with closing(Warm()) as warm:
        yield warm


@pytest.fixture
def two(warm: Warm, store: str) -> Iterator[tuple[Process, Process]]:
    with ExitStack() as ends:
        one = warm.start(store)
        ends.callback(one.end)
        other = warm.start(store)
        ends.callback(other.end)
        yield one, other


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'history.db'}"
        return
    if request.param == "postgres":
        with postgres_server.running() as database:
            yield database.url
        return
    with redis_server.running(tmp_path) as server:
        yield server.url


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(
    ("store", "number"),
    [
        ("sqlite", signal.SIGKILL),
        ("sqlite", signal.SIGSTOP),
        ("sqlite", signal.SIGTERM),
        ("redis", signal.SIGKILL),
        ("redis", signal.SIGSTOP),
        ("postgres", signal.SIGKILL),
    ],
    indirect=["store"],
)
def test_a_stream_that_one_server_gives_is_whole_when_the_other_goes(
    two: tuple[Process, Process], number: signal.Signals
) -> None:
    one, other = two
    wish = {"model": "demo", "input": "Count!", "background": True, "temperature": 0}
    status, body = asked(one.port, "POST", "/v1/responses", wish)
    assert status == 200, body
    name = orjson.loads(body)["id"]
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="-")
    events: list[Any] = []
    with client.responses.retrieve(name, stream=True) as stream:
        for event in stream:
            events.append(event)
            if len(events) == HEARD:
                one.signal(number)
    client.close()
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))
    ends = [event.type for event in events if event.type.split(".")[1] == "completed"]
    assert ends == ["response.completed"]
    last = events[-1].response
    assert last.output_text == TEXT
    assert "".join(e.delta for e in events if e.type.endswith("text.delta")) == TEXT
    kept = other.get(f"/v1/responses/{name}")
    if number is signal.SIGSTOP:
        one.signal(signal.SIGCONT)
        until_idle(one)
        assert one.get(f"/v1/responses/{name}") == kept
    assert other.get(f"/v1/responses/{name}") == kept
    assert kept["output"][0]["content"][0]["text"] == TEXT


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_foreground_stream_is_read_on_at_another_server_when_its_own_is_killed(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    events: list[Any] = []
    client, rest = (
        openai.OpenAI(base_url=f"http://127.0.0.1:{each.port}/v1", api_key="-", max_retries=0)
        for each in (one, other)
    )
    wish: Json = {"model": "demo", "input": "Count!", "temperature": 0, "stream": True}
    options: Any = {"resumable_seconds": 30}
    with suppress(openai.APIConnectionError):
        for event in client.responses.create(**wish, stream_options=options):
            events.append(event)
            if len(events) == HEARD:
                one.signal(signal.SIGKILL)
    name, seen = events[0].response.id, events[-1].sequence_number
    assert HEARD <= len(events) < WORDS
    events += rest.responses.retrieve(name, stream=True, starting_after=seen)
    client.close()
    rest.close()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type.endswith("text.delta")) == TEXT
    last = events[-1].response
    assert (last.id, last.status, last.output_text) == (name, "completed", TEXT)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_message_that_steers_is_kept_when_the_server_that_took_it_is_killed(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    wish = {"model": "demo", "input": "Count!", "background": True, "temperature": 0}
    first = orjson.loads(asked(one.port, "POST", "/v1/responses", wish)[1])["id"]
    path = f"/v1/responses/{first}/steer"
    status, body = asked(other.port, "POST", path, {"input": "Again!"})
    assert status == 200, body
    name, events = orjson.loads(body)["id"], list[Any]()
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{one.port}/v1", api_key="-")
    with client.responses.retrieve(name, stream=True) as stream:
        for event in stream:
            events.append(event)
            if len(events) == HEARD:
                other.signal(signal.SIGKILL)
    client.close()
    last = events[-1].response
    assert (last.status, last.output_text, last.previous_response_id) == (
        "completed",
        TEXT,
        first,
    )
    sent = one.get(f"/v1/responses/{name}/input_items")["data"]
    assert [item["content"][0]["text"] for item in sent] == ["Again!"]
    assert one.get(f"/v1/responses/{first}")["incomplete_details"] == {"reason": "steered"}


def until_idle(server: Process) -> None:
    """A server that woke has noticed that its response is another's."""
    deadline_s = time.monotonic() + PATIENCE_S
    while server.get("/health")["queue"]["running"]:
        assert time.monotonic() < deadline_s
