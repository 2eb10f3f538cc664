"""What checks work with: the server, requests they share, and streams that are recorded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from responses_conformance.checks.base import (
    Failure,
    NotJudged,
    NotOffered,
    Profile,
)
from responses_conformance.client import Exchange, Json, Server

R = TypeVar("R", bound="Recorded")
T = TypeVar("T")
ENDS = ("response.completed", "response.incomplete", "response.failed")
CITY: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PLACE: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"type": "string", "enum": ["city", "country", "river"]},
        "letters": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "kind", "letters", "tags"],
    "additionalProperties": False,
}
TOOLS = ("get_weather", "get_time")
ABOUT = {"get_weather": "Weather in a city", "get_time": "Local time in a city"}
PLAIN = "What is the capital of France?"
CALL = "What is the weather in Bern?"
CALLS = "Get the weather for both cities in one turn: Bern and Oslo."
LONG = "Count from 1 to 400, each number as a word, and nothing else."
SLOW = "Count from 1 to 900, each number as a word, and nothing else."
FACTS = "Describe the city 'Bern' in the given format."
MOST = 2048
"""Output tokens of a request that says nothing else, so that weak models end."""
REFUSED = (400, 404, 405, 415, 422, 501)
"""The statuses of a server that does not have a feature."""


def function(name: str) -> Json:
    """A function tool of Responses."""
    about = {"name": name, "description": ABOUT[name], "parameters": CITY}
    return {"type": "function", **about, "strict": True}


FORMAT: Json = {"format": {"type": "json_schema", "name": "place", "schema": PLACE, "strict": True}}
SAMPLES: dict[str, Json] = {
    "text": {"input": PLAIN},
    "call": {"input": CALL, "tools": [function("get_weather")], "tool_choice": "required"},
    "calls": {"input": CALLS, "tools": [function(name) for name in TOOLS]},
    "schema": {"input": FACTS, "text": FORMAT},
    "cut": {"input": LONG, "max_output_tokens": 24},
}
"""The requests whose streams every law of events is held against."""
FEATURES = {"text": (), "call": ("tool",), "calls": ("tool",), "schema": ("format", "json_schema")}
"""What a server names that refuses such a request."""


@dataclass(frozen=True)
class Recorded:
    """A stream that was recorded."""

    name: str
    exchange: Exchange
    frames: list[tuple[str | None, Json]]
    """The field `event` of each, and its data; without `[DONE]`."""
    fields: Json
    """Of the request."""

    @cached_property
    def events(self) -> list[Json]:
        return [event for _, event in self.frames]

    def of(self, *types: str) -> list[Json]:
        return [event for event in self.events if event.get("type") in types]

    def expect(self, holds: object, why: str, event: Json | None = None) -> None:
        """Raise a `Failure` of this stream unless it holds. `event` is the one that shows it."""
        if holds:
            return
        shown = None
        if event in self.events:
            frames, at = self.exchange.reply.split(b"\n\n"), self.events.index(event)
            shown = b"\n\n".join(frames[max(0, at - 1) : at + 2])
        raise Failure(f"{why} (sample `{self.name}`)", self.exchange, shown, alone=True)


class Run(Recorded):
    """The stream of a response."""

    @property
    def last(self) -> Json:
        """The response inside the terminal event."""
        found = self.of(*ENDS)
        if not found:
            raise Failure("the stream has no terminal event", self.exchange)
        return dict(found[-1]["response"])


class Kit:
    """One attempt: the checks of it share its recorded streams."""

    def __init__(self, server: Server, profile: Profile) -> None:
        self.server = server
        self.profile = profile
        self.shown: Exchange | None = None
        """The recorded exchange that a check looks at."""
        self._once: dict[str, Any] = {}

    @property
    def exact(self) -> bool:
        """Whether the model plays the kit's script."""
        return self.profile == "scripted"

    def body(self, **fields: Any) -> Json:
        """A request of Responses; None leaves a field out."""
        whole = {"model": self.server.model, "input": PLAIN, "max_output_tokens": MOST} | fields
        return {name: value for name, value in whole.items() if value is not None}

    def post(self, **fields: Any) -> Exchange:
        return self.server.call("POST", "/responses", self.body(**fields))

    def create(self, *features: str, **fields: Any) -> Json:
        """A response; a refusal that names one of the features is a `NotOffered`."""
        return self.ok(self.post(**fields), *features)

    def ok(self, exchange: Exchange, *features: str) -> Json:
        """The JSON of a reply that must be a success."""
        if exchange.status != 200:
            self.refused(exchange, *features)
            raise Failure(f"status {exchange.status} for a valid request", exchange)
        found = exchange.json
        if not isinstance(found, dict):
            raise Failure("the reply is no JSON object", exchange)
        return found

    def refused(self, exchange: Exchange, *features: str) -> None:
        """Raise a `NotOffered` where the reply refuses one of the features by its name, or the
        server has no such endpoint."""
        if exchange.status == 429:
            raise NotJudged("the server limits requests (429)")
        if exchange.status not in REFUSED:
            return
        text = exchange.reply.decode("utf-8", "replace")
        if any(feature in text for feature in features):
            raise NotOffered(f"refused with {exchange.status}: {text[:160]}")
        if exchange.status == 405 or (exchange.status == 404 and "message" not in exchange.error):
            raise NotOffered(f"no endpoint {exchange.method} {exchange.path.split('?')[0]}")

    def stored(self, **fields: Any) -> Json:
        """A response that can be read again; a `NotOffered` if the server keeps none."""
        made = self.create("store", store=True, **fields)
        if made.get("store") is False:
            raise NotOffered("the server answers `store: true` with `store: false`")
        return made

    # --- recorded streams -----------------------------------------------------------------------

    def once(self, key: str, make: Callable[[], T]) -> T:
        """What is made once in an attempt, or the exception that this raised."""
        if key not in self._once:
            try:
                self._once[key] = make()
            except Exception as fault:
                self._once[key] = fault
        if isinstance(self._once[key], Exception):
            raise self._once[key]
        found: T = self._once[key]
        return found

    def run(self, name: str) -> Run:
        """The stream of a sample."""
        found = self.once(name, lambda: self.recorded(name, **SAMPLES[name]))
        self.shown = found.exchange
        return found

    def runs(self) -> Iterator[Run]:
        """The streams of all samples that the server plays."""
        self.run("text")
        for name in SAMPLES:
            with suppress(Exception):  # judged by the checks of calls and formats
                self.run(name)
                yield self.run(name)

    def each(self, key: str, make: Callable[[], list[R]]) -> Iterator[R]:
        """Streams that are recorded once, one after the other."""
        for stream in self.once(key, make):
            self.shown = stream.exchange
            yield stream

    def recorded(self, name: str, **fields: Any) -> Run:
        """The stream of a response."""
        body = self.body(stream=True, **fields)
        return self.record(Run, name, "/responses", body, *FEATURES.get(name, (name,)))

    def record(self, kind: type[R], name: str, path: str, body: Json, *features: str) -> R:
        """Record a stream."""
        with self.server.stream("POST", path, body) as stream:
            found = [event for event in stream if event.data != "[DONE]"]
        if stream.exchange.status != 200:
            self.ok(stream.exchange, *features)
        return kind(name, stream.exchange, [(event.name, event.json) for event in found], body)

    def only(self, profile: Profile) -> None:
        """Leave the check to one profile."""
        if self.profile != profile:
            raise NotJudged(f"judged in the profile `{profile}`")


def items(response: Json, kind: str) -> list[Json]:
    """The output items of a kind."""
    return [item for item in response["output"] if item.get("type") == kind]


def text_of(response: Json) -> str:
    """The text of all messages."""
    return "".join(
        part.get("text", "")
        for item in items(response, "message")
        for part in item["content"]
        if part.get("type") == "output_text"
    )


def outline(response: Json) -> list[Json]:
    """The output without ids, which no two responses share."""
    apart = ("id", "call_id", "encrypted_content")
    return [
        {name: value for name, value in item.items() if name not in apart}
        for item in response["output"]
    ]
