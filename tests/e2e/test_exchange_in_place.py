"""The embedded engine exchanged under its runs, where memory does not hold two of the demo.

The machine's memory is as small as the test says. Budget: 15 s on one core, most of it llama.cpp
loading the demo five times.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from importlib.metadata import version as installed
from itertools import cycle
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import Client, living
from tests.support.cards import card_of
from tests.support.versions import ADMIN
from trt_responses.app import create_app
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.memory import Memory
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import Limits, write_card
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = 3
WORDS = {"input": "Tell me about yourself.", "temperature": 0, "max_output_tokens": 60}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
GUIDED = {
    "input": "Bern is a city in Switzerland. Say so as JSON.",
    "text": {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}},
    "temperature": 0,
    "max_output_tokens": 120,
}


def built(engines_dir: Path, demo_gguf: Path) -> None:
    """Two builds of the demo, and one of the same size whose file holds nothing but its begin."""
    home = engines_dir / "demo"
    for number in range(1, BROKEN + 1):
        directory = home / f"{number:012x}"
        directory.mkdir(parents=True)
        if number == BROKEN:
            with demo_gguf.open("rb") as whole, (directory / MODEL).open("wb") as begun:
                begun.write(whole.read(100_000))
                begun.truncate(demo_gguf.stat().st_size)
        else:
            os.link(demo_gguf, directory / MODEL)
        assert versions.new_number(home, directory.name) == number
        libraries = {"xllamacpp": installed("xllamacpp")}
        card = replace(card_of(directory), number=number, libraries=libraries)
        card = replace(card, limits=Limits(131_072, (directory / MODEL).stat().st_size))
        write_card(directory, card)
        if number == 1:
            versions.promote_first(home, [card])


class Talk:
    """Clients that ask one thing after another, and how their responses ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ended: list[tuple[str, str]] = []
        self.fails: list[str] = []
        self.over = asyncio.Event()
        self._serving = asyncio.Event()
        """Whether an engine is there, as far as they know."""
        self._more = asyncio.Event()
        self._serving.set()

    async def load(self, number: int) -> dict[str, Any]:
        """What the server says of a load that begins and ends while they talk."""
        await self._goes_on()
        self._serving.clear()
        body = orjson.dumps({"version": number, "gate": False})
        reply = await self._client.send("POST", "/admin/engines/demo/load", body, ADMIN)
        self._serving.set()
        await self._goes_on()
        told: dict[str, Any] = reply.json()
        return told

    async def _goes_on(self) -> None:
        """Wait until one more free response has ended."""
        self._more.clear()
        await self._more.wait()

    async def free(self) -> None:
        while not self.over.is_set():
            if events := await self._events(WORDS):
                last = events[-1]["response"]
                self.ended.append((last["status"], text_of(last)))
                self._more.set()

    async def guided(self) -> None:
        while not self.over.is_set():
            events = await self._events(GUIDED)
            if events and events[-1]["type"] == "response.failed":
                self.fails.append(events[-2]["code"])
            elif events:
                orjson.loads(text_of(events[-1]["response"]))

    async def _events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a stream; none when it was refused, as while no engine is there."""
        call = self._client.ask(stream=True, store=False, **body)
        reply = await call.done()
        if reply.status == 503:
            await self._serving.wait()
            return []
        assert reply.status == 200, reply.body
        numbers = [event["sequence_number"] for event in reply.events]
        assert numbers == list(range(len(numbers)))
        return reply.events


def text_of(response: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


@pytest.mark.xdist_group("embedded")
def test_free_runs_go_on_whether_the_new_one_starts_or_the_old_one_comes_back(
    demo_gguf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    built(tmp_path, demo_gguf)
    small = int(1.5 * demo_gguf.stat().st_size)
    # patched: no machine has as little memory as this
    monkeypatch.setattr(
        "trt_responses.features.rollout.shelf_builds.memory", lambda: Memory(small, small)
    )
    settings = Settings(
        engines_dir=tmp_path,
        engine="demo",
        data_dir=tmp_path,
        store="memory://",
        admin_key="boss",
        slots=4,
        context_tokens=1024,
        threads=1,
        log_level="warning",
    )

    async def story() -> None:
        app = create_app(settings)
        async with living(app):
            client = Client(app, lambda: 0)
            alone = (await client.create(**WORDS)).json()
            talk = Talk(client)
            async with asyncio.TaskGroup() as talking:
                for each in (talk.free, talk.guided) * 2:
                    talking.create_task(each())
                paused, numbers = 0, cycle((2, 1))
                while not paused:  # all may be between two requests just then
                    number = next(numbers)
                    told = await talk.load(number)
                    assert (told["state"], told["version"]) == ("promoted", f"demo@{number}"), told
                    paused = told["paused"]
                refused = await talk.load(BROKEN)
                talk.over.set()
            assert "demo@3 is not served: " in refused["error"]["message"]
            assert f"restarted demo@{number}" in caplog.text
            assert set(talk.ended) == {(alone["status"], text_of(alone))}
            assert set(talk.fails) <= {"engine_lost"}
            reply = await client.create(**WORDS)
            assert reply.headers["x-trt-engine"] == f"demo@{number}"
            assert shelf.select(tmp_path, "demo").card.number == number
            metrics = (await client.get("/metrics")).body.decode()
            counted = re.search(r'pauses_total\{engine="exchanged"\} (\d+)', metrics)
            assert counted is not None
            assert int(counted[1]) >= paused

    asyncio.run(asyncio.wait_for(story(), 300))
