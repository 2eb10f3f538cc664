"""What admins may do over HTTP, and that nobody else may."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from tests.support.asgi import JSON
from tests.support.served import served
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of

if TYPE_CHECKING:
    from pathlib import Path


def bearer(secret: str) -> dict[str, str]:
    return JSON | {"authorization": f"Bearer {secret}"}


def test_an_admin_drains_the_server_and_the_act_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with changing(path) as write:
        write(
            [
                Key(owner="ops", name="chief", sha256=digest_of("chief"), admin=True),
                Key(owner="ann", name="a", sha256=digest_of("ann")),
            ]
        )

    async def story() -> None:
        for secret, name in (("chief", "ops/chief"), ("spare", "operator")):
            async with served(
                keys_file=path, admin_key="spare", data_dir=tmp_path, linger_s=0
            ) as s:
                for other, status in (("ann", 403), ("none", 403), ("", 401)):
                    refused = await s.client.send("POST", "/admin/drain", headers=bearer(other))
                    assert refused.status == status, other
                headers = bearer(secret) | {"host": "evil.example"}
                refused = await s.client.send("POST", "/admin/drain", headers=headers)
                assert (refused.status, s.lifecycle.state) == (403, "ready")
                told = await s.client.send("POST", "/admin/drain", headers=bearer(secret))
                assert told.json() == {"state": "draining", "linger_s": 0.0}
                assert (await s.client.get("/health/ready")).status == 503
                body = b'{"model": "demo", "input": "Hello"}'
                made = await s.client.send("POST", "/v1/responses", body, bearer("ann"))
                assert made.error["code"] == "server_draining"
            last = orjson.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[-1])
            assert (last["act"], last["by"]) == ("server.drain", name)

    asyncio.run(story())


def test_an_act_that_cannot_be_noted_is_not_done(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "audit.jsonl").mkdir()
        async with served(admin_key="spare", data_dir=tmp_path) as s:
            told = await s.client.send("POST", "/admin/drain", headers=bearer("spare"))
            assert (told.status, s.lifecycle.state) == (500, "ready")
            assert "audit file" in told.error["message"]

    asyncio.run(story())


def test_without_an_admin_key_nobody_is_an_admin() -> None:
    async def story() -> None:
        async with served() as s:
            for headers, status in ((JSON, 401), (bearer("any"), 403), (bearer(" "), 401)):
                told = await s.client.send("POST", "/admin/drain", headers=headers)
                assert (told.status, s.lifecycle.state) == (status, "ready")

    asyncio.run(story())
