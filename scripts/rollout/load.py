"""Conversations by the `openai` client at its default retries, and what of them was lost."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
)

from scripts.rollout.fleet import KEY, SERVED_BY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from openai.types.responses import Response

TURNS = 6
PATIENCE_S = 600.0
"""For connecting, too: 5 s by default, which a client on a busy machine may need for itself."""
PAUSE_S = 0.5
"""What a user takes to read an answer."""
TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
REQUEST_ID = "x-request-id"
"""Every reply of a server has it, and none of a proxy."""
MARK = re.compile(r"\((c\d+t\d+)\)")
"""The end of a user's message, which tells turns apart."""
ENDED = {"completed", "incomplete"}
BEGUN = {"queued", "in_progress"}


class Notices:
    """Who waits for the next thing that a server does."""

    def __init__(self) -> None:
        self._wanted: dict[str, asyncio.Future[str]] = {}

    async def next_of(self, server: str) -> str:
        self._wanted[server] = asyncio.get_running_loop().create_future()
        return await self._wanted[server]

    def note(self, server: str, what: str) -> None:
        if (wanted := self._wanted.pop(server, None)) is not None:
            wanted.set_result(what)


@dataclass
class Tally:
    """What happened in each phase of a roll-out."""

    phase: str = "before"
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    replies: Notices = field(default_factory=Notices)
    """Their request ids."""
    begun: Notices = field(default_factory=Notices)
    """The ids of background responses."""
    sent: Counter[str] = field(default_factory=Counter)
    """How often clients sent each turn, by its mark."""

    def add(self, what: str) -> None:
        self.counts.setdefault(self.phase, Counter())[what] += 1


class BrokenConnections(logging.Handler):
    """Counts the connections that broke before a reply: the client's retries hide them."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.DEBUG)
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if said.startswith("Encountered") and "HTTP status" not in said:
            self._tally.add("broke, tried again")
            logging.getLogger("rollout").info("%s: %s", self._tally.phase, said)


@asynccontextmanager
async def client_of(url: str, tally: Tally) -> AsyncIterator[AsyncOpenAI]:
    """The client of all users, with its retries counted."""

    async def sent(request: httpx.Request) -> None:
        if request.method == "POST":
            tally.sent.update(MARK.findall(request.content.decode()))

    async def counted(reply: httpx.Response) -> None:
        tally.add("requests")
        if reply.is_success:
            tally.replies.note(reply.headers[SERVED_BY], reply.headers[REQUEST_ID])
        if reply.status_code >= 500 or reply.status_code == 429:
            ours = REQUEST_ID in reply.headers
            tally.add("refused, tried again" if ours else "5xx of the proxy")
            text = (await reply.aread()).decode(errors="replace")
            logging.getLogger("rollout").info("%s: %d %s", tally.phase, reply.status_code, text)

    log, broken = logging.getLogger("openai._base_client"), BrokenConnections(tally)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(broken)
    http = DefaultAsyncHttpxClient(
        event_hooks={"request": [sent], "response": [counted]},
        limits=httpx.Limits(max_keepalive_connections=32),
    )
    try:
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key=KEY, http_client=http, timeout=PATIENCE_S
        ) as client:
            yield client
    finally:
        log.removeHandler(broken)


@dataclass
class Users:
    """Those who hold one conversation after another, all at once."""

    client: AsyncOpenAI
    tally: Tally
    number: int
    """Of users."""
    at_least: int
    """Conversations that they hold, however soon the roll-out is over."""
    held: list[Conversation] = field(default_factory=list)

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """While it lasts they talk, and afterwards end what they have begun."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.number):
                group.create_task(self._talk(over))
            yield
            self.tally.phase = "after"
            over.set()

    async def _talk(self, over: asyncio.Event) -> None:
        while not over.is_set() or len(self.held) < self.at_least:
            conversation = Conversation(len(self.held), self.client, self.tally)
            self.held.append(conversation)
            await conversation.hold()

    async def judged(self) -> list[str]:
        """Print how many turns are lost from the histories, or in one twice; each that a server
        lost or doubled."""
        lost, doubled, again = [], [], 0
        for conversation in self.held:
            found = await conversation.marks()
            lost += [mark for mark in conversation.seen if mark not in found]
            doubled += [mark for mark in found if found[mark] > self.tally.sent[mark]]
            again += sum(1 for n in found.values() if n > 1)
        print(f"turns lost {len(lost)}, doubled {len(doubled)}")
        print(f"turns in a history twice, since a client sent them again: {again - len(doubled)}")
        return [f"lost {mark}" for mark in lost] + [f"doubled {mark}" for mark in doubled]


@dataclass
class Conversation:
    """One conversation, and the marks of the turns whose answers it has seen. Every other one is a
    conversation of the API's, whose history the server joins; the rest name the response before."""

    number: int
    client: AsyncOpenAI
    tally: Tally
    name: str | None = None
    """Of a conversation of the API's."""
    last: str | None = None
    seen: list[str] = field(default_factory=list)

    async def hold(self) -> None:
        if self.number % 2:
            self.name = (await self.client.conversations.create()).id
        kinds = (self.plain, self.streamed, self.background, self.tool_loop)
        for turn in range(TURNS):
            mark = f"c{self.number}t{turn}"
            kind = kinds[(self.number // 2 + turn) % len(kinds)]
            while not await self.try_turn(kind, mark):
                if self.name is not None and mark in await self.marks():
                    break  # the answer was kept, though its stream was cut
                self.tally.add("turns repeated")
            self.seen.append(mark)
            await asyncio.sleep(PAUSE_S)

    async def try_turn(self, kind: Callable[[str], Awaitable[Response | None]], mark: str) -> bool:
        """Whether the turn has an answer. Without one a user would ask again, from where it was."""
        try:
            answer = await kind(mark)
        except (APIError, httpx.HTTPError) as error:
            self.tally.add(self._fault(kind, error))
            logging.getLogger("rollout").info("%s %s: %r", mark, kind.__name__, error)
            return False
        if answer is None or answer.status not in ENDED:
            self.tally.add("streams cut" if answer is None else f"{kind.__name__} lost")
            logging.getLogger("rollout").info("%s %s: %r", mark, kind.__name__, answer)
            return False
        self.last = answer.id
        return True

    def _fault(self, kind: object, error: Exception) -> str:
        """The program's error, after all retries."""
        if kind == self.streamed and self._streaming:
            return "streams cut"
        if isinstance(error, APIStatusError) and error.code == "conversation_locked":
            return "still locked"
        broke = isinstance(error, APIConnectionError | httpx.HTTPError)
        return "connection errors" if broke else "requests failed"

    _streaming: bool = False
    """Whether the headers of a stream have come."""

    def fields(self, mark: str, **more: Any) -> Any:
        text = f"What is the capital of Norway? ({mark})"
        return {"model": "demo", "input": text} | self._place(self.last) | more

    def _place(self, last: str | None) -> dict[str, Any]:
        if self.name is not None:
            return {"conversation": self.name}
        return {"previous_response_id": last}

    async def plain(self, mark: str) -> Response:
        answer: Response = await self.client.responses.create(**self.fields(mark))
        return answer

    async def streamed(self, mark: str) -> Response | None:
        answer = None
        self._streaming = False
        async with await self.client.responses.create(**self.fields(mark, stream=True)) as stream:
            self._streaming = True
            async for event in stream:
                if event.type in ("response.completed", "response.incomplete"):
                    answer = event.response
        return answer

    async def background(self, mark: str) -> Response:
        create = self.client.responses.with_raw_response.create
        reply = await create(**self.fields(mark, background=True))
        answer: Response = reply.parse()
        self.tally.begun.note(reply.headers[SERVED_BY], answer.id)
        while answer.status in BEGUN:
            await asyncio.sleep(0.2)
            answer = await self.client.responses.retrieve(answer.id)
        return answer

    async def tool_loop(self, mark: str) -> Response:
        text = f"What is the weather in Oslo? ({mark})"
        answer: Response = await self.client.responses.create(
            **self.fields(mark, input=text, tools=[TOOL])
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer
        results: Any = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
            for call in calls
        ]
        done: Response = await self.client.responses.create(
            model="demo", input=results, tools=[TOOL], **self._place(answer.id)
        )
        return done

    async def marks(self) -> Counter[str]:
        """How often each turn's mark is in the history."""
        found: Counter[str] = Counter()
        if self.name is not None:
            async for kept in self.client.conversations.items.list(self.name, limit=100):
                found.update(marks_of(kept))
            return found
        response_id = self.last
        while response_id is not None:
            async for item in self.client.responses.input_items.list(response_id, limit=100):
                found.update(marks_of(item))
            response_id = (await self.client.responses.retrieve(response_id)).previous_response_id
        return found


def marks_of(item: Any) -> list[str]:
    """The mark of a user's message; of other items none."""
    if item.type != "message" or item.role != "user":
        return []
    return MARK.findall("".join(getattr(part, "text", "") for part in item.content))
