"""Fields of vLLM and llama.cpp: a constraint is followed or refused, and never dropped.

Budget: 1 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.served import ANSWER, Served, ids, script, served
from tests.support.steering import GUIDES
from trt_responses.features.peer_words.words import FIELDS, REFUSED, lark_of
from trt_responses.schema.compile import Forms
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
GBNF = 'root ::= first "!"  # the end\nfirst-word ::= [a-z/]+\nfirst ::= first-word | "Hi"'
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


ALL = {**GUIDES, "lark": GUIDES["json_schema"]}


FOLLOWED: list[tuple[dict[str, Any], str, str]] = [
    ({"guided_json": SCHEMA}, "json_schema", '{"ok": true}'),
    ({"guided_json": orjson.dumps(SCHEMA).decode()}, "json_schema", '{"ok": true}'),
    ({"json_schema": SCHEMA}, "json_schema", '{"ok": true}'),
    ({"structured_outputs": {"json": SCHEMA, "regex": None}}, "json_schema", '{"ok": true}'),
    ({"structured_outputs": {"json_object": True}}, "json_schema", '{"a": 1}'),
    ({"guided_choice": ['a "b"', "c/d"]}, "lark", "c/d"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "lark", "no"),
    ({"guided_regex": r"^a/b\d{2}$"}, "lark", "a/b12"),
    ({"structured_outputs": {"regex": r"\d+"}}, "lark", "12"),
    ({"guided_grammar": 'start: "a" "b"'}, "lark", "ab"),
    ({"grammar": GBNF}, "lark", "a/c!"),
]


async def asked(s: Served, api: str, fields: dict[str, Any]) -> Any:
    if api == "responses":
        return await s.client.create(**fields)
    body = orjson.dumps({"model": "demo"} | CHAT | fields)
    return await s.client.send("POST", "/v1/chat/completions", body)


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize(("fields", "kind", "text"), FOLLOWED)
def test_a_constraint_guides_the_answer(
    api: str, fields: dict[str, Any], kind: str, text: str
) -> None:
    async def story() -> None:
        async with served(text + "<|return|>", guides=ALL) as s:
            call = await asked(s, api, fields)
            assert call.status == 200, call.body
            assert "x-trt-ignored" not in call.headers
            guide = s.last.options.guide
            assert guide is not None
            assert guide.kind == kind
            if kind == "lark":
                Forms().lark(guide.source, "grammar")
            assert text.encode() in call.body.replace(b'\\"', b'"')

    asyncio.run(story())


@pytest.mark.parametrize("fields", [fields for fields, _, _ in FOLLOWED])
def test_an_engine_without_the_guide_refuses_it_by_name(fields: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            for api in ("responses", "chat"):
                call = await asked(s, api, fields)
                assert call.status == 400
                assert call.error["param"].startswith(next(iter(fields)))
            assert not s.engine.requests

    asyncio.run(story())


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_json": "no JSON"},
        {"guided_json": SCHEMA, "guided_choice": ["a"]},
        {"guided_choice": ["a"], "text": {"format": {"type": "json_object"}}},
        {"guided_choice": []},
        {"guided_choice": [1]},
        {"guided_choice": ["a"] * 1001},
        {"guided_regex": "("},
        {"guided_grammar": "start: ("},
        {"structured_outputs": {"structural_tag": "x"}},
        {"structured_outputs": {"regex": ""}, "guided_regex": 1},
        {"structured_outputs": 1},
        *({name: [7]} for name in REFUSED),
        {"repetition_penalty": 0},
        {"repetition_penalty": True},
        {"logit_bias": [1]},
        {"logit_bias": {"a": 1}},
        {"logit_bias": {"1": 101}},
        {"logit_bias": {"1": None}},
        {"logit_bias": {str(n): 1 for n in range(1025)}},
        {"logit_bias": {"9999999": 1}},
        {"logit_bias": {"00000000000200": 1}},
        {"logit_bias": {"5": 1, "05": -100}},
        {"logit_bias": {"\u0663": 1}},
        {"logit_bias": {"200012": 100}},
        {"stop_token_ids": 1},
        {"stop_token_ids": ["1"]},
        {"stop_token_ids": [9_999_999]},
        {"stop_token_ids": list(range(65))},
        {"min_tokens": -1},
        {"min_tokens": 5, "max_output_tokens": 4},
        {"min_tokens": 5, "guided_choice": ["a"]},
    ],
)
def test_what_cannot_be_done_is_refused_before_any_token(fields: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(ANSWER, guides=ALL) as s:
            call = await s.client.create(**fields)
            assert call.status == 400, fields
            assert call.error["param"].partition(".")[0] in fields
            assert not s.engine.requests

    asyncio.run(story())


def test_a_least_number_of_tokens_names_what_guides_the_answer() -> None:
    async def story() -> None:
        async with served(ANSWER, guides=ALL) as s:
            call = await s.client.create(min_tokens=5, reasoning={"effort": "none"})
            assert call.error["message"].startswith(
                "Unsupported value for 'min_tokens': its answer"
            )

    asyncio.run(story())


def test_values_that_ask_for_nothing_are_accepted() -> None:
    nothing: dict[str, Any] = {field.path: None for field in FIELDS}
    nothing |= {"logit_bias": {}, "repetition_penalty": 1.0, "echo": False}

    async def story() -> None:
        async with served(ANSWER) as s:
            assert (await s.client.create(**nothing)).status == 200

    asyncio.run(story())


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_options_of_sampling_reach_the_engine(api: str) -> None:
    words = {"repetition_penalty": 1.1, "logit_bias": {"5": 2, "7": -100}}

    async def story() -> None:
        async with served(ANSWER) as s:
            call = await asked(s, api, words)
            assert call.status == 200, call.body
            assert "x-trt-ignored" not in call.headers
            options = s.last.options
            assert options.repetition_penalty == 1.1
            assert options.logit_bias == ((5, 2.0), (7, -100.0))
            assert (await asked(s, api, {"logit_bias": {"7": -100}})).status == 200
            assert s.last.options.banned_ids == (7,), "which every engine can do"
            assert not s.last.options.logit_bias

    asyncio.run(story())


def test_an_engine_without_an_option_refuses_it_by_name() -> None:
    async def story() -> None:
        async with served(ANSWER, extras=frozenset()) as s:
            for words in ({"repetition_penalty": 1.1}, {"logit_bias": {"5": 2}}):
                call = await s.client.create(**words)
                assert (call.status, call.error["param"]) == (400, next(iter(words)))
            assert (await s.client.create(logit_bias={"5": -100})).status == 200

    asyncio.run(story())


def test_an_answer_stops_at_the_client_s_ids() -> None:
    (stop,) = ids(" there")

    async def story() -> None:
        async with served(ANSWER) as s:
            call = await s.client.create(stop_token_ids=[stop])
            assert call.json()["status"] == "completed"
            assert call.json()["output"][0]["content"][0]["text"] == "Hello there"
            chat = (await asked(s, "chat", {"stop_token_ids": [stop]})).json()["choices"][0]
            assert (chat["finish_reason"], chat["message"]["content"]) == ("stop", "Hello there")

    asyncio.run(story())


def test_the_ids_at_which_the_model_stops_anyway_may_be_among_them() -> None:
    (stop,) = ids(" there")

    async def story() -> None:
        async with served(ANSWER) as s:
            call = await s.client.create(stop_token_ids=[CONTROL.return_, stop, CONTROL.call])
            assert call.json()["output"][0]["content"][0]["text"] == "Hello there"

    asyncio.run(story())


def test_an_answer_has_its_least_number_of_tokens() -> None:
    asks: list[GenerateOptions] = []

    def answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        asks.append(options)
        words = " word" * (options.max_tokens if options.banned_ids else 2)
        begun = "" if len(asks) % 2 == 0 else "<|channel|>final<|message|>"
        return script((begun + words) if options.banned_ids else words + "<|return|>")

    async def story() -> None:
        async with served(answer) as s:
            call = await s.client.create(min_tokens=9, max_output_tokens=40)
            assert call.json()["status"] == "completed", call.body
            first, rest = asks
            assert not first.stop_ids
            assert set(rest.stop_ids) <= set(first.banned_ids)
            assert first.max_tokens == 9
            assert rest.max_tokens == 31
            assert s.prompt()[: len(s.prompt(0))] == s.prompt(0)
            assert len(s.prompt()) == len(s.prompt(0)) + 9
            assert call.json()["usage"]["output_tokens"] == 12
            asks.clear()
            call = await s.client.create(min_tokens=9, max_output_tokens=9)
            assert call.json()["status"] == "incomplete"
            assert len(asks) == 1

    asyncio.run(story())


@pytest.mark.parametrize("path", ["responses", "chat/completions", "messages", "responses?stream"])
def test_an_absent_model_is_the_one_that_is_served(path: str) -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            stream = path.endswith("?stream")
            body = {"input": "Hi"} if "responses" in path else CHAT | {"max_tokens": 9}
            sent = orjson.dumps(body | {"stream": stream})
            call = await s.client.send("POST", f"/v1/{path.partition('?')[0]}", sent)
            assert call.status == 200, call.body
            assert b'"model":"demo"' in call.body

    asyncio.run(story())


def test_a_grammar_of_llama_cpp_is_one_of_lark() -> None:
    form = Forms().lark(lark_of(GBNF), "grammar")
    for text, whole in (("a/c!", True), ("Hi!", True), ("!", False), ("a", False)):
        follower = form.follow()
        assert (follower.feed(text.encode()) and follower.whole) is whole, text
