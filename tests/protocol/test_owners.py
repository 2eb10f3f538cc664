"""All that is kept of an owner: exported and erased by an admin, and by nobody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.asgi import JSON
from tests.support.served import served

if TYPE_CHECKING:
    from pathlib import Path

KEYS: dict[str, Any] = {"api_keys": ("ann:key-a", "bob:key-b"), "admin_key": "chief"}


def bearer(secret: str) -> dict[str, str]:
    return JSON | {"authorization": f"Bearer {secret}"}


def texts(row: dict[str, Any]) -> list[str]:
    return [item["content"][0]["text"] for item in row["input"]]


def test_an_admin_exports_and_erases_an_owner_and_both_are_noted(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(**KEYS, data_dir=tmp_path) as s:

            async def post(path: str, body: object, key: str) -> Any:
                return await s.client.send("POST", path, orjson.dumps(body), bearer(key))

            first = (
                await post("/v1/responses", {"model": "demo", "input": "My secret"}, "key-a")
            ).json()
            more = {"model": "demo", "input": "More", "previous_response_id": first["id"]}
            second = (await post("/v1/responses", more, "key-a")).json()
            items = [{"role": "user", "content": "Talk"}]
            talk = (await post("/v1/conversations", {"items": items}, "key-a")).json()
            other = (await post("/v1/responses", {"model": "demo", "input": "x"}, "key-b")).json()

            path = "/admin/owners/ann"
            for key, status in (("key-a", 403), ("", 401)):
                told = await s.client.send("GET", f"{path}/export", headers=bearer(key))
                assert told.status == status
                assert (await s.client.send("DELETE", path, headers=bearer(key))).status == status

            told = await s.client.send("GET", f"{path}/export", headers=bearer("chief"))
            lines = {row["object"]["id"]: row for row in map(orjson.loads, told.body.splitlines())}
            assert lines.keys() == {first["id"], second["id"], talk["id"]}
            assert lines[first["id"]]["object"] == first
            assert [texts(lines[each["id"]]) for each in (first, second, talk)] == [
                ["My secret"],
                ["More"],
                ["Talk"],
            ]

            told = await s.client.send("DELETE", path, headers=bearer("chief"))
            assert told.json()["erased"] == {"records": 3, "containers": 0, "files": 0}
            for name in (first["id"], second["id"]):
                gone = await s.client.send("GET", f"/v1/responses/{name}", headers=bearer("key-a"))
                assert gone.status == 404
            told = await s.client.send("GET", f"{path}/export", headers=bearer("chief"))
            assert told.body == b""
            kept = await s.client.send(
                "GET", f"/v1/responses/{other['id']}", headers=bearer("key-b")
            )
            assert kept.json() == other
        acts = [orjson.loads(row) for row in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
        assert [(act["act"], act["owner"]) for act in acts] == [
            ("owner.export", "ann"),
            ("owner.erase", "ann"),
            ("owner.export", "ann"),
        ]

    asyncio.run(story())
