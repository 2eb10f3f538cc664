"""HTTP as a client of the server sends it: replies, and streams with the times of their tokens."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from trt_responses.prove.claims import Failed

Json = dict[str, Any]

MODEL = "prove"
"""The server accepts every model name."""
ANSWER_S = 600.0
GONE = (OSError, http.client.HTTPException)
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Reply(NamedTuple):
    """A status, the headers, and the JSON body."""

    status: int
    headers: http.client.HTTPMessage
    body: Json


class Streamed(NamedTuple):
    """One stream, from the request to its end."""

    end: str
    """The response's status; `refused`, or `cut` if no last event came."""
    why: str = ""
    tokens: int = 0
    first_s: float = 0.0
    """Seconds until the first text, reasoning or arguments."""


class Client(NamedTuple):
    """A client of one server, with a user's key and an admin's."""

    port: int
    key: str
    admin_key: str

    def reply(
        self, method: str, path: str, body: object = None, *, timeout_s: float = ANSWER_S
    ) -> Reply:
        with self._sent(method, path, body, timeout_s) as got:
            return Reply(got.status, got.headers, orjson.loads(got.read()))

    def create(self, **fields: object) -> Json:
        """A response. Raises a `Failed` if there is none, or if it failed."""
        status, _, body = self.reply("POST", "/v1/responses", {"model": MODEL, **fields})
        if status != 200:
            raise Failed(f"the server refused a response ({status}): {_message(body)}")
        if body["status"] not in ("completed", "incomplete"):
            raise Failed(f"a response ended {body['status']}: {_message(body)}")
        return body

    def stream(self, first: Callable[[], object] = lambda: None, **fields: object) -> Streamed:
        """One stream, read to its end. Calls `first` at the first token."""
        began, first_s = time.monotonic(), 0.0
        body = {"model": MODEL, "store": False, **fields, "stream": True}
        try:
            with self._sent("POST", "/v1/responses", body, ANSWER_S) as got:
                if got.status != 200:
                    return Streamed("refused", f"{got.status}: {got.read(300)!r}")
                events = (orjson.loads(line[6:]) for line in got if line.startswith(b"data: {"))
                for event in events:
                    if not first_s and event["type"].endswith(".delta"):
                        first_s = time.monotonic() - began
                        first()
                    if event["type"] in ENDS:
                        ended = event.get("response", {"status": "failed", **event})
                        tokens = (ended.get("usage") or {}).get("output_tokens", 0)
                        return Streamed(ended["status"], _message(ended), tokens, first_s)
        except GONE as error:
            return Streamed("cut", type(error).__name__)
        return Streamed("cut", "the connection closed before the last event")

    def metrics(self, name: str) -> dict[str, float]:
        """The values of one metric by their labels."""
        with self._sent("GET", "/metrics", None, ANSWER_S) as got:
            text = got.read().decode()
        found = re.findall(rf"^trt_responses_{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}

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


def parsed(text: str) -> object:
    """The JSON value of a text; None if it has none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _message(body: Json) -> str:
    error = body.get("error")
    return str(error.get("message", error) if isinstance(error, dict) else body.get("message", ""))
