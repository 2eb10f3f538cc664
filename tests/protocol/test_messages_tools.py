"""Tools that the server runs behind Messages, judged by the types of Anthropic's SDK."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.chat import create as chat
from tests.support.mcp_served import THREE, offer, offered, using
from tests.support.mcp_served import calling as calling_mcp
from tests.support.mcp_site import mcp_site
from tests.support.messages import events_of, folded
from tests.support.paper_web import PaperBrowser
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import ANSWER, CALL, KEYED, script, vocabulary
from tests.support.served import served as served_app
from tests.support.small_web import answering, calling
from tests.support.steering import GUIDES
from tests.support.story import story
from trt_responses.backends.tools import mcp_tool
from trt_responses.settings import Settings
from trt_responses.tool import ToolAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.asgi import Call
    from tests.support.mcp_site import McpSite
    from tests.support.scripted.engine import Script
    from tests.support.served import Served
    from trt_responses.engine import GenerateOptions
    from trt_responses.tool import Tool

Json = dict[str, Any]

served = partial(served_app, **KEYED)

PATH = "/v1/messages"
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
SEARCHES = {"type": "web_search_20250305", "name": "web_search"}
FETCHES = {"type": "web_fetch_20250910", "name": "web_fetch"}
RUNS = {"type": "code_execution_20250825", "name": "code_execution"}
SHOWN = {"thinking": {"type": "adaptive"}}
SEARCH = calling("search", '{"query": "q", "topn": 2}')
FIND = calling("find", '{"pattern": "line 7"}')
BAD = calling("open", '{"id": 99}')
OPEN = calling("open", '{"id": 0}')
RUN = "<|channel|>analysis to=python code<|message|>6 * 7<|call|>"
ALL = [SEARCHES, FETCHES, RUNS, WEATHER]


async def create(s: Served, path: Any = PATH, **fields: Any) -> Call:
    body = {"model": "demo", "max_tokens": 1000, "messages": HELLO} | fields
    call: Call = await s.client.send("POST", path, orjson.dumps(body))
    return call


def message_of(call: Call) -> Json:
    """The message, plain or as the SDK's accumulator makes it, of the SDK's type."""
    from anthropic.types.beta import BetaMessage

    assert call.status == 200, call.body
    if call.body.startswith(b"event:"):
        return folded(events_of(call.body))
    return BetaMessage.model_validate(call.json()).to_dict()


def kinds(message: Json) -> list[str]:
    return [block["type"] for block in message["content"]]


def alike(message: Json) -> list[Json]:
    """Blocks without what two runs need not share."""
    left_out = ("id", "tool_use_id", "signature")
    blocks = [{k: v for k, v in b.items() if k not in left_out} for b in message["content"]]
    return [{k: v for k, v in block.items() if v not in (None, [])} for block in blocks]


@story
async def test_searches_pages_and_code_are_blocks_of_a_call_and_its_result() -> None:
    found = []
    for stream in (False, True):
        tools: list[Tool] = [PaperBrowser(), ScriptedTool("42")]
        written = SEARCH, OPEN, FIND, RUN, answering("Here【1†L2】.")
        async with served(*written, tools=tools) as s:
            message = message_of(await create(s, tools=ALL, stream=stream, **SHOWN))
            found.append(message)
    plain, streamed = found
    assert alike(plain) == alike(streamed)
    for message in found:
        calls = [block for block in message["content"] if block["type"] != "thinking"]
        search, results, opening, page, finding, _, code, ran, text = calls
        assert (search["name"], search["input"]) == ("web_search", {"query": "q"})
        assert results["tool_use_id"] == search["id"]
        assert [(one["url"], one["title"]) for one in results["content"]] == [
            ("https://a.test/one", "One"),
            ("https://sub.b.test/two", "Two‡"),
        ]
        assert (opening["name"], opening["input"]) == ("web_fetch", {"url": "https://a.test/one"})
        assert "line 7 of https://a.test/one" in page["content"]["content"]["source"]["data"]
        assert finding["input"] == {"url": "https://a.test/one", "pattern": "line 7"}
        assert (code["name"], code["input"]) == ("code_execution", {"code": "6 * 7"})
        assert (ran["content"]["stdout"], ran["content"]["return_code"]) == ("42", 0)
        assert [one["url"] for one in text["citations"]] == ["https://a.test/one"]
        assert message["stop_reason"] == "end_turn"
        used = message["usage"]["server_tool_use"]
        assert used == {"web_search_requests": 1, "web_fetch_requests": 2}
        assert message["container"]["id"] == "cntr_scripted"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("shown", [SHOWN, {}], ids=["thoughts", "no thoughts"])
@story
async def test_a_loop_that_a_function_broke_off_goes_on_with_what_was_read(
    shown: Json, *, stream: bool
) -> None:
    tools: list[Tool] = [PaperBrowser(), ScriptedTool("42")]
    written = SEARCH, BAD, RUN, CALL, OPEN, answering("Sunny【0†L2】.")
    async with served(*written, tools=tools) as s:
        first = message_of(await create(s, tools=ALL, stream=stream, **shown))
        assert (first["stop_reason"], kinds(first)[-1]) == ("tool_use", "tool_use")
        called = {"tool_use_id": first["content"][-1]["id"], "content": "Sunny."}
        turn = [
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [{"type": "tool_result", **called}]},
        ]
        then = message_of(await create(s, messages=[*HELLO, *turn], tools=ALL, **shown))
        prompt = s.prompt_text(4)
        assert "# Search Results" in prompt
        assert "<|message|>42<|end|>" in prompt
        if shown and not stream:  # its ids are sealed with the thought
            assert s.prompt(4)[: len(s.prompt(3))] == s.prompt(3)
        page = next(b for b in then["content"] if b["type"] == "web_fetch_tool_result")
        assert page["content"]["url"] == "https://a.test/one"
        assert [one["url"] for one in then["content"][-1]["citations"]] == ["https://a.test/one"]
        counted = await create(
            s, f"{PATH}/count_tokens", max_tokens=None, messages=[*HELLO, *turn], tools=ALL
        )
        assert counted.json()["input_tokens"] > 100


@story
async def test_what_failed_says_so() -> None:
    tool = ScriptedTool(ToolAnswer("It took too long.", failed=True), f"{TRACEBACK}\nNo")
    async with served(RUN, RUN, BAD, ANSWER, tools=[PaperBrowser(), tool]) as s:
        message = message_of(await create(s, tools=ALL))
        first, second, page = (b["content"] for b in message["content"] if "tool_use_id" in b)
        assert first["error_code"] == page["error_code"] == "unavailable"
        assert second["return_code"] == 1
        turn = {"role": "assistant", "content": message["content"]}
        again = await create(s, tools=ALL, messages=[*HELLO, turn, *HELLO])
        assert again.status == 200, again.body


TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "code_execution"}])
@story
async def test_a_chosen_tool_is_forced(choice: Json) -> None:
    """With one tool alone, to choose any is to choose it."""
    headers: list[str] = []

    def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        text = vocabulary().text(list(prompt_ids))
        if options.guide is not None:
            headers.append(options.guide.source)
            called = "to=assistant" in text
            return script(f"{'final' if called else 'analysis to=python code'}<|endoftext|>")
        if text.endswith("final<|message|>"):
            return script("Yes.<|return|>")
        return script("6 * 7<|call|>" if text.endswith("code<|message|>") else "Hm.<|end|>")

    async with served(turns, tools=[ScriptedTool("42")], guides=GUIDES) as s:
        message = message_of(await create(s, tools=[RUNS], tool_choice=choice))
        assert [kind for kind in kinds(message) if kind != "thinking"] == [
            "server_tool_use",
            "code_execution_tool_result",
            "text",
        ]
        assert len(headers) == 1  # behind the answer: the first header leaves no choice
        unknown = {"type": "tool", "name": "web_search"}
        assert (await create(s, tools=[RUNS], tool_choice=unknown)).status == 400


@story
async def test_options_reach_the_tools() -> None:
    tool, browser = ScriptedTool("1", known=("cntr_mine",)), PaperBrowser()
    async with served(SEARCH, RUN, ANSWER, tools=[browser, tool]) as s:
        place = {"type": "approximate", "country": "CH"}
        search = SEARCHES | {"allowed_domains": ["a.test"], "user_location": place, "max_uses": 2}
        message = message_of(await create(s, tools=[search, RUNS], container="cntr_mine"))
        assert message["container"]["id"] == "cntr_mine"
        (query,) = browser.service.asked
        assert (query.domains, query.country) == (("a.test",), "CH")
    async with served(SEARCH, SEARCH, ANSWER, tools=[PaperBrowser()]) as s:
        message = message_of(await create(s, tools=[SEARCHES | {"max_uses": 1}]))
        assert kinds(message).count("web_search_tool_result") == 1


def server(site: McpSite, **changes: Any) -> Json:
    return {"type": "url", "name": "demo", "url": site.url, **changes}


def toolset(**changes: Any) -> Json:
    return {"type": "mcp_toolset", "mcp_server_name": "demo", **changes}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@story
async def test_the_tools_of_an_mcp_server_are_called(*, stream: bool) -> None:
    called = calling_mcp("find", '{"q": 1}')
    async with mcp_site(*THREE) as site, using(site, called, called, CALL, ANSWER) as s:
        asked = {"mcp_servers": [server(site, authorization_token="key")]}
        tools = [toolset(), WEATHER]
        site.results["find"] = {"content": [{"type": "text", "text": "a cat"}]}
        message = message_of(await create(s, tools=tools, stream=stream, **asked))
        assert site.asked[-1].headers["authorization"] == "Bearer key"
        use, result, *_ = (b for b in message["content"] if b["type"].startswith("mcp_"))
        assert (use["name"], use["server_name"], use["input"]) == ("find", "demo", {"q": 1})
        assert (result["tool_use_id"], result["is_error"]) == (use["id"], False)
        assert result["content"][0]["text"] == "a cat"
        called_id = message["content"][-1]["id"]
        answer = {"type": "tool_result", "tool_use_id": called_id, "content": "Sunny."}
        turn = [
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [answer]},
        ]
        last = await create(s, messages=[*HELLO, *turn], tools=tools, **asked)
        assert message_of(last)["stop_reason"] == "end_turn"
        assert s.prompt_text().count("<|message|>a cat<|end|>") == 2
        assert "key" not in s.prompt_text()


@pytest.mark.parametrize(
    ("of_server", "tools", "shown"),
    [
        ({}, [toolset()], ["find", "list", "drop"]),
        ({}, [toolset(configs={"drop": {"enabled": False}})], ["find", "list"]),
        (
            {},
            [toolset(default_config={"enabled": False}, configs={"list": {"enabled": True}})],
            ["list"],
        ),
        ({"tool_configuration": {"allowed_tools": ["find"]}}, [WEATHER], ["find"]),
        ({"tool_configuration": {"enabled": False}}, [WEATHER], []),
    ],
)
@story
async def test_a_toolset_says_which_tools_are_offered(
    of_server: Json, tools: list[Json], shown: list[str]
) -> None:
    async with mcp_site(*THREE) as site, using(site, ANSWER) as s:
        call = await create(s, mcp_servers=[server(site, **of_server)], tools=tools)
        assert call.status == 200, call.body
        assert offered(s) == shown


def written(*blocks: Json) -> Json:
    return {"messages": [*HELLO, {"role": "assistant", "content": list(blocks)}, *HELLO]}


USED: Json = {"type": "mcp_tool_use", "id": "x", "name": "f", "server_name": "demo", "input": {}}
RESULT = {"type": "mcp_tool_result", "tool_use_id": "x"}
FIRST = "messages[1].content[0]"


@story
async def test_a_server_that_lists_no_tools_is_named() -> None:
    """Neither API could say it in a response."""
    async with mcp_site(*THREE) as site, using(site) as s:
        site.errors["tools/list"] = {"code": -32000, "message": "out of order"}
        call = await create(s, tools=[toolset(), WEATHER], mcp_servers=[server(site)])
        assert call.status == 400
        assert "mcp_servers[0]" in call.error["message"]
        assert "out of order" in call.error["message"]
        tools = [offer(site)]
        call = await chat(s, tools=tools)
        assert (call.status, call.error["param"]) == (400, "tools[0]")
        assert not s.engine.requests


REFUSED: list[tuple[Json, str]] = [
    (written({"type": "server_tool_use", "id": "x", "name": "bash", "input": {}}), FIRST),
    (written(USED | {"input": []}), f"{FIRST}.input"),
    (written(RESULT | {"content": [{}] * 1001}), f"{FIRST}.content"),
    (written({"type": "text", "text": "x", "citations": [{}] * 1001}), f"{FIRST}.citations"),
    ({"tools": [SEARCHES | {"blocked_domains": ["a.test"]}]}, "tools[0].blocked_domains"),
    (
        {
            "tools": [
                SEARCHES | {"allowed_domains": ["a.test"]},
                FETCHES | {"allowed_domains": ["b.test"]},
            ]
        },
        "tools[1].allowed_domains",
    ),
    ({"tools": [SEARCHES | {"allowed_domains": ["/"]}]}, "tools[0].filters.allowed_domains[0]"),
    ({"tools": [SEARCHES | {"max_uses": 0}]}, "tools[0].max_uses"),
    ({"tools": [FETCHES]}, "tools[0].type"),
    ({"tools": [SEARCHES], "container": "c"}, "container"),
    ({"tools": [RUNS], "container": {"skills": [{}]}}, "container.skills"),
    ({"tools": [toolset(), toolset()]}, "tools[1].mcp_server_name"),
    ({"tools": [toolset(tools=[])]}, "tools[0].tools"),
    ({"tools": [toolset(mcp_server_name="a b")]}, "tools[0].mcp_server_name"),
    (
        {"mcp_servers": [{"type": "url", "name": "x", "url": "http://a.test/"}]},
        "mcp_servers[0].url",
    ),
    ({"mcp_servers": [{"type": "url", "name": "x", "url": "u"}] * 2}, "mcp_servers[1].name"),
]


@pytest.mark.parametrize(("fields", "place"), REFUSED, ids=lambda value: str(value)[:60])
@story
async def test_what_cannot_be_honoured_is_refused_by_its_place(fields: Json, place: str) -> None:
    async with mcp_site(*THREE) as site:
        mcp = mcp_tool(Settings(mcp_urls=(site.url,)))
        tools: list[Tool] = [PaperBrowser(), ScriptedTool("42"), mcp]
        async with served(tools=tools) as s:
            call = await create(s, **fields)
            assert call.status == 400, call.body
            assert place in call.error["message"]
            assert not s.engine.requests


RESULTS: list[object] = [None, "text", [], [{"url": 1}], [{"type": "text", "text": 1}], {}]
RESULTS += [{"content": {"source": {"data": 1}}}, {"error_code": 1}, {"stdout": None}]


@story
async def test_any_result_in_a_history_is_read() -> None:
    """Of these, or of another server: what says nothing here is left out."""
    ours: Json = USED | {"type": "server_tool_use"}
    uses: list[Json] = [USED, *(ours | {"name": name} for name in ("web_search", "web_fetch"))]
    uses.append(ours | {"name": "code_execution", "input": {"code": 1}})
    uses.append(ours | {"name": "web_fetch", "input": {"url": 1, "pattern": 2}})
    async with served(tools=[PaperBrowser(only_seen=True), ScriptedTool("42")]) as s:
        for use in uses:
            kind = use["type"].removesuffix("_use").replace("server_tool", use["name"] + "_tool")
            for content in RESULTS:
                result = {"type": f"{kind}_result", "tool_use_id": "x", "content": content}
                call = await create(s, tools=[SEARCHES, RUNS], **written(use, result))
                assert call.status == 200, (use, content, call.body)


@story
async def test_what_the_operator_has_not_switched_on_is_dropped_and_named() -> None:
    async with served() as s:
        call = await create(s, tools=[*ALL, toolset()])
        dropped = {one["type"] for one in (SEARCHES, FETCHES, RUNS, toolset())}
        assert set(call.headers["x-trt-dropped-tools"].split(", ")) == dropped
        alone = await create(s, tools=[toolset()])
        assert (alone.status, "Unsupported tool type" in alone.error["message"]) == (400, True)
