"""What a request says to an MCP server alone stands nowhere: no store, seal, log, trace, metric or
answer has it."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import orjson
import pytest
import redis as redis_py

from tests.support import redis_server
from tests.support.asgi import JSON, until
from tests.support.mcp_site import mcp_site
from tests.support.otlp import collecting
from tests.support.served import ANSWER, KEY, KEYED, script, served, vocabulary
from tests.support.turns import turn
from trt_responses.backends.stores import store_of
from trt_responses.features.seal.sealer import Sealer
from trt_responses.settings import Settings
from trt_responses.stores.whole import says_nothing
from trt_responses.tools.mcp.sdk import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.asgi import Call, Client, Json
    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions
    from trt_responses.store import Store

SECRET = "s3cret"
CALL = (
    "<|channel|>analysis<|message|>I will look.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.demo__find <|constrain|>json<|message|>{}<|call|>"
)
MESSAGE = {"role": "user", "content": "Go."}


class Recording:
    """A store, and all that it was given, in words."""

    def __init__(self, store: Store, said: list[str]) -> None:
        self._store = store
        self._said = said

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def told(*given: Any, **more: Any) -> Any:
            self._said.append(f"{name} {given!r} {more!r}")
            return found(*given, **more)

        return told


def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    answered = "to=assistant" in vocabulary().text(list(prompt_ids)).rpartition("<|start|>user")[2]
    return script(ANSWER if answered else CALL)


async def requests(client: Client, tool: Json) -> tuple[list[Call], list[str]]:
    """Good ones and bad ones, in all ways to begin and to see a response; the sealed texts."""
    brought = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    made = [
        await client.create(tools=[tool]),
        await client.create(tools=[tool], stream=True),
        await client.create(input=[brought, MESSAGE]),
        await client.create(tools=[tool | {"server_url": "http://127.0.0.1:9/"}]),
        await client.create(tools=[tool], store=False, include=["reasoning.encrypted_content"]),
    ]
    later = await client.create(tools=[tool], background=True)
    made.append(later)
    while later.json()["status"] in ("queued", "in_progress"):
        await turn()
        later = await client.get(f"/v1/responses/{later.json()['id']}")
    assert [call.status for call in made] == [200] * len(made)
    sealed = [item["encrypted_content"] for item in made[4].json()["output"] if "rs_" in item["id"]]
    begun = await client.send("POST", "/v1/conversations", orjson.dumps({"items": [MESSAGE]}))
    identity = begun.json()["id"]
    made.append(await client.create(input=[brought, MESSAGE], conversation=identity))
    made.append(await client.get(f"/v1/conversations/{identity}/items"))
    assert made[-2].status == made[-1].status == 200
    wrong: list[Json] = [{"headers": {"x": f"{SECRET}\n"}}, {"authorization": f"{SECRET}\0"}]
    wrong += [{"server_url": "http://127.0.0.1:1/"}, {"allowed_tools": 5}]
    made += [await client.create(tools=[tool | change]) for change in wrong]
    assert [call.status for call in made[-4:]] == [400] * 4
    seen = [f"/v1/responses/{call.json()['id']}" for call in (made[0], made[2], later)]
    paths = [f"{one}{part}" for one in seen for part in ("", "/input_items", "/explain")]
    made += [await client.get(path) for path in paths]
    made.append(await client.get("/metrics"))
    made.append(await client.send("POST", "/v1/responses", b'{"a": ' + orjson.dumps(tool), JSON))
    return made, sealed


async def everything(store: Store, endpoint: str, said: list[str]) -> None:
    async with mcp_site() as server:
        tool = {
            **{"type": "mcp", "server_label": "demo", "server_url": server.url},
            **{"authorization": f"{SECRET}-token", "headers": {"x-key": f"{SECRET}-header"}},
            **{"require_approval": "never", "unknown": f"{SECRET}-unknown"},
        }
        settings: dict[str, Any] = {
            "mcp_urls": (server.url, "http://127.0.0.1:9/"),
            "private_networks": ("127.0.0.0/8",),
            "otlp_endpoint": endpoint,
            "log_level": "debug",
            **KEYED,
        }
        recording: Any = Recording(store, said)
        async with served(turns, store=recording, **settings) as app:
            made, sealed = await requests(app.client, tool)
            said += [f"{call.body!r} {call.headers!r}" for call in made]
            said += [app.prompt_text(turn) for turn in range(len(app.engine.requests))]
        assert sealed
        said += [repr(Sealer(lambda: [base64.b64decode(KEY)]).open(s, "", "-")) for s in sealed]
        assert server.count("tools/call") >= 5
        assert all(one.headers["x-key"] == f"{SECRET}-header" for one in server.asked)
    assert any(text.startswith("put (Record") and "mcp_call" in text for text in said)
    assert any(text.startswith("put_job") for text in said)


def connections() -> WeakSet[Connection]:
    gc.collect()
    return WeakSet(one for one in gc.get_objects() if isinstance(one, Connection))


@pytest.fixture
def known_objects() -> Iterator[None]:
    """What was there before is not looked through."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("known_objects")
def test_secrets_of_a_server_do_not_outlast_the_request() -> None:

    async def one_request() -> None:
        settings: dict[str, Any] = {"private_networks": ("127.0.0.0/8",)}
        async with mcp_site() as server, served(ANSWER, mcp_urls=(server.url,), **settings) as app:
            tool = {"type": "mcp", "server_label": "demo", "server_url": server.url}
            call = await app.client.create(tools=[tool | {"authorization": SECRET}])
            assert call.status == 200
            assert server.count("tools/list")
            await until(lambda: not connections())

    asyncio.run(one_request())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_secrets_of_a_server_stand_nowhere(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with collecting() as collector:
        if kind == "redis":
            with redis_server.running(tmp_path) as server:
                store = store_of(Settings(store=server.url), says_nothing)
                asyncio.run(everything(store, collector.endpoint, said))
                with redis_py.Redis(port=server.port) as client:
                    kept = [client.dump(key) or b"" for key in client.scan_iter()]
            assert kept
            said += map(repr, kept)
        else:
            where = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/kept.db"
            store = store_of(Settings(store=where), says_nothing)
            asyncio.run(everything(store, collector.endpoint, said))
            said += [repr(path.read_bytes()) for path in tmp_path.iterdir()]
    assert collector.spans
    assert caplog.text
    said += [*map(str, collector.spans), caplog.text]
    assert [text for text in said if SECRET in text] == []
