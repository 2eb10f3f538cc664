"""HTTP as a client of the server sends it: replies, and streams with the times of their tokens."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trt_responses.frozen import dataclass
from trt_responses.prove.claims import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

MODEL = "prove"
"""The server accepts every model name."""
ANSWER_S = 600.0
GONE = (OSError, http.client.HTTPException)
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Reply(NamedTuple):
    """A status, the headers in lower case, and the JSON body."""

    status: int
    headers: Mapping[str, str]
    body: Json


@dataclass(frozen=True, slots=True)
class Streamed:
    """One stream, from the request to its end."""

    end: str
    """The response's status; `refused`, or `cut` if no last event came."""
    why: str = ""
    tokens: int = 0
    first_s: float = 0.0
    """Seconds until the first text, reasoning or arguments."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one server, with an admin's key and a user's."""

    port: int
    key: str
    admin_key: str = ""

    def reply(
        self, method: str, path: str, body: object = None, *, timeout_s: float = ANSWER_S
    ) -> Reply:
        with self._sent(method, path, body, timeout_s) as got:
            data = got.read()
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError:
            found = {"text": data.decode("utf-8", "replace")}
        headers = {name.lower(): value for name, value in got.getheaders()}
        return Reply(got.status, headers, found if isinstance(found, dict) else {"data": found})

    def create(self, **fields: object) -> Json:
        """A response. Raises a `Failed` if there is none, or if it failed."""
        got = self.reply("POST", "/v1/responses", {"model": MODEL, **fields})
        if got.status != 200:
            raise Failed(f"the server refused a response ({got.status}): {_message(got.body)}")
        if got.body.get("status") not in ("completed", "incomplete"):
            raise Failed(f"a response ended {got.body.get('status')}: {_message(got.body)}")
        return got.body

    def stream(self, first: Callable[[], object] = lambda: None, **fields: object) -> Streamed:
        """One stream, read to its end. Calls `first` at the first token."""
        began, first_s = time.monotonic(), 0.0
        body = {"model": MODEL, "store": False, **fields, "stream": True}
        try:
            with self._sent("POST", "/v1/responses", body, ANSWER_S) as got:
                if got.status != 200:
                    return Streamed("refused", f"{got.status}: {got.read(300)!r}")
                for event in _events(got):
                    if not first_s and event["type"].endswith(".delta"):
                        first_s = time.monotonic() - began
                        first()
                    if event["type"] in ENDS:
                        return _ended(event, first_s)
        except GONE as error:
            return Streamed("cut", type(error).__name__)
        return Streamed("cut", "the connection closed before the last event")

    def metrics(self, name: str) -> dict[str, float]:
        """The values of one metric by their labels."""
        text = self.reply("GET", "/metrics").body["text"]
        lines = [line.rpartition(" ") for line in text.splitlines()]
        return {
            labels.removeprefix(name): float(value)
            for labels, _, value in lines
            if labels.partition("{")[0] == name
        }

    @contextmanager
    def _sent(
        self, method: str, path: str, body: object, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        key = self.admin_key if path.startswith("/admin") else self.key
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        try:
            data = None if body is None else orjson.dumps(body)
            connection.request(method, path, data, headers)
            yield connection.getresponse()
        finally:
            connection.close()


def at_once(work: Sequence[Callable[[], Streamed]]) -> list[Streamed]:
    """The results of all work, each on a thread of its own."""
    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(lambda each: each(), work))


def broken(streams: Sequence[Streamed]) -> list[str]:
    """The ends of the streams that did not end well."""
    return [f"{s.end} ({s.why})" for s in streams if s.end not in ("completed", "incomplete")]


def calls_of(response: Json) -> list[Json]:
    """The function calls of a response."""
    return [item for item in response["output"] if item["type"] == "function_call"]


def text_of(response: Json) -> str:
    """The text of a response."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part.get("text", "") for item in messages for part in item["content"])


def _events(got: http.client.HTTPResponse) -> Iterator[Json]:
    for line in got:
        if line.startswith(b"data: {"):
            yield orjson.loads(line[6:])


def _ended(event: Json, first_s: float) -> Streamed:
    if event["type"] == "error":
        return Streamed("failed", _message(event))
    response = event["response"]
    tokens = (response.get("usage") or {}).get("output_tokens", 0)
    return Streamed(response["status"], _message(response), tokens, first_s)


def _message(body: Json) -> str:
    error = body.get("error")
    return str(error.get("message", error) if isinstance(error, dict) else body.get("message", ""))
