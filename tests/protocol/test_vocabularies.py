"""Histories of models with other vocabularies: a model goes on with what was said, and is never
shown another one's ids. In each test the same items, sent as the input, make the same prompt."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support import redis_server
from tests.support.asgi import JSON
from tests.support.sampled import sampled
from tests.support.served import CALL, KEYED, WEATHER, served
from tests.support.template_served import template_served
from trt_responses.backends.dialects import spelled
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.redis.store import RedisStore
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.support.served import Served
    from trt_responses.store import Store

    Json = dict[str, Any]
    Serve = Callable[..., AbstractAsyncContextManager[Served]]

QWEN_CALL = (
    "<think>\nI look there.\n</think>\n\n"
    '<tool_call>{"name":"weather",  "arguments": {"city":"Oslo"}}</tool_call><|im_end|>'
)
HARMONY_CALL = CALL.replace(
    "<|channel|>commentary to=functions.weather ", " to=functions.weather<|channel|>commentary "
)
"""In the order that models may write, and that no call is rendered in."""
HARMONY_ANSWER = "<|channel|>final<|message|>It is 12 °C <|im_end|>.<|return|>"
QWEN_ANSWER = "It is 12 °C <|return|>.<|im_end|>"
ASK = {"tools": [WEATHER], "input": "Is it cold?"}


def harmony(*written: str, store: Store | None = None, **settings: Any) -> Any:
    return served(*written, store=store, **settings)


def qwen(*written: str, store: Store | None = None, **settings: Any) -> Any:
    return template_served("qwen3", *written, store=store, **settings)


WAYS = {"harmony-qwen": (harmony, HARMONY_CALL, qwen, QWEN_ANSWER)}
WAYS["qwen-harmony"] = (qwen, QWEN_CALL, harmony, HARMONY_ANSWER)
BOTH = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
SOME = sampled("way", WAYS.values(), every=2, ids=WAYS.keys())  # 7 s, and 25 MB for each


@pytest.fixture(scope="module", autouse=True)
def known_objects() -> Iterator[None]:
    """What was there before is not looked through after each test, which took half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def let_go_of_the_apps() -> Iterator[None]:
    """Each change between two vocabularies leaves a matcher's tables, of 25 MB, in a dead app."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server.running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(params=["memory", "sqlite", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Stores over one history, as servers have them: texts that ids of gpt-oss say are left out."""
    spell = spelled()
    if request.param == "memory":
        one = MemoryStore(spell=spell)
        return lambda: one
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "history.db", spell=spell)
    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url, spell=spell)


def result_of(response: Json, text: str = "12 °C <|im_end|><|end|>") -> Json:
    call = next(item for item in response["output"] if item["type"] == "function_call")
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


def said(*items: Any) -> list[Json]:
    """Items as they would be sent anew: nothing in them refers to what is stored."""
    return [
        {k: v for k, v in item.items() if k not in ("id", "encrypted_content")} for item in items
    ]


async def post(s: Served, path: str, body: Json) -> Json:
    call = await s.client.send("POST", path, orjson.dumps(body), JSON)
    assert call.status == 200, call.body
    told: Json = call.json()
    return told


async def made(s: Served, **fields: Any) -> Json:
    call = await s.client.create(**fields)
    assert call.status == 200, call.body
    told: Json = call.json()
    return told


@SOME
def test_a_chain_goes_on_with_a_model_of_another_vocabulary(
    way: Any, stores: Callable[[], Store]
) -> None:
    one, call, other, answer = way

    async def story() -> None:
        async with one(call, store=stores()) as first, other(answer, store=stores()) as second:
            asked = await made(first, **ASK)
            result = result_of(asked)
            chained = ASK | {"previous_response_id": asked["id"], "input": [result]}
            told = await made(second, **chained)
            prompt = second.prompt()
            items = [{"role": "user", "content": ASK["input"]}, *asked["output"], result]
            await made(second, **ASK | {"input": said(*items)}, store=False)
            assert prompt == second.prompt()
            # and back, over what each of the two has written
            items += [*told["output"], {"role": "user", "content": "Sure?"}]
            fields = {"previous_response_id": told["id"], "input": "Sure?"}
            await made(first, **ASK | fields)
            prompt = first.prompt()
            await made(first, **ASK | {"input": said(*items)}, store=False)
            assert prompt == first.prompt()
            assert (await first.client.get(f"/v1/responses/{told['id']}")).json() == told

    asyncio.run(story())


@SOME
def test_a_conversation_goes_on_with_a_model_of_another_vocabulary(
    way: Any, stores: Callable[[], Store]
) -> None:
    one, call, other, answer = way

    async def story() -> None:
        async with one(call, store=stores()) as first, other(answer, store=stores()) as second:
            begun = {"items": [{"role": "user", "content": "It is June."}]}
            conversation = (await post(first, "/v1/conversations", begun))["id"]
            path = f"/v1/conversations/{conversation}/items"
            asked = await made(first, **ASK, conversation=conversation)
            await post(second, path, {"items": [result_of(asked)]})
            await made(second, **ASK | {"input": "Well?"}, conversation=conversation)
            prompt = second.prompt()
            listed = (await second.client.get(f"{path}?order=asc")).json()["data"]
            assert [item["type"] for item in listed][-2:] == ["message", "message"]
            await made(second, **ASK | {"input": said(*listed[:-1])}, store=False)
            assert prompt == second.prompt()
            await made(first, **ASK | {"input": "Sure?"}, conversation=conversation)
            prompt = first.prompt()
            items = [*listed, {"role": "user", "content": "Sure?"}]
            await made(first, **ASK | {"input": said(*items)}, store=False)
            assert prompt == first.prompt()

    asyncio.run(story())


@BOTH
def test_an_item_that_another_model_wrote_is_referred_to_by_its_words(way: Any) -> None:
    one, call, other, answer = way
    store = MemoryStore()

    async def story() -> None:
        async with one(call, store=store) as first, other(answer, store=store) as second:
            asked = await made(first, **ASK)
            named = [{"type": "item_reference", "id": item["id"]} for item in asked["output"]]
            result = result_of(asked)
            await made(second, **ASK | {"input": [*named, result]})
            prompt = second.prompt()
            await made(second, **ASK | {"input": said(*asked["output"], result)})
            assert prompt == second.prompt()

    asyncio.run(story())


@BOTH
def test_ids_that_a_client_carries_sealed_are_taken_by_their_own_vocabulary_alone(way: Any) -> None:
    one, call, other, answer = way
    carried = ASK | {"include": ["reasoning.encrypted_content"], "store": False}

    async def story() -> None:
        async with one(call, **KEYED) as first, other(answer, **KEYED) as second:
            asked = await made(first, **carried)
            assert asked["output"][0]["encrypted_content"]
            question = {"role": "user", "content": ASK["input"]}
            items = [question, *asked["output"], result_of(asked)]
            sealed = ASK | {"input": items, "store": False}
            plain = sealed | {"input": said(*items)}
            for server, is_same in ((second, True), (first, False)):
                await made(server, **sealed)
                prompt = server.prompt()
                await made(server, **plain)
                assert (prompt == server.prompt()) is is_same

    asyncio.run(story())


def test_a_compaction_of_another_vocabulary_is_refused_with_both_names() -> None:
    store = MemoryStore()
    summary = "<|channel|>final<|message|>They greet.<|return|>"

    async def story() -> None:
        async with (
            harmony(summary, store=store, **KEYED) as first,
            qwen(QWEN_ANSWER, store=store, **KEYED) as second,
        ):
            asked = {"model": "demo", "input": "x"}
            item = (await post(first, "/v1/responses/compact", asked))["output"][-1]
            sent = [item, {"role": "user", "content": "Well?"}]
            assert (await first.client.create(input=sent)).status == 200
            call = await second.client.create(input=sent)
            assert (call.status, call.error["code"]) == (400, "invalid_encrypted_content")
            kept = await made(first, input=sent)
            call = await second.client.create(previous_response_id=kept["id"])
            assert (call.status, call.error["code"]) == (400, "other_vocabulary")
            assert call.error["param"] == "previous_response_id"
            assert "gpt-oss" in call.error["message"]
            assert "qwen3-" in call.error["message"]

    asyncio.run(story())
