"""Commit before tell: whatever the moment of a `kill -9`, an end that a client saw is there.

About 20 s on one core.
"""

from __future__ import annotations

import http.client
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support import postgres_server
from tests.support.asgi import events_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
from tests.support.server_processes import PATIENCE_S, Servers, asked
from trt_responses.features.references.references import response_of

Json = dict[str, Any]

CLIENTS = 8
HELD_BACK, SUDDEN = 11, 20
"""Lives that end between a commit and its telling, and lives that end as soon as enough is seen."""
LOCKED_S = 0.2
"""So long a killed server's conversations stay locked."""
CALL_RESULT = {"type": "function_call_output", "output": "Sunny."}


class Seen:
    """The ends that clients saw, and a wait for more of them."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.ends: dict[str, Json] = {}
        self.refused: list[bytes] = []
        self.over = False

    def add(self, response: Json) -> None:
        with self._news:
            assert response["id"] not in self.ends
            self.ends[response["id"]] = response
            self._news.notify_all()

    def wait_for(self, more: int) -> None:
        with self._news:
            wanted = len(self.ends) + more
            assert self._news.wait_for(lambda: len(self.ends) >= wanted, PATIENCE_S)


class Client(threading.Thread):
    """Asks again and again, half of the time where its last answer ended."""

    def __init__(self, port: int, seen: Seen, number: int) -> None:
        super().__init__()
        self._port = port
        self._seen = seen
        self._random = random.Random(number)
        self._last: Json | None = None
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._seen.over:
                self._ask()
        except BaseException as fault:
            self.fault = fault

    def _ask(self) -> None:
        stream = self._random.random() < 0.5
        body = self._body() | {"stream": stream}
        try:
            status, reply = asked(self._port, "POST", "/v1/responses", body)
            events = events_of(reply) if stream and status == 200 else []
        except (OSError, http.client.HTTPException):
            return  # killed in the middle: no end was seen
        except AssertionError:  # a frame was cut, likewise
            return
        if status != 200:  # the end that it goes on from was seen, and is not there
            self._seen.refused.append(reply)
            self._last = None
            return
        if not stream:
            self._saw(orjson.loads(reply))
        elif events and events[-1]["type"] == "response.completed":
            self._saw(events[-1]["response"])

    def _body(self) -> Json:
        tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
        body: Json = {"model": "demo", "input": "Hello", "tools": tools}
        if self._last is None or self._random.random() < 0.5:
            return body
        calls = [item for item in self._last["output"] if item["type"] == "function_call"]
        results = [CALL_RESULT | {"call_id": call["call_id"]} for call in calls]
        return body | {"previous_response_id": self._last["id"], "input": results or "And now?"}

    def _saw(self, response: Json) -> None:
        assert response["status"] == "completed"
        self._last = response
        self._seen.add(response)


@contextmanager
def clients_of(servers: Servers) -> Iterator[Seen]:
    """Clients that ask until the end of the block, and then a last server that is not killed."""
    seen = Seen()
    clients = [Client(servers.port, seen, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield seen
    finally:
        seen.over = True
        servers.start("")
        for client in clients:
            client.join(PATIENCE_S)
    assert [client.fault for client in clients] == [None] * CLIENTS


def lost(servers: Servers, ends: dict[str, Json]) -> list[str]:
    """Of what was seen, what is not there, or not as it was seen."""
    gone = []
    for response_id, response in ends.items():
        status, body = asked(servers.port, "GET", f"/v1/responses/{response_id}")
        if status != 200 or orjson.loads(body) != response:
            gone.append(response_id)
    return gone


@pytest.mark.early(18)
def test_every_end_that_a_client_saw_is_there_after_kills_at_any_moment(tmp_path: Path) -> None:
    committed, seen = killed_at_any_moment(tmp_path / "history.db", HELD_BACK, SUDDEN)
    assert committed >= 10
    assert seen >= 200


@pytest.mark.slow  # 3 s: five lives over a database of their own
def test_so_it_is_over_a_database() -> None:
    with postgres_server.running() as database:
        assert killed_at_any_moment(database.url, held_back=2, sudden=3) >= (2, 15)


def killed_at_any_moment(place: Path | str, held_back: int, sudden: int) -> tuple[int, int]:
    """Kill servers of this store; how many records were committed and not told, and how many ends
    were seen."""
    servers, moments = Servers(place), random.Random(6)
    plans = ["holds-back"] * held_back + ["sudden"] * sudden
    moments.shuffle(plans)
    committed = []
    try:
        with clients_of(servers) as seen:
            for plan in plans:
                number = moments.randint(3, 14)
                if plan == "holds-back":
                    servers.start(f"{plan} {number}")
                    committed.append(servers.heard("committed"))
                else:
                    servers.start(plan)
                    seen.wait_for(number)
                servers.kill()
        assert not seen.ends.keys() & set(committed), "told before the store had answered"
        assert seen.refused == []
        assert lost(servers, seen.ends) == []
        for response_id in committed:  # nobody was told, and they are there all the same
            assert asked(servers.port, "GET", f"/v1/responses/{response_id}")[0] == 200
    finally:
        servers.close()
    return len(committed), len(seen.ends)


def test_the_same_kills_find_a_store_that_tells_before_it_commits(tmp_path: Path) -> None:
    servers = Servers(tmp_path / "history.db")
    try:
        servers.start("tells-first")
        question = {"model": "demo", "input": "Hello"}
        status, body = asked(servers.port, "POST", "/v1/responses", question)
        assert status == 200
        seen = orjson.loads(body)
        servers.kill()
        servers.start("")
        assert lost(servers, {seen["id"]: seen}) == [seen["id"]]
    finally:
        servers.close()


# --- conversations ----------------------------------------------------------------------------


class Talker(threading.Thread):
    """Goes on and on with one conversation. After a kill it may find it as it was, or longer by one
    whole turn that it was not told of."""

    def __init__(self, port: int, seen: Seen, conversation: str) -> None:
        super().__init__()
        self._port = port
        self._seen = seen
        self.conversation = conversation
        self.told: list[str] = []
        """Responses whose end it saw, in their order."""
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._seen.over:
                self._ask()
        except BaseException as fault:
            self.fault = fault

    def _ask(self) -> None:
        body = {"model": "demo", "input": "Hello", "conversation": self.conversation}
        tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
        try:
            status, reply = asked(self._port, "POST", "/v1/responses", body | {"tools": tools})
        except (OSError, http.client.HTTPException):
            return
        response = orjson.loads(reply)
        if status == 400 and response["error"]["code"] == "conversation_locked":
            return  # by the server that was killed, for a lease
        assert status == 200, reply
        self.told.append(response["id"])
        self._seen.add(response)


def turns_of(servers: Servers, conversation: str) -> list[list[Json]]:
    """The items of a conversation, by the requests that brought them."""
    items: list[Json] = []
    more, after = True, ""
    while more:
        query = f"?order=asc&limit=100{after}"
        status, body = asked(servers.port, "GET", f"/v1/conversations/{conversation}/items{query}")
        assert status == 200, body
        page = orjson.loads(body)
        items += page["data"]
        more, after = page["has_more"], f"&after={page['last_id']}"
    turns: list[list[Json]] = []
    for item in items:
        if item.get("role") == "user":
            turns.append([])
        turns[-1].append(item)
    return turns


def test_a_kill_leaves_a_response_and_its_items_or_neither(tmp_path: Path) -> None:
    servers, moments = Servers(tmp_path / "history.db"), random.Random(20)
    plans = ["holds-back"] * 6 + ["sudden"] * 8
    moments.shuffle(plans)
    seen = Seen()
    talkers: list[Talker] = []
    try:
        servers.start("")
        for _ in range(4):
            made = asked(servers.port, "POST", "/v1/conversations", {"metadata": {}})
            talkers.append(Talker(servers.port, seen, orjson.loads(made[1])["id"]))
        servers.kill()
        for talker in talkers:
            talker.start()
        for plan in plans:
            number = moments.randint(3, 8)
            servers.start(f"{plan} {number} {LOCKED_S}")
            if plan == "holds-back":
                servers.heard("committed")
            else:
                seen.wait_for(number)
            servers.kill()
        seen.over = True
        servers.start("")
        for talker in talkers:
            talker.join(PATIENCE_S)
        assert [talker.fault for talker in talkers] == [None] * len(talkers)
        untold = 0
        for talker in talkers:
            made_by = []
            for turn in turns_of(servers, talker.conversation):
                assert len(turn) > 1, "a request without its answer"
                response_id = response_of(turn[-1]["id"])
                status, body = asked(servers.port, "GET", f"/v1/responses/{response_id}")
                assert status == 200, "items without their response"
                assert [item["id"] for item in orjson.loads(body)["output"]] == [
                    item["id"] for item in turn[1:]
                ]
                made_by.append(response_id)
            assert [each for each in made_by if each in talker.told] == talker.told
            untold += len(made_by) - len(talker.told)
        assert untold >= 4, "kills between a commit and its telling"
    finally:
        seen.over = True
        servers.close()
