"""Versions exchanged under load over two front ends, and over two servers by `rollout`.

Budget: 60 s on one core, most of it processes that load.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import orjson
import pytest

from tests.support.polling import polled, until_seen
from tests.support.processes import running
from tests.support.serving import child
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import read_card, write_card

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Child


FRONT_END, ENGINE = "trt_responses.fleet.front_end", "trt_responses.fleet.engine_process"
NO_KEEP_ALIVE = httpx.Limits(max_keepalive_connections=0)
"""Each request has a connection of its own, and any front end takes it."""
ADMIN = {"authorization": "Bearer boss"}
TALKERS = 4
BREATHS = 10
"""Looks between two responses of a talker, so that engines have the cores to load."""
SLOW = re.compile(r"times (as long|the tokens)")
"""What the gate says of a good version on a machine that is busy."""
COMPARED = 30
"""Prompts of a comparison, which must last until it is seen."""
PROMPT = {"input": "Hello!", "max_output_tokens": 24}


def copied(home: Path, number: int) -> None:
    """Another build of the first version's weights."""
    first = shelf.find(home.parent, f"{home.name}@1")
    directory = home / f"{number:012x}"
    shutil.copytree(first, directory)
    assert versions.new_number(home, directory.name) == number
    write_card(directory, replace(read_card(first), version=directory.name, number=number))


def shelf_of(folder: Path, engines_dir: Path, broken: int | None = None) -> None:
    """A shelf of its own with the tests' engine, and three other builds of it."""
    home = folder / "engines" / "tiny"
    shutil.copytree(engines_dir / "tiny", home)
    for number in (2, 3, 4):
        copied(home, number)
    if broken is not None:
        model = shelf.find(home.parent, f"tiny@{broken}") / MODEL
        byte, *rest = model.read_bytes()
        model.write_bytes(bytes([byte ^ 1, *rest]))


@asynccontextmanager
async def served(folder: Path, frontends: int) -> AsyncIterator[Child]:
    prompts = folder / "engines" / "gate.jsonl"
    prompts.write_bytes(COMPARED * (orjson.dumps(PROMPT) + b"\n"))
    settings = {
        "TRT_RESPONSES_STORE": f"sqlite:///{folder / 'history.db'}",
        "TRT_RESPONSES_DATA_DIR": str(folder / "data"),
        "TRT_RESPONSES_ADMIN_KEY": "boss",
        "TRT_RESPONSES_INSECURE": "1",
        "TRT_RESPONSES_LINGER_S": "0",
        "TRT_RESPONSES_CONTEXT_TOKENS": "512",
        "TRT_RESPONSES_SLOTS": str(3 * TALKERS),
        "TRT_RESPONSES_THREADS": "1",
        "TRT_RESPONSES_LOG_LEVEL": "error",
    }
    arguments = ("serve", "--port", "0", "--frontends", str(frontends))
    engines = ("--engines-dir", str(folder / "engines"))
    async with child(*arguments, *engines, environment=settings) as server:
        yield server


async def breathe() -> None:
    breaths = iter(range(BREATHS))
    await until_seen(lambda: next(breaths, None) is None)


class Talk:
    """Clients that stream one response after another."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.made: Counter[str] = Counter()
        """The responses of each version."""
        self.broken: list[str] = []
        self.killed = False
        """Whether a front end is killed on purpose: then connections may break."""
        self._url = url
        self._client = client
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
            await breathe()
            try:
                reply = await self._client.post(f"{self._url}/v1/responses", json=body)
            except httpx.TransportError as error:
                if not self.killed:
                    self.broken.append(repr(error))
                continue
            text = reply.text
            if "event: response.incomplete" in text or "event: response.completed" in text:
                self.made[reply.headers["x-trt-engine"]] += 1
            else:
                self.broken.append(f"{reply.status_code} {text[-300:]}")

    async def of(self, version: str, count: int = 12) -> None:
        """Wait until a version has made so many more responses."""
        goal = self.made[version] + count
        await until_seen(lambda: self.made[version] >= goal or bool(self.broken))


class Admin:
    """Who loads versions: any front end answers."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url = f"{url}/admin/engines/tiny"
        self._client = client

    async def load(self, **body: Any) -> dict[str, Any]:
        return await self._sent("POST", "/load", body)

    async def unload(self) -> dict[str, Any]:
        return await self._sent("POST", "/unload", {})

    async def state(self) -> dict[str, Any]:
        return await self._sent("GET", "", None)

    async def settled(self) -> dict[str, Any]:
        """The state, when no version is finishing and six answers of the front ends are equal."""

        async def look() -> dict[str, Any] | None:
            shown, *others = [await self.state() for _ in range(6)]
            return shown if shown["finishing"] == [] and others == [shown] * 5 else None

        return await polled(look)

    async def _sent(self, method: str, act: str, body: Any) -> dict[str, Any]:
        reply = await self._client.request(method, self._url + act, json=body, headers=ADMIN)
        told: dict[str, Any] = reply.json()
        return told

    async def compares(self, change: asyncio.Task[Any]) -> None:
        """Wait until a change compares two versions."""

        async def look() -> bool | None:
            assert not change.done(), change.result()
            with suppress(httpx.TransportError):
                return "comparing" in ((await self.state())["loading"] or "") or None
            return None

        await polled(look)


@pytest.mark.slow  # it loads a dozen engines
@pytest.mark.xdist_group("embedded")
def test_versions_change_under_two_front_ends_and_no_stream_breaks(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    async def story() -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        shelf_of(one, small_engines_dir)
        shelf_of(other, small_engines_dir, broken=3)
        fresh = httpx.AsyncClient(timeout=300, limits=NO_KEEP_ALIVE)
        async with served(one, 2) as fleet, served(other, 1) as single, fresh as client:
            address, alone = await asyncio.gather(fleet.ready(), single.ready())
            servers = (address.url, alone.url)
            admin, talk = Admin(address.url, client), Talk(address.url, client)
            async with talk.going_on():
                await talk.of("tiny@1")
                status, said = await rolled_out("3", *servers, "--canary=0.5", "--watch=1")
                assert (status, "Stopped and went back" in said) == (1, True), said
                assert "SHA-256" in said
                assert [await serves(url, client) for url in servers] == [{"tiny@1"}] * 2
                assert talk.made["tiny@3"] > 0
                await engine_killed(fleet, admin)
                await front_end_killed(fleet, admin, talk, servers)
                await talk.of("tiny@2")
            assert [await serves(url, client) for url in servers] == [{"tiny@2"}] * 2
            assert talk.broken == []
            shown = await admin.settled()
            assert (shown["finishing"], shown["canary"]) == ([], None)
            assert len(running(fleet.pid, ENGINE)) == 1
            for server in (fleet, single):
                server.signal(signal.SIGTERM)
                assert (await server.ended())[0] == 0

    asyncio.run(story())


async def rolled_out(version: str, one: str, other: str, *options: str) -> tuple[int, str]:
    """The status and the words of `trt-responses rollout`, when it was not for a busy machine."""
    command = ("rollout", "tiny", version, "--servers", f"{one},{other}", *options)
    while True:
        async with child(*command, environment={"TRT_RESPONSES_ADMIN_KEY": "boss"}) as rollout:
            status, out, err = await rollout.ended()
        if not SLOW.search(out):
            return status, out + err


async def serves(url: str, client: httpx.AsyncClient) -> set[str]:
    """The versions that make responses."""
    found = set()
    for _ in range(8):
        reply = await client.post(f"{url}/v1/responses", json=PROMPT | {"model": "tiny"})
        found.add(reply.headers["x-trt-engine"])
    return found


async def engine_killed(fleet: Child, admin: Admin) -> None:
    """Kill version 4's process while it is compared, or just after: then it is served."""
    before = set(running(fleet.pid, ENGINE))
    loading = asyncio.create_task(admin.load(version=4))
    await admin.compares(loading)
    (new,) = set(running(fleet.pid, ENGINE)) - before
    os.kill(new, signal.SIGKILL)
    told = await loading
    assert "error" not in told or "tiny@4 is not served" in told["error"]["message"], told


async def front_end_killed(
    fleet: Child, admin: Admin, talk: Talk, servers: tuple[str, str]
) -> None:
    """Kill a front end while version 2 is compared, whether that front end does it or not."""
    talk.killed = True
    rollout = asyncio.create_task(rolled_out("2", *servers))
    await admin.compares(rollout)
    killed = running(fleet.pid, FRONT_END)[0]
    os.kill(killed, signal.SIGKILL)
    status, said = await rollout
    assert (status, "All 2 servers serve tiny@2." in said) == (0, True), said
    await until_seen(lambda: len(set(running(fleet.pid, FRONT_END)) - {killed}) == 2)
    await talk.of("tiny@2")
    talk.killed = False
