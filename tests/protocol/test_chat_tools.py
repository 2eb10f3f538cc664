"""Tools that the server runs behind chat completions: the same loop, seen as text at the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support.chat import HELLO, chunks_of, create, finishes
from tests.support.mcp_served import THREE, offer, offered, using
from tests.support.mcp_served import calling as calling_mcp
from tests.support.mcp_site import mcp_site
from tests.support.paper_web import PaperBrowser
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import ANSWER, CALL, served
from tests.support.small_web import answering, calling
from tests.support.story import story
from trt_responses.apis.chat.endpoint import NAMES, shapes_of
from trt_responses.tool import ToolAnswer
from trt_responses.web.body import in_pieces
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from tests.support.asgi import Call, Json
    from trt_responses.tool import Tool

CODE = {"type": "code_interpreter"}
SEARCH = calling("search", '{"query": "q", "topn": 2}')
RUN = (
    "<|channel|>analysis<|message|>I compute.<|end|><|start|>assistant"
    "<|channel|>analysis to=python code<|message|>6 * 7<|call|>"
)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
LINK = "([a.test](https://a.test/one))"


def message_of(call: Call) -> Json:
    """The message of a plain completion, of the SDK's type."""
    ChatCompletion.model_validate(call.json(), strict=True)
    message: Json = call.json()["choices"][0]["message"]
    return message


def accumulated(call: Call) -> Json:
    """The message of a stream as the SDK's accumulator makes it."""
    state = ChatCompletionStreamState()
    for chunk in chunks_of(call.body):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.current_completion_snapshot.choices[0].message.to_dict()


def without_numbers(tools: list[Json]) -> list[Json]:
    return [{key: tool[key] for key in tool if key != "index"} for tool in tools]


@pytest.mark.parametrize(
    "asked",
    [{"tools": [{"type": "browser_search"}]}, {"web_search_options": {}}],
    ids=["as a tool", "as options"],
)
@story
async def test_a_search_ends_in_a_text_with_its_citations(asked: Json) -> None:
    """A stream gives the same, as the SDK accumulates it."""
    written = SEARCH, answering("First【0†L2】.")
    async with served(*written, tools=[PaperBrowser()]) as app:
        plain = await create(app, **asked)
        message = message_of(plain)
        assert plain.json()["choices"][0]["finish_reason"] == "stop"
        assert message["content"] == f"First {LINK}."
        (note,) = message["annotations"]
        at = note["url_citation"]
        assert message["content"][at["start_index"] : at["end_index"]] == LINK
        (tool,) = message["executed_tools"]
        assert json.loads(tool["arguments"])["query"] == "q"
        assert [one["title"] for one in tool["search_results"]["results"]] == ["One", "Two‡"]
        assert tool["output"] in app.prompt_text().replace("<|end|>", "")
    async with served(*written, tools=[PaperBrowser()]) as app:
        stream = await create(app, stream=True, stream_options={"include_usage": True}, **asked)
        assert finishes(chunks_of(stream.body)) == ["stop"]
        assert chunks_of(stream.body)[-1]["usage"] == plain.json()["usage"]
        whole = accumulated(stream)
        for name in ("role", "content", "reasoning"):
            assert whole[name] == message[name]
        for name in ("annotations", "executed_tools"):
            assert without_numbers(whole[name]) == without_numbers(message[name])


@story
async def test_citations_stand_where_they_are_in_the_text_of_all_messages() -> None:
    preamble = "<|channel|>commentary<|message|>Found 🐈【0†L2】. <|end|><|start|>assistant"
    written = SEARCH, preamble + answering("So: 【0†L2】").removeprefix("<|start|>assistant")
    async with served(*written, tools=[PaperBrowser()]) as app:
        message = message_of(await create(app, web_search_options={}))
    places = [note["url_citation"] for note in message["annotations"]]
    shown = [message["content"][at["start_index"] : at["end_index"]] for at in places]
    assert shown == [LINK, LINK]


@story
async def test_code_runs_and_its_failure_is_no_end() -> None:
    failed = ToolAnswer("It took too long.", failed=True)
    async with served(RUN, RUN, ANSWER, tools=[ScriptedTool("42", failed)]) as app:
        call = await create(app, tools=[CODE, WEATHER])
        message = message_of(call)
        ran = [(json.loads(one["arguments"]), one["output"]) for one in message["executed_tools"]]
        assert ran == [({"code": "6 * 7"}, "42"), ({"code": "6 * 7"}, "It took too long.")]
        assert "tool_calls" not in message
        assert call.json()["usage"]["completion_tokens"] > 20  # of all three turns
        async with served(RUN, CALL, tools=[ScriptedTool("42")]) as app:
            call = await create(app, tools=[CODE, WEATHER], stream=True)
            assert finishes(chunks_of(call.body)) == ["tool_calls"]
            whole = accumulated(call)
            assert [one["function"]["name"] for one in whole["tool_calls"]] == ["weather"]
            assert [one["output"] for one in whole["executed_tools"]] == ["42"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@story
async def test_a_loop_that_a_function_broke_off_goes_on_with_what_was_read(*, stream: bool) -> None:
    """A client that sends the message back as it came."""
    open_one, asked = calling("open", '{"id": 0}'), [{"type": "web_search"}, CODE, WEATHER]
    tools: list[Tool] = [PaperBrowser(only_seen=True), ScriptedTool("42")]
    async with served(SEARCH, RUN, CALL, open_one, answering("Yes【0†L2】."), tools=tools) as app:
        call = await create(app, tools=asked, stream=stream)
        message = accumulated(call) if stream else message_of(call)
        message["executed_tools"].append({"type": "of another server"})
        called = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Wet."}
        call = await create(app, tools=asked, messages=[*HELLO, message, called])
        prompt = app.prompt_text(3)
        assert "# Search Results" in prompt
        assert "<|message|>42<|end|>" in prompt
        assert message_of(call)["content"] == f"Yes {LINK}."
        (opened,) = message_of(call)["executed_tools"]
        assert "Title of https://a.test/one" in opened["output"]


@story
async def test_an_mcp_server_is_called_if_no_approval_is_wanted() -> None:
    async with mcp_site(*THREE) as site, using(site, calling_mcp("find"), ANSWER) as app:
        call = await create(app, tools=[offer(site, allowed_tools=["find"])], stream=True)
        assert offered(app) == ["find"]
        (tool,) = accumulated(call)["executed_tools"]
        assert {**tool, "index": 0} == {
            "index": 0,
            "type": "mcp",
            "arguments": "{}",
            "output": "found",
            "name": "find",
            "server_label": "demo",
        }
        for approval in (None, "always", {"never": {"tool_names": ["find"]}}):
            call = await create(app, tools=[offer(site, require_approval=approval)])
            assert (call.status, call.error["param"]) == (400, "tools[0].require_approval")
            assert "Set it to 'never'" in call.error["message"]


@story
async def test_a_request_with_a_key_of_a_server_is_not_kept() -> None:
    async with mcp_site(*THREE) as site, using(site, ANSWER) as app:
        await create(app, tools=[offer(site, authorization="secret")])
        assert site.asked[-1].headers["authorization"] == "Bearer secret"
        shapes = shapes_of(RequestLimits(), NAMES["both"], app.runs.built_in)
        for kept, tools in ((True, [WEATHER]), (False, [offer(site, authorization="secret")])):
            body = orjson.dumps({"model": "demo", "messages": HELLO, "tools": tools})
            one, two = [await in_pieces(shapes.steps(body)) for _ in range(2)]
            assert (one.accepted.echo is two.accepted.echo) == kept
            assert "secret" not in repr(two)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"tools": [WEATHER, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [CODE]}, "tools[0].type"),
        ({"web_search_options": {}}, "web_search_options.type"),
        ({"tools": [{"type": "web_search", "filters": 1}]}, "tools[0].filters"),
        ({"web_search_options": {"search_context_size": "huge"}}, None),
        (
            {
                "tools": [
                    {"type": "mcp", "server_label": "x", "require_approval": "never"},
                ]
            },
            "tools[0].type",
        ),
    ],
)
@story
async def test_what_the_operator_has_not_switched_on_is_refused(
    asked: Json, param: str | None
) -> None:
    async with served() as app:
        call = await create(app, **asked)
        assert call.status == 400, call.body
        assert param is None or call.error["param"] == param
        assert not app.engine.requests


@story
async def test_a_page_that_an_earlier_answer_cited_may_be_opened() -> None:
    opening = calling("open", '{"id": "https://a.test/one"}')
    note: dict[str, Any] = {"start_index": 0, "end_index": 1, "url": "https://a.test/one"}
    cited = {"type": "url_citation", "url_citation": {**note, "title": "One"}}
    for notes in ([cited], None):
        said = {"role": "assistant", "content": "See One.", "annotations": notes}
        async with served(opening, answering("Yes."), tools=[PaperBrowser(only_seen=True)]) as app:
            call = await create(app, messages=[*HELLO, said, *HELLO], web_search_options={})
            (tool,) = message_of(call)["executed_tools"]
            assert ("Error fetching" in tool["output"]) == (notes is None), tool
            assert orjson.loads(tool["arguments"])["type"] == "open_page"
