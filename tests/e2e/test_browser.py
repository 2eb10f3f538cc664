"""`web_search` as a user has it: the openai client, a real server, a small web on loopback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.boxed import no_box
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import script, vocabulary
from tests.support.serving import client_of, listening
from tests.support.small_web import answering, calling, settings_for, small_web
from tests.support.story import story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openai.types.responses import Response

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

TOOL: Any = {"type": "web_search"}
SCRIPTS = (
    calling("search", '{"query": "cats"}'),
    calling("open", '{"id": 0}'),
    calling("find", '{"pattern": "SIXTEEN"}'),
    answering("Cats sleep sixteen hours 🐈【1†L4】【0†L2-L3】, they say 【7†L1】."),
)


def engine_of(*texts: str) -> ScriptedEngine:
    return ScriptedEngine([script(text) for text in texts])


def prompt_of(engine: ScriptedEngine, number: int = -1) -> str:
    return vocabulary().text(list(engine.requests[number].prompt_ids))


def actions_of(response: Response) -> list[Any]:
    calls = [item for item in response.output if item.type == "web_search_call"]
    return [call.action.model_dump(exclude_none=True) for call in calls]


def cited(response: Response) -> list[tuple[str, str, str]]:
    """What each citation covers, and what it names."""
    part = response.output[-1].model_dump()["content"][0]
    return [
        (part["text"][one["start_index"] : one["end_index"]], one["url"], one["title"])
        for one in part["annotations"]
    ]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@story
async def test_it_searches_opens_finds_and_cites(stream: bool) -> None:
    engine = engine_of(*SCRIPTS)
    asked: Any = {"model": "demo", "input": "Cats?", "tools": [TOOL]}
    asked["include"] = ["web_search_call.action.sources"]
    async with (
        small_web() as site,
        listening(engine, **settings_for(site)) as address,
        client_of(address) as client,
    ):
        kinds: list[str] = []
        if stream:
            async with client.responses.stream(**asked) as told:
                kinds = [event.type async for event in told]
                response = await told.get_final_response()
        else:
            response = await client.responses.create(**asked)
        url, other = site.url("/cats"), f"http://localhost:{site.port}/elsewhere"
    sources = [{"type": "url", "url": one} for one in (url, other)]
    search = {"type": "search", "query": "cats", "queries": ["cats"], "sources": sources}
    find = {"type": "find_in_page", "pattern": "SIXTEEN", "url": url}
    assert actions_of(response) == [search, {"type": "open_page", "url": url}, find]
    link = f"([127.0.0.1]({url}))"
    assert response.output_text == (
        f"Cats sleep sixteen hours 🐈 {link} {link}, they say 【7†L1】."
    )
    assert cited(response) == [(link, url, "All about cats")] * 2
    assert kinds.count("response.output_text.annotation.added") == (2 if stream else 0)
    shown = prompt_of(engine)
    assert f"[1] All about cats ({url})\n**viewing lines [0 - 6] of 6**\n\nL0: URL: {url}" in shown
    assert "L4: Cats sleep sixteen hours a day." in shown
    assert "# 【0†match at L4】" in shown
    assert "they sleep & purr 〖9†L9〗" in shown
    assert [one.path for one in site.asked] == ["/search", "/cats"]


@story
async def test_the_next_prompt_has_the_models_own_ids() -> None:
    engine = engine_of(*SCRIPTS, answering("Yes."))
    async with (
        small_web() as site,
        listening(engine, **settings_for(site)) as address,
        client_of(address) as client,
    ):
        asked: Any = {"model": "demo", "tools": [TOOL]}
        first = await client.responses.create(input="Cats?", **asked)
        await client.responses.create(input="Sure?", previous_response_id=first.id, **asked)
    assert "sixteen hours 🐈【1†L4】【0†L2-L3】, they say 【7†L1】.<|end|>" in prompt_of(engine)


def lookup() -> Any:
    return {"type": "function", "name": "lookup", "parameters": {"type": "object"}}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "carried"])
@story
async def test_a_loop_that_a_function_breaks_off_goes_on_with_its_cursors(store: bool) -> None:
    engine = engine_of(
        SCRIPTS[0],
        SCRIPTS[1],
        "<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>{}<|call|>",
        calling("open", '{"cursor": 1, "id": 0}'),
        calling("open", '{"cursor": 0, "id": 0}'),
        answering("Dogs bark【2†L2】, cats【1†L4】, both【0†L2】."),
    )
    asked: Any = {"model": "demo", "tools": [TOOL, lookup()], "store": store}
    if not store:
        asked["include"] = ["reasoning.encrypted_content"]
    async with (
        small_web() as site,
        listening(engine, **settings_for(site)) as address,
        client_of(address) as client,
    ):
        first = await client.responses.create(input="Cats?", **asked)
        call = first.output[-1]
        assert call.type == "function_call"
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}
        if store:
            more: Any = {"input": [result], "previous_response_id": first.id}
        else:
            items = [item.model_dump(exclude_none=True) for item in first.output]
            more = {"input": [{"role": "user", "content": "Cats?"}, *items, result]}
        second = await client.responses.create(**more, **asked)
        urls = [site.url(path) for path in ("/dogs", "/cats", "/cats")]
    assert [url for _, url, _ in cited(second)] == urls
    assert [one.path for one in site.asked] == ["/search", "/cats", "/cats", "/dogs"]
    assert "[2] Dogs (" in prompt_of(engine)
    assert "[3] All about cats (" in prompt_of(engine)


@story
async def test_two_owners_at_once_never_see_each_others_pages() -> None:
    async def pages_of(client: Any, name: str) -> str:
        asked = {"model": "demo", "tools": [TOOL], "input": f"name={name};"}
        response: Response = await client.responses.create(**asked)
        return response.output_text

    def written(prompt_ids: Sequence[int], options: object) -> Any:
        text = vocabulary().text(list(prompt_ids))
        name = text.partition("name=")[2].partition(";")[0]
        if "[0] " not in text:
            return script(calling("search", f'{{"query": "{name}"}}'))
        if "[1] " not in text:
            return script(calling("open", '{"id": 0}'))
        other = {"ann": "bob", "bob": "ann"}[name]
        seen = f"[0] {other}" in text or f"{other}:" in text
        return script(answering(f"{name} {'sees' if seen else 'does not see'} {other}【1†L4】"))

    engine = ScriptedEngine(written)
    keys = ("ann:key-of-ann", "bob:key-of-bob")
    async with (
        small_web() as site,
        listening(engine, api_keys=keys, **settings_for(site)) as address,
        client_of(address) as client,
    ):
        ann, bob = (client.with_options(api_key=f"key-of-{name}") for name in ("ann", "bob"))
        told = await asyncio.gather(
            *(pages_of(client, name) for client, name in ((ann, "ann"), (bob, "bob")) * 4)
        )
    for text in told:
        name, rest = text.split(" ", 1)
        assert rest.startswith("does not see"), name


@pytest.mark.parametrize(
    ("call", "path", "told"),
    [
        (calling("open", '{"id": "http://127.0.0.1:1/x"}'), "", "is not among the results"),
        (calling("open", '{"id": 3}'), "", "No pages to access!"),
        (calling("open", '{"id": '), "", "Error parsing tool arguments as JSON"),
        (calling("search", "{}"), "", "The argument `query` is missing"),
    ],
    ids=["unseen", "no pages", "no JSON", "no query"],
)
@story
async def test_what_goes_wrong_is_a_failed_item_and_told_to_the_model(
    call: str, path: str, told: str
) -> None:
    engine = engine_of(call, answering("I cannot."))
    async with (
        small_web() as site,
        listening(engine, **settings_for(site)) as address,
        client_of(address) as client,
    ):
        response = await client.responses.create(model="demo", input="Hi", tools=[TOOL])
    (item,) = [item for item in response.output if item.type == "web_search_call"]
    assert (item.status, response.status) == ("failed", "completed")
    assert told in prompt_of(engine)
    assert site.asked == []
