"""Versions exchanged under load over two front ends, and over two servers by `rollout`.

Budget: 60 s on one core, most of it processes that load.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import orjson
import pytest

from tests.support.polling import polled, until_seen
from tests.support.serving import Child, child
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import read_card, write_card

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


FRONT_END, ENGINE = "trt_responses.fleet.front_end", "trt_responses.fleet.engine_process"
ADMIN = {"authorization": "Bearer boss"}
TALKERS = 6
BROKEN = 3
PROMPT = {"input": "Hello!", "max_output_tokens": 24}


def copied(home: Path, number: int) -> None:
    """Another build of the first version's weights; one that is broken has a flipped byte."""
    first = shelf.find(home.parent, f"{home.name}@1")
    directory = home / f"{number:012x}"
    shutil.copytree(first, directory)
    assert versions.new_number(home, directory.name) == number
    write_card(directory, replace(read_card(first), version=directory.name, number=number))
    if number == BROKEN:
        byte, *rest = (directory / MODEL).read_bytes()
        (directory / MODEL).write_bytes(bytes([byte ^ 1, *rest]))


def shelf_in(folder: Path, engines_dir: Path, *numbers: int) -> Path:
    """A shelf of its own with the tests' engine, and other builds of it."""
    shutil.copytree(engines_dir, folder / "engines")
    for number in numbers:
        copied(folder / "engines" / "tiny", number)
    return folder / "engines"


@asynccontextmanager
async def served(folder: Path, engines_dir: Path, frontends: int) -> AsyncIterator[Child]:
    prompts = folder / "prompts.jsonl"
    prompts.write_bytes(orjson.dumps(PROMPT) + b"\n")
    settings = {
        "TRT_RESPONSES_STORE": f"sqlite:///{folder / 'history.db'}",
        "TRT_RESPONSES_DATA_DIR": str(folder),
        "TRT_RESPONSES_ADMIN_KEY": "boss",
        "TRT_RESPONSES_INSECURE": "1",
        "TRT_RESPONSES_GATE_PROMPTS": str(prompts),
        "TRT_RESPONSES_LINGER_S": "0",
        "TRT_RESPONSES_CONTEXT_TOKENS": "512",
        "TRT_RESPONSES_SLOTS": str(2 * TALKERS),
        "TRT_RESPONSES_THREADS": "1",
        "TRT_RESPONSES_LOG_LEVEL": "warning",
    }
    arguments = ("serve", "--port", "0", "--frontends", str(frontends))
    async with child(*arguments, "--engines-dir", str(engines_dir), environment=settings) as server:
        yield server


class Talk:
    """Clients that stream one response after another, each over a connection of its own."""

    def __init__(self, url: str) -> None:
        self.made: Counter[str] = Counter()
        """The responses of each version."""
        self.broken: list[str] = []
        self.killed = False
        """Whether a front end is killed on purpose: then connections may break."""
        self._url = url
        self._over = asyncio.Event()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as talking:
            for number in range(TALKERS):
                talking.create_task(self._talk(number))
            yield
            self._over.set()

    async def _talk(self, number: int) -> None:
        body = PROMPT | {"model": "tiny", "stream": True, "prompt_cache_key": f"k{number}"}
        while not self._over.is_set():
            try:
                async with (
                    httpx.AsyncClient(timeout=300) as client,
                    client.stream("POST", f"{self._url}/v1/responses", json=body) as reply,
                ):
                    text = (await reply.aread()).decode()
            except httpx.TransportError as error:
                if not self.killed:
                    self.broken.append(repr(error))
                continue
            if "event: response.incomplete" in text or "event: response.completed" in text:
                self.made[reply.headers["x-trt-engine"]] += 1
            else:
                self.broken.append(f"{reply.status_code} {text[-300:]}")

    async def of(self, version: str, count: int = 12) -> None:
        """Wait until a version has made so many more responses."""
        goal = self.made[version] + count
        await until_seen(lambda: self.made[version] >= goal or bool(self.broken))


class Admin:
    """Who loads versions, over a new connection for each act: any front end answers."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/admin/engines/tiny"

    async def load(self, **body: Any) -> dict[str, Any]:
        return await self._sent("POST", "/load", body)

    async def unload(self) -> dict[str, Any]:
        return await self._sent("POST", "/unload", {})

    async def state(self) -> dict[str, Any]:
        return await self._sent("GET", "", None)

    async def _sent(self, method: str, act: str, body: Any) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=300, headers=ADMIN) as client:
            reply = await client.request(method, self._url + act, json=body)
        told: dict[str, Any] = reply.json()
        return told

    async def phase(self, word: str) -> None:
        """Wait until a change is at this."""

        async def look() -> bool | None:
            return word in ((await self.state())["loading"] or "") or None

        await polled(look)


@pytest.mark.slow  # it loads eight engines
@pytest.mark.xdist_group("embedded")
def test_versions_change_under_two_front_ends_and_no_stream_breaks(
    engines_dir: Path, tmp_path: Path
) -> None:
    async def story() -> None:
        home = shelf_in(tmp_path, engines_dir, 2, BROKEN)
        async with served(tmp_path, home, 2) as server:
            address = await server.ready()
            admin, talk = Admin(address.url), Talk(address.url)
            async with talk.going_on():
                await talk.of("tiny@1")
                print(await admin.load(version=2))
                print(await admin.state())
                await talk.of("tiny@2")
            print(talk.made, talk.broken)
            server.signal(signal.SIGTERM)
            print(await server.ended())

    asyncio.run(asyncio.wait_for(story(), 300))
