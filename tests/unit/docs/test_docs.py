"""The description of the API: whole, resolvable, and of what is served."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.support.served import SETTINGS
from trt_responses.app import create_app
from trt_responses.engine.scripted.engine import ScriptedEngine
from trt_responses.settings import Settings
from trt_responses.web.docs import _page, openapi
from trt_responses.wire.judge import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    document = json.loads(json.dumps(openapi()))
    found = list(references(document))
    assert found
    for reference in found:
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_every_route_is_described_and_no_other() -> None:
    app = create_app(Settings(**SETTINGS), engine=ScriptedEngine([]))
    served = {
        (re.sub(r":\w+}", "}", route.path), method.lower())  # type: ignore[attr-defined]
        for route in app.routes
        for method in route.methods  # type: ignore[attr-defined]
        if method != "HEAD"
    }
    described = {(path, method) for path, calls in openapi()["paths"].items() for method in calls}
    assert served - described == {("/docs", "get"), ("/openapi.json", "get")}
    assert described <= served


def test_the_body_is_described_with_the_types_and_bounds_that_are_enforced() -> None:
    body = openapi()["components"]["schemas"]["CreateResponse"]
    assert set(body["required"]) == {"model", "input"}
    assert {"minimum": 0, "maximum": 2}.items() <= body["properties"]["temperature"]["anyOf"][
        0
    ].items()
    assert body["properties"]["stream"]["anyOf"][0] == {"type": "boolean"}
    kinds = json.dumps(body["properties"]["input"])
    assert "InputMessage" in kinds
    assert "FunctionCallOutput" in kinds


def test_the_page_needs_no_other_server_and_names_every_field() -> None:
    page = _page()
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "<script" not in page
    for field in FIELDS:
        assert f"<td><code>{field.path}</code></td><td>{field.treatment}</td>" in page
