"""`mcp` over HTTP: what a request may use and is offered, and by which names."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import Response

from tests.support.imports import ROOT
from tests.support.mcp_served import LOOPBACK, THREE, calling, items, offer, offered, refused, using
from tests.support.mcp_site import mcp_site, tool
from tests.support.served import ANSWER, WEATHER, served
from tests.support.small_site import Page, redirect, site_of
from tests.support.story import story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from types import FrameType

    from tests.support.asgi import Json


@story
async def test_no_url_of_a_request_is_allowed_by_default(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text('{"other": {"url": "http://127.0.0.1:9/mcp"}}')
    async with mcp_site() as server, served(mcp_servers=path, **LOOPBACK) as app:
        call = await app.client.create(tools=[WEATHER, offer(server)])
        refused(call, "tools[1].server_url", "TRT_RESPONSES_MCP_URLS")
        brought = {"type": "additional_tools", "role": "developer", "tools": [offer(server)]}
        call = await app.client.create(input=[{"role": "user", "content": "Hi"}, brought])
        refused(call, "input[1].tools[0].server_url")
        assert server.asked == []
        assert not app.engine.requests


@story
async def test_without_any_configuration_a_url_of_a_request_is_refused_and_not_left_out() -> None:
    async with mcp_site() as server, served() as app:
        for tools in ([offer(server)], [WEATHER, offer(server)]):
            call = await app.client.create(tools=tools)
            refused(call, f"tools[{len(tools) - 1}].server_url", "no MCP server of their own")
        assert server.asked == []
        assert not app.engine.requests


@pytest.mark.parametrize("name", ["connector_id", "tunnel_id"])
@story
async def test_connectors_and_tunnels_are_refused_by_name(name: str) -> None:
    async with mcp_site() as server, using(server) as app:
        asks = {"type": "mcp", "server_label": "demo", name: "connector_gmail"}
        for tools in ([asks], [WEATHER, asks]):
            call = await app.client.create(tools=tools)
            refused(call, f"tools[{len(tools) - 1}].{name}", "'server_url'", "'server_label'")
            assert call.error["code"] == "unsupported_parameter"


@story
async def test_a_label_that_the_operator_has_not_configured_is_refused() -> None:
    async with mcp_site() as server, using(server) as app:
        refused(await app.client.create(tools=[offer()]), "tools[0].server_label", "server_url")
        twice = await app.client.create(tools=[offer(server), offer(server)])
        refused(twice, "tools[1]", "'mcp server demo' is offered twice")


@story
async def test_a_server_of_the_operators_file_over_http(tmp_path: Path) -> None:
    async with mcp_site(tool("find"), tool("drop"), tool("keep")) as server:
        entry = {"url": server.url, "headers": {"X-Key": "ours"}, "tools": ["find", "keep"]}
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"mcpServers": {"demo": entry}}))
        async with served(calling("find"), ANSWER, mcp_servers=path, **LOOPBACK) as app:
            call = await app.client.create(
                tools=[offer(headers={"x-key": "theirs", "x-more": "more"})]
            )
            assert offered(app) == ["find", "keep"]
            (made,) = items(call, "mcp_call")
            assert (made["status"], made["output"]) == ("completed", "found")
            for one in server.asked:
                assert (one.headers["x-key"], one.headers["x-more"]) == ("ours", "more")


@pytest.mark.parametrize("networks", [(), ("10.0.0.0/8",)], ids=["none", "another"])
@story
async def test_the_addresses_of_a_server_are_judged(networks: Sequence[str]) -> None:
    async with mcp_site() as server, using(server, private_networks=networks) as app:
        call = await app.client.create(tools=[offer(server)])
        (listed,) = items(call, "mcp_list_tools")
        assert "127.0.0.1 is not a public address" in listed["error"]
        assert call.json()["output"][-1]["type"] == "message"
        assert server.asked == []


@story
async def test_a_redirect_to_another_origin_is_not_followed() -> None:
    async with site_of({"/mcp": Page(b"{}")}) as elsewhere, mcp_site() as server:
        server.page = redirect(elsewhere.url("/mcp?token=t0ken"), 307)
        async with using(server, urls=(server.url, elsewhere.url("/"))) as app:
            call = await app.client.create(tools=[offer(server, authorization="s3cret")])
            (listed,) = items(call, "mcp_list_tools")
            assert listed["error"] == "The server answered with status 307."
            assert b"t0ken" not in call.body
            assert elsewhere.asked == []


ALLOWED: dict[str, tuple[Any, list[str]]] = {
    "all": (None, ["find", "list", "drop"]),
    "names": (["drop", "find", "other"], ["find", "drop"]),
    "no name": ([], []),
    "names of a filter": ({"tool_names": ["list"]}, ["list"]),
    "only reading": ({"read_only": True}, ["find", "list"]),
    "not only reading": ({"read_only": False}, ["drop"]),
    "both": ({"tool_names": ["list", "drop"], "read_only": True}, ["list"]),
    "an empty filter": ({}, ["find", "list", "drop"]),
}


@pytest.mark.parametrize(("allowed", "names"), ALLOWED.values(), ids=ALLOWED)
@story
async def test_tools_are_allowed_in_every_form(allowed: Any, names: list[str]) -> None:
    async with mcp_site(*THREE) as server, using(server) as app:
        call = await app.client.create(tools=[offer(server, allowed_tools=allowed)])
        (listed,) = items(call, "mcp_list_tools")
        assert [one["name"] for one in listed["tools"]] == names
        assert offered(app) == names


@pytest.mark.parametrize("names", [("a.b", "a/b"), ("x" * 64, "x" * 65)], ids=["odd", "long"])
@story
async def test_two_tools_with_one_name_for_the_model_are_named(names: Sequence[str]) -> None:
    async with mcp_site(*map(tool, names)) as server, using(server) as app:
        call = await app.client.create(tools=[offer(server)])
        (listed,) = items(call, "mcp_list_tools")
        assert listed["tools"] == []
        for word in (*(f"'{name}'" for name in names), "'allowed_tools'"):
            assert word in listed["error"]
        assert offered(app) == []
        call = await app.client.create(tools=[offer(server, allowed_tools=[names[1]])])
        assert [one["name"] for one in items(call, "mcp_list_tools")[0]["tools"]] == [names[1]]
        assert len(offered(app)) == 1


@story
async def test_a_tool_that_is_listed_twice_is_one_tool() -> None:
    twice = (tool("find", "First."), tool("find", "Second."))
    async with mcp_site(*twice) as server, using(server) as app:
        call = await app.client.create(tools=[offer(server)])
        (listed,) = items(call, "mcp_list_tools")
        assert [one["description"] for one in listed["tools"]] == ["First."]
        assert offered(app) == ["find"]


@story
async def test_too_many_tools_are_deferred_and_far_too_many_need_to_be_named() -> None:
    many = [tool(f"t{number}") for number in range(6)]
    brought = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "demo"}
    brought["tools"] = [{"name": one["name"], "input_schema": {}} for one in many]  # type: ignore[assignment]
    async with mcp_site(*many) as server, using(server, mcp_tools=5) as app:
        for before in ([], [brought]):  # fetched, and brought by the client
            question = [*before, {"role": "user", "content": "Hi"}]
            call = await app.client.create(tools=[offer(server)], input=question)
            (listed,) = [*items(call, "mcp_list_tools"), brought][:1]
            assert not listed.get("error")
            assert offered(app) == []
            assert "type tool_search =" in app.prompt_text()
        brought["tools"] = [{"name": f"t{n}", "input_schema": {}} for n in range(4097)]  # type: ignore[assignment]
        question = [brought, {"role": "user", "content": "Hi"}]
        call = await app.client.create(tools=[offer(server)], input=question)
        (listed,) = items(call, "mcp_list_tools")
        assert "offers too many tools: 4097, limit 4096" in listed["error"]
        call = await app.client.create(tools=[offer(server, allowed_tools=["t1"])])
        assert offered(app) == ["t1"]


@story
async def test_a_tool_of_2000_is_found_and_called() -> None:
    searched = (
        "<|channel|>commentary to=functions.tool_search <|constrain|>json<|message|>"
        '{"query": "look up a warranty"}<|call|>'
    )
    called = (
        "<|channel|>commentary to=functions.demo__warranty_lookup <|constrain|>json<|message|>"
        "{}<|call|>"
    )
    three = [
        tool("warranty_extend", "Extends the warranty of a product."),
        tool("warranty_lookup", "Looks up until when a product has a warranty."),
        tool("order_lookup", "Looks up where an order is."),
    ]
    many = [*(tool(f"t{number}", f"Does {number}.") for number in range(1997)), *three]
    async with mcp_site(*many) as server, using(server, searched, called, ANSWER) as app:
        call = await app.client.create(tools=[offer(server)])
        Response.model_validate(call.json())
        types = [item["type"] for item in call.json()["output"]]
        searches = ["tool_search_call", "tool_search_output"]
        assert types == ["mcp_list_tools", *searches, "mcp_call", "message"]
        (found,) = items(call, "tool_search_output")
        names = [one["name"] for one in found["tools"][0]["tools"]]
        assert names[0] == "warranty_lookup"
        assert set(names) == {one["name"] for one in three}
        (made,) = items(call, "mcp_call")
        assert (made["server_label"], made["name"]) == ("demo", "warranty_lookup")
        assert made["status"] == "completed"
        assert app.prompt_text(1).startswith(app.prompt_text(0))


@asynccontextmanager
async def counted() -> AsyncIterator[list[int]]:
    """How often the package calls anything meanwhile."""
    inside, found = str(ROOT / "trt_responses"), [0]

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(inside):
            found[0] += 1

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


@story
async def test_what_a_long_list_costs_is_paid_once() -> None:
    few = {"readOnlyHint": True}
    many = [tool(f"t{n}", f"Does {n}.", annotations=few if n < 60 else {}) for n in range(460)]
    calls: dict[str, int] = {}
    async with mcp_site(*many) as server, using(server, mcp_tools=5) as app:
        for length, allowed in (("short", {"read_only": True}), ("long", None)):
            tools = [WEATHER, offer(server, allowed_tools=allowed)]
            first = (await app.client.create(tools=tools)).json()
            assert "type tool_search =" in app.prompt_text()
            for way, more in (("new", {}), ("chained", {"previous_response_id": first["id"]})):
                await app.client.create(tools=tools, **more)
                runs = []
                for _ in range(3):  # the least: the collector or a timer may add calls to one
                    async with counted() as found:
                        call = await app.client.create(tools=tools, **more)
                    listed = [len(one["tools"]) for one in items(call, "mcp_list_tools")]
                    assert listed == ([] if more else [60 if allowed else 460])
                    runs.append(found[0])
                calls[f"{way} {length}"] = min(runs)
    for way in ("new", "chained"):
        assert abs(calls[f"{way} long"] - calls[f"{way} short"]) < 50, calls


@story
async def test_a_list_that_has_changed_is_read_again() -> None:
    async with mcp_site(tool("t1"), tool("t2")) as server, using(server, mcp_list_s=0) as app:
        for names in (["t1", "t2"], ["t1", "t2"], ["t1", "t3"]):
            server.tools = [tool(name) for name in names]
            call = await app.client.create(tools=[offer(server)])
            (listed,) = items(call, "mcp_list_tools")
            assert [one["name"] for one in listed["tools"]] == offered(app) == names


def function(name: str, kind: str = "function") -> Json:
    return {"type": kind, "name": name} | ({"parameters": {}} if kind == "function" else {})


def namespace(name: str, inner: str) -> Json:
    return {"type": "namespace", "name": name, "description": "", "tools": [function(inner)]}


SAME_NAME = {
    "a function": (function("demo__find"), ".name"),
    "a custom tool": (function("demo__find", "custom"), ".name"),
    "a function of a namespace": (namespace("demo", "find"), ".tools[0].name"),
}


@pytest.mark.parametrize("brought", [False, True], ids=["offered", "brought"])
@pytest.mark.parametrize(("own", "place"), SAME_NAME.values(), ids=SAME_NAME)
@story
async def test_a_tool_of_the_clients_with_the_name_of_a_servers_is_refused(
    own: Json, place: str, brought: bool
) -> None:
    where = f"{'input[1].tools[0]' if brought else 'tools[1]'}{place}"
    question: list[Json] = [{"role": "user", "content": "Hi"}]
    if brought:
        question.append({"type": "additional_tools", "role": "developer", "tools": [own]})
    async with mcp_site() as server, using(server) as app:
        tools = [offer(server)] if brought else [offer(server), own]
        call = await app.client.create(tools=tools, input=question)
        ours = f"'demo__find' ({where.removesuffix('.name')})"
        refused(call, where, ours, "'find' of the MCP server 'demo' (tools[0])")
        assert not app.engine.requests


@story
async def test_names_that_are_only_alike_stand_beside_each_other() -> None:
    beside = [function("find"), namespace("demo__find", "x"), function("demo__find_2")]
    async with mcp_site() as server, using(server, calling("find"), ANSWER) as app:
        call = await app.client.create(tools=[offer(server), *beside])
        assert [one["output"] for one in items(call, "mcp_call")] == ["found"]


@story
async def test_tools_of_two_servers_with_one_name_are_refused() -> None:
    async with (
        mcp_site(tool("a__find")) as one,
        mcp_site(tool("find")) as two,
        using(one, urls=(one.url, two.url)) as app,
    ):
        call = await app.client.create(tools=[offer(one), offer(two, server_label="demo__a")])
        names = (
            "'a__find' of the MCP server 'demo' (tools[0])",
            "'find' of the MCP server 'demo__a'",
        )
        refused(call, "tools[1].server_label", *names)
