"""A served file of keys: who is let in, and what a change of it does to a response being made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import JSON, until
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, SETTINGS, served
from tests.support.turns import turn
from trt_responses.app import create_app
from trt_responses.errors import StartupError
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def hold(path: Path, *secrets: str) -> None:
    with changing(path) as write:
        write([Key(owner=s[:3], name=s, sha256=digest_of(s)) for s in secrets])


def bearer(secret: str) -> dict[str, str]:
    return JSON | {"authorization": f"Bearer {secret}"}


def test_keys_of_the_file_and_of_the_settings_are_let_in_each_as_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    hold(path, "ann1", "ann2", "bob1")

    async def story() -> None:
        async with served(api_keys="eve:given", keys_file=path, data_dir=tmp_path) as s:
            body = b'{"model": "demo", "input": "Hello"}'
            made = await s.client.send("POST", "/v1/responses", body, bearer("ann1"))
            assert made.status == 200
            where = f"/v1/responses/{made.json()['id']}"
            for secret, status in (("ann2", 200), ("bob1", 404), ("given", 404), ("ann3", 401)):
                found = await s.client.send("GET", where, headers=bearer(secret))
                assert found.status == status, secret
            assert (await s.client.get(where)).status == 401

    asyncio.run(story())


def test_a_key_that_is_removed_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    hold(path, "ann1")
    changed = asyncio.Event()

    async def sleep(delay_s: float) -> None:
        await changed.wait()
        await turn()

    async def story() -> None:
        async with served(ANSWER, manual=True, sleep=sleep, keys_file=path, data_dir=tmp_path) as s:
            body = b'{"model": "demo", "input": "Hello", "stream": true}'
            running = s.client.open("POST", "/v1/responses", body, bearer("ann1"))
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(3)
            hold(path, "ann2")
            changed.set()
            while (await s.client.send("GET", "/v1/models", headers=bearer("ann1"))).status == 200:
                await turn()  # the file is looked at in a thread
            assert (await s.client.send("GET", "/v1/models", headers=bearer("ann2"))).status == 200
            assert not running.ended
            while not running.ended:
                await s.clock.step()
            assert running.events[-1]["type"] == "response.completed"

    asyncio.run(story())


@pytest.mark.parametrize("text", [None, "", '{"keys": [{"owner": "ann"}]}'])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_text(text)
    settings = Settings(**SETTINGS, keys_file=path, data_dir=tmp_path)
    with pytest.raises(StartupError, match="keys new OWNER"):
        create_app(settings, engine=ScriptedEngine([]))


def test_a_file_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    hold(path)

    async def story() -> None:
        async with served(keys_file=path, data_dir=tmp_path) as s:
            assert (await s.client.get("/v1/models")).status == 401

    asyncio.run(story())
