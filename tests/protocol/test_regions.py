"""Two regions, each with its store, and a copy that arrives late."""

from __future__ import annotations

import asyncio

from tests.support.served import served
from trt_responses.store import Record
from trt_responses.stores.memory.store import MemoryStore


def test_a_response_that_has_not_arrived_is_not_unknown() -> None:
    async def story() -> None:
        eu, us = MemoryStore(), MemoryStore()
        async with (
            served(store=eu, regions=("eu", "us")) as there,
            served(store=us, regions=("us", "eu")) as here,
        ):
            made = (await there.client.create(input="Hello")).json()
            more = {"input": "More", "previous_response_id": made["id"]}
            early = await here.client.create(**more)
            assert early.status == 409
            assert early.json()["error"]["code"] == "previous_response_not_here"
            assert "'eu'" in early.json()["error"]["message"], "it names the place"
            talk = (await there.client.send("POST", "/v1/conversations", b"{}")).json()["id"]
            place = f"/v1/responses/{made['id']}"
            for method, path in (
                ("GET", place),
                ("GET", f"{place}?stream=true"),
                ("GET", f"{place}/input_items"),
                ("POST", f"{place}/cancel"),
                ("DELETE", place),
                ("GET", f"/v1/conversations/{talk}"),
                ("GET", f"/v1/conversations/{talk}/items"),
                ("DELETE", f"/v1/conversations/{talk}"),
            ):
                absent = await here.client.send(method, path)
                assert absent.status == 409, (method, path)
                assert absent.json()["error"]["code"] == "previous_response_not_here"
                assert "'eu'" in absent.json()["error"]["message"]
                assert absent.headers["retry-after"]
            copied = await eu.get(made["id"], "")
            assert isinstance(copied, Record)
            await us.put(copied)
            continued = await here.client.create(**more)
            assert continued.status == 200
            assert len(continued.json()["id"]) == len(made["id"])
            for own, asked in ((continued.json()["id"][:-1] + "_", here), ("resp_x", here)):
                unknown = await asked.client.create(input="More", previous_response_id=own)
                assert unknown.json()["error"]["code"] == "previous_response_not_found"

    asyncio.run(story())
