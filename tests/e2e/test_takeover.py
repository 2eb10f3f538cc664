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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from openai.types import Batch

Json = dict[str, Any]

HEARD = 60
"""Events that the client has when the server goes."""
LONG_ONES = 70
"""More than the engine makes at once."""
OPEN = ("validating", "in_progress", "finalizing", "cancelling")


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

    def start(self, store: str, files: Path) -> Process:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{store} {files}\n")
        pid, port = (int(self._process.stdout.readline()) for _ in range(2))
        return Process(pid, port)

    def close(self) -> None:
        with self._process as process:
            process.kill()


class Process(NamedTuple):
    pid: int
    port: int

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="-")

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
def two(warm: Warm, store: str, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    files = tmp_path / "files"
    with ExitStack() as ends:
        one = warm.start(store, files)
        ends.callback(one.end)
        other = warm.start(store, files)
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


EVERY_STORE = pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"], indirect=True)


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
@EVERY_STORE
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


def begun_batch(client: openai.OpenAI) -> str:
    """The id of a batch of one short answer, and of as many long ones as an engine makes in two
    goes."""
    long = {"model": "demo", "input": "Count!", "temperature": 0}
    bodies = [long | {"max_output_tokens": 20}, *[long] * LONG_ONES]
    lines = [
        orjson.dumps({"custom_id": f"{n}", "method": "POST", "url": "/v1/responses", "body": body})
        for n, body in enumerate(bodies)
    ]
    file = client.files.create(file=b"\n".join(lines), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
    ).id


def batch_when(client: openai.OpenAI, name: str, is_so: Callable[[Batch], object]) -> Batch:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so(batch := client.batches.retrieve(name)):
        assert time.monotonic() < deadline_s, batch
    return batch


def answered(batch: Batch) -> int:
    assert batch.request_counts is not None
    return batch.request_counts.completed


@pytest.mark.xdist_group("processes")
@EVERY_STORE
def test_a_batch_ends_at_another_server_when_its_own_is_killed(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    with one.client() as first, other.client() as second:
        name = begun_batch(first)
        seen = batch_when(second, name, answered)
        one.signal(signal.SIGKILL)
        assert seen.status == "in_progress"
        last = batch_when(second, name, lambda batch: batch.status not in OPEN)
        assert (last.status, answered(last), last.error_file_id) == (
            "completed",
            LONG_ONES + 1,
            None,
        )
        assert last.output_file_id is not None
        text = second.files.content(last.output_file_id).text
        rows = [orjson.loads(line) for line in text.splitlines()]
        assert {row["custom_id"] for row in rows} == {f"{n}" for n in range(LONG_ONES + 1)}
        assert len(rows) == LONG_ONES + 1
        uses = [row["response"]["body"]["usage"]["total_tokens"] for row in rows]
        assert last.usage is not None
        assert last.usage.total_tokens == sum(uses)


@pytest.mark.xdist_group("processes")
@EVERY_STORE
def test_a_batch_is_cancelled_at_a_server_that_does_not_make_it(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    with one.client() as first, other.client() as second:
        name = begun_batch(first)
        batch_when(second, name, answered)
        assert second.batches.cancel(name).status == "cancelling"
        last = batch_when(second, name, lambda batch: batch.status not in OPEN)
        assert last.status == "cancelled"
        assert 1 <= answered(last) <= LONG_ONES
        assert first.batches.retrieve(name) == last
        assert [each.id for each in second.batches.list()] == [name]


def until_idle(server: Process) -> None:
    """A server that woke has noticed that its response is another's."""
    deadline_s = time.monotonic() + PATIENCE_S
    while server.get("/health")["queue"]["running"]:
        assert time.monotonic() < deadline_s
