"""Read-your-writes: servers of one store know an id the moment that one of them streams it.

Writers make responses at the servers in turn. Behind each promise, such as a terminal event, every
server is read at once. A request without an answer, as where a server is killed, breaks none.
"""

from __future__ import annotations

import http.client
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from responses_conformance.checks.kit import ENDS
from responses_conformance.client import Exchange, Json, Link, Server

WRITERS, ROUNDS = 4, 10
INPUT = {"input": "Say a word.", "max_output_tokens": 64}
LATEST_S, PAUSE_S = 5.0, 0.01
"""How long a late answer is awaited, to say how late it is."""
OPEN, KNOWN, UNKNOWN = ("queued", "in_progress"), ("200",), ("400", "404")
BROKEN = (OSError, http.client.HTTPException, ValueError, LookupError)


@dataclass(frozen=True)
class Promise:
    """What a server promised, when, and what every server has to answer from here on."""

    text: str
    right: tuple[str, ...]
    at_s: float

    @property
    def age(self) -> str:
        return f"{(time.monotonic() - self.at_s) * 1000:.0f} ms"


class Writers:
    """Writers and readers over the servers of one store, and what they found."""

    def __init__(self, servers: Sequence[Server], writers: int = WRITERS) -> None:
        self._servers, self._writers = servers, writers
        self._notes: list[str] = []
        self.violations: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        return Counter(self._notes)

    def run(self, rounds: int = ROUNDS) -> None:
        """Let every writer write this often."""
        numbers, count = range(self._writers * rounds), 2 * len(self._servers) * self._writers
        with ThreadPoolExecutor(count) as self._readers, ThreadPoolExecutor(self._writers) as pool:
            list(pool.map(self._round, numbers))

    def _round(self, number: int) -> None:
        server = self._servers[number % len(self._servers)].copy()
        readers = [each.copy() for each in 2 * list(self._servers)]
        for write in (self._stream, self._begin):
            with ExitStack() as stack:
                links = [stack.enter_context(each.link()) for each in readers]
                try:
                    write(server, links)
                except BROKEN:
                    self._notes.append("writes without an answer")

    def _stream(self, server: Server, links: Sequence[Link]) -> None:
        """Stream a response, use its id behind the terminal event, and delete it."""
        with server.stream("POST", "/responses", _body(server, stream=True, store=True)) as stream:
            for link in links:
                with suppress(OSError):
                    link.open()
            events = (event.json for event in stream if event.data != "[DONE]")
            end = next((event for event in events if event.get("type") in ENDS), None)
            if end is None:
                return self._refused(stream.exchange, "streams")
            name = end["response"]["id"]
            self._use(links, name, self._promise(server, "streamed its end", KNOWN))
        gone = server.call("DELETE", f"/responses/{name}")
        if gone.status not in (200, 204):
            return self._refused(gone, "deletions")
        return self._use(links, name, self._promise(server, "deleted it", UNKNOWN))

    def _begin(self, server: Server, links: Sequence[Link]) -> None:
        """Begin a response in the background: it can be read from the start."""
        made = server.call("POST", "/responses", _body(server, background=True, store=True))
        if made.status != 200:
            return self._refused(made, "background responses")
        promise = self._promise(server, "began it", KNOWN + OPEN)
        return self._use(links[: len(self._servers)], made.json["id"], promise)

    def _refused(self, exchange: Exchange, what: str) -> None:
        refused = 400 <= exchange.status < 500 and exchange.status != 429
        self._notes.append(f"{what} not offered" if refused else "writes without an answer")

    def _promise(self, server: Server, text: str, right: tuple[str, ...]) -> Promise:
        self._notes.append("promises")
        return Promise(f"{server.url} {text}", right, time.monotonic())

    def _use(self, links: Sequence[Link], name: str, promise: Promise) -> None:
        """At once: read the response at every server, and continue it over further links."""

        def use(numbered: tuple[int, Link]) -> None:
            number, link = numbered
            try:
                read = self._get if number < len(self._servers) else self._continue
                read(link, name, promise)
            except BROKEN:
                self._notes.append("uses without an answer")

        list(self._readers.map(use, enumerate(links)))

    def _get(self, link: Link, name: str, promise: Promise) -> None:
        found = link.call("GET", f"/responses/{name}")
        if (fault := self._fault(link, found, promise)) is None:
            return
        while _seen(found) not in promise.right and time.monotonic() < promise.at_s + LATEST_S:
            time.sleep(PAUSE_S)
            found = link.call("GET", found.path)
        self.violations.append(f"{fault}; {_seen(found)} after {promise.age}")

    def _continue(self, link: Link, name: str, promise: Promise) -> None:
        body = _body(link.server, previous_response_id=name, store=False)
        if fault := self._fault(link, link.call("POST", "/responses", body), promise):
            self.violations.append(f"{fault}: {json.dumps(body)}")

    def _fault(self, link: Link, found: Exchange, promise: Promise) -> str | None:
        """How an answer breaks the promise; None if it keeps it, or is none."""
        seen, answers = _seen(found), KNOWN + UNKNOWN + OPEN
        self._notes.append("uses" if seen in answers else "uses without an answer")
        if seen in promise.right or seen not in answers:
            return None
        what = f"{found.method} {link.server.url}{found.path}"
        return f"{what}: {seen}, {promise.age} after {promise.text}"


def _seen(found: Exchange) -> str:
    """The status of a reply, or of the response in it if that has not ended."""
    status = found.json.get("status") if found.status == 200 and found.method == "GET" else None
    return status if status in OPEN else str(found.status)


def _body(server: Server, **fields: object) -> Json:
    return {"model": server.model, **INPUT, **fields}
