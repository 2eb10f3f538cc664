"""The table of fields over HTTP: served as it is, and kept to."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from scripts.reference.fields import FIELD_TABLES
from tests.support.asgi import Client, living
from tests.support.replies import check_headers
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.served import SETTINGS, WEATHER, served
from trt_responses.app import create_app
from trt_responses.settings import Settings

HELLO = [{"role": "user", "content": "hi"}]

IGNORED: dict[str, Any] = {
    "include.web_search_call.results": {"include": ["web_search_call.results"]},
    "include.nonsense": {"include": ["nonsense"]},
    "tools[].async": {"tools": [WEATHER | {"async": True}]},
    "tools[].zzz": {"tools": [{"type": "namespace", "name": "n", "tools": [WEATHER | {"zzz": 1}]}]},
    "prompt_cache_options.mode": {"prompt_cache_options": {"mode": "x"}},
    "reasoning.mode": {"reasoning": {"mode": "pro"}},
    "stream_options.include_obfuscation": {"stream_options": {"include_obfuscation": True}},
    "top_logprobs": {"top_logprobs": 3},
}
QUIET: list[dict[str, Any]] = [
    {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    {"include": ["reasoning.encrypted_content"]},
    {"tools": [WEATHER | {"async": False, "output_schema": {"type": "object"}}]},
    {"reasoning": {"context": "auto", "effort": "high", "summary": "auto"}},
    {"prompt_cache_options": None, "moderation": None, "image": None, "access_programs": None},
]


def test_the_table_is_served_as_it_is() -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.get("/v1/fields")
            check_headers(call)
            told = call.json()
            assert told["object"] == "list"
            assert [
                (row["endpoint"], row["field"], row["treatment"], row["ours"])
                for row in told["data"]
            ] == [
                (endpoint, field.path, field.treatment, field.ours)
                for endpoint, fields in FIELD_TABLES.items()
                for field in fields
            ]

    asyncio.run(story())


def test_what_the_engine_does_nothing_with_is_named_by_each_api() -> None:
    engine = ScriptedEngine([Script()], ignores=frozenset({"seed", "min_p", "banned_ids"}))

    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with living(app):
            client = Client(app)
            asked: list[tuple[str, dict[str, Any], str | None]] = [
                ("/v1/responses", {"input": "hi", "seed": 7, "user": "u"}, "user, seed"),
                ("/v1/responses", {"input": "hi", "temperature": 1}, None),
                ("/v1/chat/completions", {"messages": HELLO, "min_p": 0.5}, "min_p"),
                ("/v1/messages", {"messages": HELLO, "max_tokens": 9, "min_p": 0.5}, "min_p"),
            ]
            for path, body, named in asked:
                call = await client.send("POST", path, orjson.dumps({"model": "demo"} | body))
                assert (call.status, call.headers.get("x-trt-ignored")) == (200, named), path

    asyncio.run(story())


def test_the_table_says_what_the_running_engine_does_nothing_with() -> None:
    engine = ScriptedEngine([Script()], ignores=frozenset({"seed", "banned_ids"}))

    async def story() -> None:
        app = create_app(Settings(**SETTINGS), engine=engine)
        async with living(app):
            rows = (await Client(app).get("/v1/fields")).json()["data"]
        named = {(row["endpoint"], row["field"]) for row in rows if row["ignored_by_engine"]}
        assert {field for _, field in named} == {"seed"}
        assert {endpoint for endpoint, _ in named} == {
            endpoint
            for endpoint, fields in FIELD_TABLES.items()
            if any(f.path == "seed" for f in fields)
        }

    asyncio.run(story())


def test_what_is_ignored_inside_a_field_is_named_and_what_is_taken_is_not() -> None:
    async def story() -> None:
        async with served() as s:
            for path, fields in IGNORED.items():
                call = await s.client.create(**fields)
                assert (call.status, call.headers.get("x-trt-ignored")) == (200, path)
            for fields in QUIET:
                call = await s.client.create(**fields)
                assert call.status == 200, call.body
                assert "x-trt-ignored" not in call.headers, fields

    asyncio.run(story())


def test_null_inside_a_field_means_the_default_and_the_echo_shows_it() -> None:
    async def story() -> None:
        async with served() as s:
            plain = (await s.client.create()).json()
            nulls = await s.client.create(
                reasoning={"effort": None, "summary": None, "context": None, "mode": None},
                text={"format": None, "verbosity": None},
                stream_options={"include_obfuscation": None},
                include=None,
                tools=None,
                tool_choice=None,
            )
            assert nulls.status == 200
            assert "x-trt-ignored" not in nulls.headers
            for key in ("reasoning", "text", "tools", "tool_choice", "top_logprobs"):
                assert nulls.json()[key] == plain[key]
            bare = {"description": None, "parameters": None, "strict": None}
            told = await s.client.create(tools=[{"type": "function", "name": "f"} | bare])
            echo = told.json()["tools"][0]
            assert echo == {"type": "function", "name": "f"} | bare | {"strict": False}

    asyncio.run(story())
