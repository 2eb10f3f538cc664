"""`/v1/containers`, and what is counted and logged of the code that runs in them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.boxed import no_box
from tests.support.served import served
from tests.support.story import story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Call
    from tests.support.served import Served

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

CODE = "<|channel|>analysis to=python code<|message|>6 * 7<|call|>"
ANSWER = "<|channel|>final<|message|>42.<|return|>"
OWNERS: dict[str, Any] = {"api_keys": "ann:key-a,bob:key-b"}


def headers(key: str) -> dict[str, str]:
    return {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "authorization": f"Bearer {key}",
    }


async def send(app: Served, method: str, path: str, key: str = "key-a", body: Any = None) -> Call:
    data = b"" if body is None else orjson.dumps(body)
    return await app.client.send(method, f"/v1/containers{path}", data, headers(key))


@story
async def test_a_container_is_made_seen_used_and_ended_by_its_owner_alone(tmp_path: Path) -> None:
    async with served(CODE, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        asked = {"name": "mine", "expires_after": {"anchor": "last_active_at", "minutes": 5}}
        made = (await send(app, "POST", "", body=asked)).json()
        assert made["id"].startswith("cntr_")
        assert made["expires_after"]["minutes"] == 5
        assert (await send(app, "GET", f"/{made['id']}")).json() == made
        assert [c["id"] for c in (await send(app, "GET", "")).json()["data"]] == [made["id"]]
        assert (await send(app, "GET", "", "key-b")).json()["data"] == []
        unknown = "cntr_" + "0" * 48
        for method in ("GET", "DELETE"):
            foreign = await send(app, method, f"/{made['id']}", "key-b")
            nobodys = await send(app, method, f"/{unknown}", "key-b")
            assert foreign.status == nobodys.status == 404
            assert foreign.body.replace(made["id"].encode(), unknown.encode()) == nobodys.body
        tool = {"type": "code_interpreter", "container": made["id"]}
        body = {"model": "demo", "input": "Hi", "tools": [tool]}
        reply = await app.client.send("POST", "/v1/responses", orjson.dumps(body), headers("key-b"))
        assert (reply.status, reply.error["param"]) == (404, "tools[0].container")
        reply = await app.client.send("POST", "/v1/responses", orjson.dumps(body), headers("key-a"))
        assert reply.json()["output"][0]["container_id"] == made["id"]
        gone = await send(app, "DELETE", f"/{made['id']}")
        assert gone.json() == {"id": made["id"], "object": "container.deleted", "deleted": True}
        assert (await send(app, "GET", f"/{made['id']}")).status == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": "x", "memory_limit": "4g"}, "memory_limit"),
        ({"name": "x", "network_policy": {"type": "allowlist"}}, "network_policy"),
        ({"name": "x", "expires_after": {"anchor": "created_at", "minutes": 5}}, None),
    ],
)
@story
async def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, body: Any, param: str | None
) -> None:
    async with served(ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        reply = await send(app, "POST", "", body=body)
        assert reply.status == 400
        assert reply.error["param"] == (param or "expires_after.anchor")


@pytest.mark.parametrize("query", ["order=up", "after=cntr_unknown", "limit=101"])
@story
async def test_a_list_refuses_what_it_cannot_do(tmp_path: Path, query: str) -> None:
    async with served(ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        reply = await send(app, "GET", f"?{query}")
        assert (reply.status, reply.error["param"]) == (400, query.partition("=")[0])


@story
async def test_without_the_tool_there_is_no_such_endpoint() -> None:
    async with served(ANSWER, **OWNERS) as app:
        assert (await send(app, "GET", "")).status == 404


@story
async def test_calls_are_counted_and_logged_without_a_word_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trt_responses.requests")
    async with served(CODE, ANSWER, python="boxed", data_dir=tmp_path) as app:
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        await app.client.create(tools=[tool])
        page = (await app.client.get("/metrics")).body.decode()
    assert 'trt_responses_tool_runs_total{tool="python",outcome="completed"} 1' in page
    assert 'trt_responses_tool_answer_bytes_total{tool="python"} 3' in page
    assert "trt_responses_tool_seconds_count 1" in page
    told = [getattr(record, "fields", {}).get("tools") for record in caplog.records]
    (line,) = [each for each in told if each]
    assert line.startswith("python:")
    assert line.endswith("ms:3B")
