"""The description of the API: whole, resolvable, and of what is served."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import SETTINGS, served
from trt_responses.app import create_app
from trt_responses.features.description.docs import document_of, page_of
from trt_responses.settings import Settings
from trt_responses.wire.judge import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator


ERROR = "#/components/schemas/Error"


@cache
def document() -> dict[str, Any]:
    return document_of(create_app(Settings(**SETTINGS), engine=ScriptedEngine([])))


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_resolves() -> None:
    whole = json.loads(json.dumps(document()))
    found = list(references(whole))
    assert found
    for reference in found:
        node = whole
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


@pytest.mark.parametrize("model", ["demo", "it's", '</pre>"', "$(id)"])
def test_the_example_is_a_line_for_a_shell(model: str) -> None:
    page = html.unescape(page_of(document(), "http://localhost", model))
    example = page.partition("<pre>")[2].partition("}'</pre>")[0] + "}'"
    *_, body = shlex.split(example.replace("\\\n", ""))
    assert json.loads(body)["model"] == model


CALLS = {
    ("/v1/chat/completions", "post"),
    ("/v1/completions", "post"),
    *{("/v1/messages", "post"), ("/v1/messages/count_tokens", "post")},
    *{
        ("/v1/responses", "post"),
        ("/v1/responses/input_tokens", "post"),
        ("/v1/responses/compact", "post"),
        ("/v1/models", "get"),
    },
    *{("/v1/responses/{response_id}", "get"), ("/v1/responses/{response_id}", "delete")},
    *{("/v1/responses/{response_id}/cancel", "post"), ("/v1/models/{model}", "get")},
    ("/v1/responses/{response_id}/steer", "post"),
    ("/v1/responses/{response_id}/explain", "get"),
    *{("/v1/responses/{response_id}/input_items", "get"), ("/v1/fields", "get")},
    *{("/metrics", "get"), ("/health", "get"), ("/health/live", "get"), ("/health/ready", "get")},
    *{("/v1/health/live", "get"), ("/v1/health/ready", "get")},
    *{("/v1/decisions", "post"), ("/v1/systemone", "post")},
    *{("/admin/drain", "post"), ("/admin/engines/{name}", "get")},
    *{("/admin/owners/{owner}/export", "get"), ("/admin/owners/{owner}", "delete")},
    *{(f"/admin/engines/{{name}}/{act}", "post") for act in ("load", "unload")},
    *{("/v1/files", "get"), ("/v1/files", "post"), ("/v1/files/{file_id}/content", "get")},
    *{("/v1/files/{file_id}", "get"), ("/v1/files/{file_id}", "delete")},
    *{("/v1/batches", "get"), ("/v1/batches", "post"), ("/v1/batches/{batch_id}", "get")},
    ("/v1/batches/{batch_id}/cancel", "post"),
    ("/v1/conversations", "post"),
    *{("/v1/conversations/{conversation_id}", method) for method in ("get", "post", "delete")},
    *{("/v1/conversations/{conversation_id}/items", method) for method in ("get", "post")},
    *{
        ("/v1/conversations/{conversation_id}/items/{item_id}", method)
        for method in ("get", "delete")
    },
}


def test_every_call_is_described_and_served_and_no_other() -> None:
    described = {(path, method) for path, calls in document()["paths"].items() for method in calls}
    assert described == CALLS

    error = document()["components"]["schemas"]["Error"]["properties"]["error"]
    promised = set(error["required"])

    async def story() -> None:
        async with served() as s:
            for path, method in sorted(described):
                call = await s.client.send(method.upper(), re.sub("{.*?}", "x", path))
                assert call.status != 405, (method, path)
                if call.status != 200:
                    assert call.error.get("code") != "unknown_url", (method, path)
                    assert call.error.keys() >= promised, (method, path)

    asyncio.run(story())


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_call_is_described_with_what_it_takes_and_how_it_refuses(call: tuple[str, str]) -> None:
    path, method = call
    operation = document()["paths"][path][method]
    assert operation["summary"]
    named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
    assert named == set(re.findall("{(.*?)}", path))
    assert "422" not in operation["responses"], "a wrong parameter is a 400 here"
    for status, said in operation["responses"].items():
        if (path, status) == ("/metrics", "200"):
            assert said["content"] == {"text/plain": {"schema": {"type": "string"}}}
            continue
        schema = said["content"]["application/json"]["schema"]
        assert schema == ({"type": "object"} if status == "200" else {"$ref": ERROR}), status
    queries = {
        p["name"]: p["schema"] for p in operation.get("parameters", []) if p["in"] == "query"
    }
    if call[1] == "get" and path.endswith("items"):
        limit = queries["limit"]
        assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 100, 20)
        assert queries["order"]["enum"] == ["asc", "desc"]
        assert set(queries) == {"limit", "order", "after"}
    elif path in ("/v1/files", "/v1/batches") and method == "get":
        assert {"limit", "after"} <= queries.keys() <= {"limit", "after", "order", "purpose"}
    elif path.endswith("explain"):
        assert set(queries) == {"transcript"}
    elif call == ("/v1/responses/{response_id}", "get"):
        assert set(queries) == {"stream", "starting_after"}
        assert "text/event-stream" in operation["responses"]["200"]["content"]
    else:
        assert not queries


def test_the_body_is_described_with_the_types_and_bounds_that_are_enforced() -> None:
    body = document()["components"]["schemas"]["CreateResponse"]
    assert set(body["required"]) == {"model", "input"}
    assert {"minimum": 0, "maximum": 2}.items() <= body["properties"]["temperature"]["anyOf"][
        0
    ].items()
    assert body["properties"]["stream"]["anyOf"][0] == {"type": "boolean"}
    kinds = json.dumps(body["properties"]["input"])
    assert "InputMessage" in kinds
    assert "FunctionCallOutput" in kinds


def test_the_page_needs_no_other_server_and_names_every_field() -> None:
    page = page_of(document(), "http://127.0.0.1:8000", "demo")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "<script" not in page
    for field in FIELDS:
        assert f"<td><code>{field.path}</code></td><td>{field.treatment}</td>" in page


def test_the_example_has_the_servers_own_address_and_model() -> None:
    async def story() -> None:
        async with served(model="mine & 'yours'", allowed_hosts=["api.example.com"]) as s:
            headers = {"host": "api.example.com:8443", "x-forwarded-proto": "https"}
            page = (await s.client.send("GET", "/docs", b"", headers)).body.decode()
            assert "curl -s https://api.example.com:8443/v1/responses " in page
            body = shlex.quote("""{"model": "mine & 'yours'", "input": "Hello", "stream": true}""")
            assert f"-d {html.escape(body)}</pre>" in page
            there = (await s.client.send("GET", "/docs")).body.decode()
            assert "curl -s http://" in there

    asyncio.run(story())
