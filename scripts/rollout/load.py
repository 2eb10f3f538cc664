"""Conversations by the `openai` client at its default retries, and what of them was lost."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient

from scripts.rollout.fleet import KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from openai.types.responses import Response

TURNS = 6
PAUSE_S = 0.3
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
ENDED = {"completed", "incomplete"}


@dataclass
class Tally:
    """What happened in each phase of a roll-out."""

    phase: str = "before"
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, what: str) -> None:
        self.counts.setdefault(self.phase, Counter())[what] += 1


class ConnectionFaults(logging.Handler):
    """Counts the connections that broke before a reply: the client's retries hide them."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.DEBUG)
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Encountered"):
            self._tally.add("connection errors")


def client_of(url: str, tally: Tally) -> AsyncOpenAI:
    async def counted(reply: httpx.Response) -> None:
        tally.add("requests")
        if reply.status_code >= 500:
            ours = "x-request-id" in reply.headers
            tally.add("refused, tried again" if ours else "5xx of the proxy")

    http = DefaultAsyncHttpxClient(
        event_hooks={"response": [counted]}, limits=httpx.Limits(max_keepalive_connections=8)
    )
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, http_client=http)


@dataclass
class Conversation:
    """One conversation, and the marks of the turns whose answers it has seen."""

    number: int
    client: AsyncOpenAI
    tally: Tally
    last: str | None = None
    seen: list[str] = field(default_factory=list)

    async def hold(self) -> None:
        kinds = (self.plain, self.streamed, self.background, self.tool_loop)
        for turn in range(TURNS):
            mark = f"c{self.number}t{turn}"
            kind = kinds[(self.number + turn) % len(kinds)]
            while not await self.try_turn(kind, mark):
                self.tally.add("turns asked again")
            self.seen.append(mark)
            await asyncio.sleep(PAUSE_S)

    async def try_turn(self, kind: Callable[[str], Awaitable[Response | None]], mark: str) -> bool:
        """Whether the turn has an answer. Without one a user would ask again, from where it was."""
        try:
            answer = await kind(mark)
        except (APIError, httpx.HTTPError) as error:
            self.tally.add("streams cut" if kind == self.streamed else "requests failed")
            logging.getLogger("rollout").info("%s %s: %r", mark, kind.__name__, error)
            return False
        if answer is None or answer.status not in ENDED:
            self.tally.add(f"{kind.__name__} lost")
            return False
        self.last = answer.id
        return True

    def asked(self, mark: str, **more: Any) -> Any:
        text = f"What is the capital of Norway? ({mark})"
        return {"model": "demo", "input": text, "previous_response_id": self.last} | more

    async def plain(self, mark: str) -> Response:
        answer: Response = await self.client.responses.create(**self.asked(mark))
        return answer

    async def streamed(self, mark: str) -> Response | None:
        answer = None
        async with await self.client.responses.create(**self.asked(mark, stream=True)) as stream:
            async for event in stream:
                if event.type in ("response.completed", "response.incomplete"):
                    answer = event.response
        if answer is None:
            self.tally.add("streams cut")
        return answer

    async def background(self, mark: str) -> Response:
        answer: Response = await self.client.responses.create(**self.asked(mark, background=True))
        while answer.status in ("queued", "in_progress"):
            await asyncio.sleep(0.1)
            answer = await self.client.responses.retrieve(answer.id)
        return answer

    async def tool_loop(self, mark: str) -> Response:
        text = f"What is the weather in Oslo? ({mark})"
        answer: Response = await self.client.responses.create(
            **self.asked(mark, input=text, tools=[TOOL])
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer
        results: Any = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
            for call in calls
        ]
        return await self.client.responses.create(
            model="demo", input=results, tools=[TOOL], previous_response_id=answer.id
        )

    async def judged(self) -> tuple[int, int]:
        """How many of its turns are lost in the history, and how many are in it twice."""
        found: Counter[str] = Counter()
        response_id = self.last
        while response_id is not None:
            async for item in self.client.responses.input_items.list(response_id):
                if item.type == "message" and item.role == "user":
                    text = "".join(getattr(part, "text", "") for part in item.content)
                    found[text.rpartition("(")[2].rstrip(")")] += 1
            response_id = (await self.client.responses.retrieve(response_id)).previous_response_id
        lost = sum(mark not in found for mark in self.seen)
        return lost, sum(count - 1 for count in found.values())
