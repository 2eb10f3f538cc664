"""Tools that run here, with models that do not speak Harmony: shown as functions, called in the
family's own words, and answered as its template writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.boxed import no_box
from tests.support.mcp_served import LOOPBACK, offer
from tests.support.mcp_site import mcp_site, tool
from tests.support.paper_web import PaperBrowser
from tests.support.replies import check_streamed
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import KEYED, WEATHER
from tests.support.story import story
from tests.support.template_families import checkpoint
from tests.support.template_served import template_served
from tests.support.template_turns import ids_of
from tests.support.template_writes import WRITES, create, every_family, own, rendered, shown_to
from trt_responses.tool import ToolAnswer
from trt_responses.tools.browser import texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.asgi import Json
    from tests.support.served import Served


CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS = ["code_interpreter_call.outputs"]


def items(reply: Json, kind: str) -> list[Json]:
    return [item for item in reply["output"] if item["type"] == kind]


def check_usage(s: Served, used: Json, name: str, written: Sequence[str]) -> None:
    """Each turn's input and output are what its engine request had, each id once."""
    into, out = used["input_tokens_details"], used["output_tokens_details"]
    wrote = [len(ids_of(name, text)) for text in written]
    turns = [len(request.prompt_ids) for request in s.engine.requests]
    assert out["output_tokens_per_turn"] == wrote
    before = [0, *(prompt + size for prompt, size in zip(turns, wrote, strict=True))]
    inputs = [prompt - at for prompt, at in zip(turns, before, strict=False)]
    assert into["input_tokens_per_turn"] == inputs
    assert used["input_tokens"] == sum(inputs)
    assert used["output_tokens"] == sum(wrote)


@pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
@every_family
@story
async def test_code_runs_in_its_box_and_every_prompt_is_the_templates_own(
    name: str, tmp_path: Path
) -> None:
    """Streamed, and in the next response of the chain plainly, where its variables live on."""
    writes, question = WRITES[name], "What is 37 * 91?"
    made = [
        writes.calling("python", code="x = 37 * 91\nx").removesuffix(writes.end),
        writes.answering("It is 3367."),
        writes.calling("python", code="x + 1").removesuffix(writes.end),
        writes.answering("One more is 3368."),
    ]
    settings: Any = {"python": "boxed", "data_dir": tmp_path}
    async with template_served(name, *made, **settings) as s:
        call = await create(s, input=question, tools=[CODE], include=OUTPUTS, stream=True)
        first = check_streamed(call)
        assert [item["type"] for item in first["output"]] == [
            *("reasoning", "code_interpreter_call", "reasoning", "message"),
        ]
        (ran,) = items(first, "code_interpreter_call")
        assert (ran["code"], ran["status"]) == ("x = 37 * 91\nx", "completed")
        assert ran["outputs"] == [{"type": "logs", "logs": "3367\n"}]
        deltas = [e["delta"] for e in call.events if e["type"].endswith("call_code.delta")]
        assert "".join(deltas) == ran["code"]

        tools = shown_to(s, name)
        assert [one["name"] for one in tools] == ["python"]
        assert tools[0]["parameters"]["required"] == ["code"]
        asked = {"role": "user", "content": question}
        wrote = own("I look.", call={"name": "python", "arguments": {"code": "x = 37 * 91\nx"}})
        answered = {"role": "tool", "name": "python", "content": "3367\n"}
        assert s.prompt(0) == rendered(name, [asked], tools)
        assert s.prompt(1) == rendered(name, [asked, wrote, answered], tools)
        assert s.prompt(1)[: len(s.prompt(0))] == s.prompt(0)
        check_usage(s, first["usage"], name, made[:2])

        plain = await create(
            s, input="And one more?", previous_response_id=first["id"], tools=[CODE]
        )
        second = plain.json()
        (ran,) = items(second, "code_interpreter_call")
        assert (ran["code"], ran["outputs"]) == ("x + 1", None)
        assert items(second, "message")[0]["content"][0]["text"] == "One more is 3368."
        so_far = [asked, wrote, answered, own("I know.", "It is 3367.")]
        again = [*so_far, {"role": "user", "content": "And one more?"}]
        assert s.prompt(2) == rendered(name, again, tools)
        more = own("I look.", call={"name": "python", "arguments": {"code": "x + 1"}})
        answered = {"role": "tool", "name": "python", "content": "3368\n"}
        assert s.prompt(3) == rendered(name, [*again, more, answered], tools)


@every_family
@story
async def test_the_browsers_calls_are_functions_of_its_own_name(name: str) -> None:
    writes = WRITES[name]
    made = [
        writes.calling("browser_search", query="cats").removesuffix(writes.end),
        writes.calling("browser_find", pattern="ca").removesuffix(writes.end),
        writes.answering("Cats."),
    ]
    async with template_served(name, *made, tools=[PaperBrowser()]) as s:
        reply = (await create(s, tools=[{"type": "web_search"}])).json()
        searched, sought = items(reply, "web_search_call")
        assert (searched["status"], searched["action"]["query"]) == ("completed", "cats")
        assert (sought["status"], sought["action"]["pattern"]) == ("failed", "ca")
        shown = [one["name"] for one in shown_to(s, name)]
        assert shown == ["browser_search", "browser_open", "browser_find"]
        assert texts.NOT_TO_BE_FOUND_IN in checkpoint(name).tokeniser.text(s.prompt())


@pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
@story
async def test_commands_run_in_their_box(tmp_path: Path) -> None:
    name, writes = "qwen3", WRITES["qwen3"]
    call = writes.call.format("container_exec", '{"cmd": ["sh", "-c", "echo $((6 * 7))"]}')
    made = writes.thought.format("I look.") + call, writes.answering("42.")
    settings: Any = {"shell": "boxed", "data_dir": tmp_path}
    async with template_served(name, *made, **settings) as s:
        shell = {"type": "shell", "environment": {"type": "container_auto"}}
        reply = (await create(s, tools=[shell])).json()
        (ran,) = items(reply, "shell_call")
        assert ran["action"]["commands"] == ["echo $((6 * 7))"]
        (output,) = items(reply, "shell_call_output")
        assert output["output"][0]["stdout"] == "42\n"
        arguments = {"cmd": ["sh", "-c", "echo $((6 * 7))"]}
        told = [
            {"role": "user", "content": "What is 37 * 91?"},
            own("I look.", call={"name": "container_exec", "arguments": arguments}),
            {"role": "tool", "name": "container_exec", "content": "42"},
        ]
        tools = shown_to(s, name)
        assert s.prompt(1) == rendered(name, told, tools)
        await create(s, previous_response_id=reply["id"], input="Sure?", tools=[shell])
        more = [own("I know.", "42."), {"role": "user", "content": "Sure?"}]
        assert s.prompt(2) == rendered(name, [*told, *more], tools)


@every_family
@story
async def test_a_tool_of_an_mcp_server_is_called_by_its_own_schema(name: str) -> None:
    writes = WRITES[name]
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "additionalProperties": False,
    }
    made = [
        writes.calling("demo__find", word="ja <b>").removesuffix(writes.end),
        writes.answering("Found."),
        writes.answering("Again."),
    ]
    async with mcp_site(tool("find", "Finds.") | {"inputSchema": schema}) as server:
        allowed: dict[str, Any] = {"mcp_urls": (server.url,)}
        async with template_served(name, *made, **LOOPBACK | allowed) as s:
            asked = {"role": "user", "content": "What is 37 * 91?"}
            reply = (await create(s, tools=[offer(server)])).json()
            (called,) = items(reply, "mcp_call")
            assert json.loads(called["arguments"]) == {"word": "ja <b>"}
            assert (called["status"], called["output"]) == ("completed", "found")
            tools = shown_to(s, name)
            assert [one["name"] for one in tools] == ["demo__find"]
            assert tools[0]["parameters"] == schema
            wrote = own("I look.", call={"name": "demo__find", "arguments": {"word": "ja <b>"}})
            answered = {"role": "tool", "name": "demo__find", "content": "found"}
            assert s.prompt(1) == rendered(name, [asked, wrote, answered], tools)
            check_usage(s, reply["usage"], name, made[:2])
            await create(
                s, previous_response_id=reply["id"], input="Once more.", tools=[offer(server)]
            )
            behind = [own("I know.", "Found."), {"role": "user", "content": "Once more."}]
            assert s.prompt(2) == rendered(name, [asked, wrote, answered, *behind], tools)


@every_family
@story
async def test_the_models_own_ids_are_kept_where_they_say_the_same(name: str) -> None:
    """With other spaces than the template's, the next turn goes on from what was written."""
    spaced = WRITES[name].calling("python", code="1+1").replace("\n\n", "\n").replace('": "', '":"')
    spaced = spaced.removesuffix(WRITES[name].end).replace("I look.", " I look. \n")
    async with template_served(
        name, spaced, WRITES[name].answering("It is 2."), tools=[ScriptedTool("2")]
    ) as s:
        reply = (await create(s, tools=[CODE])).json()
        assert items(reply, "code_interpreter_call")[0]["code"] == "1+1"
        before = [*s.prompt(0), *ids_of(name, spaced)]
        assert s.prompt(1)[: len(before)] == before
        asked = {"role": "user", "content": "What is 37 * 91?"}
        wrote = own("I look.", call={"name": "python", "arguments": {"code": "1+1"}})
        answered = {"role": "tool", "name": "python", "content": "2"}
        theirs = rendered(name, [asked, wrote, answered], shown_to(s, name))
        assert s.prompt(1) != theirs
        behind = len(s.prompt(1)) - len(before)
        assert s.prompt(1)[-behind:] == theirs[-behind:]


@story
async def test_a_call_that_had_to_be_mended_is_rendered_anew_and_so_is_all_behind_it() -> None:
    name = "qwen3"
    writes, tool = WRITES[name], ScriptedTool("2", "3", "4")
    broken = writes.calling("python", code="1+1").replace("\n</tool_call>", "<tool_call>")
    good = writes.calling("python", code="1+2").removesuffix(writes.end)
    async with template_served(
        name, broken, good, writes.answering("3."), writes.answering("Yes."), tools=[tool]
    ) as s:
        reply = (await create(s, tools=[CODE])).json()
        assert reply["status"] == "completed"
        assert [call.text for call in tool.calls] == ["1+1", "1+2"]
        tools = shown_to(s, name)
        told: list[Json] = [{"role": "user", "content": "What is 37 * 91?"}]
        for code, answer in (("1+1", "2"), ("1+2", "3")):
            call = {"name": "python", "arguments": {"code": code}}
            told += [
                own("I look.", call=call),
                {"role": "tool", "name": "python", "content": answer},
            ]
            assert s.prompt(len(told) // 2) == rendered(name, told, tools)
        used = reply["usage"]
        wrote = used["output_tokens_details"]["output_tokens_per_turn"]
        assert wrote[1:] == [len(ids_of(name, text)) for text in (good, writes.answering("3."))]
        assert sum(wrote) == used["output_tokens"]
        await create(s, previous_response_id=reply["id"], input="Sure?", tools=[CODE])
        assert '"code": "1+2"' in checkpoint(name).tokeniser.text(s.prompt())
        assert "<tool_response>\n3\n</tool_response>" in checkpoint(name).tokeniser.text(s.prompt())


def stateless(reply: Json) -> list[Json]:
    """A response's items, as a client that stores nothing here sends them back."""
    return [{k: v for k, v in item.items() if v is not None} for item in reply["output"]]


@every_family
@story
async def test_a_client_that_carries_its_history_has_the_prompt_of_a_chain(name: str) -> None:
    """What the tool has answered stands in no item of this client's, and in the sealed thought."""
    writes = WRITES[name]
    made = [
        writes.calling("python", code="1+1").removesuffix(writes.end),
        writes.answering("It is 2."),
    ]
    question: Json = {"role": "user", "content": "What is 1+1?"}
    prompts = []
    for store in (True, False):
        async with template_served(name, *made, tools=[ScriptedTool("two!")], **KEYED) as s:
            sealed = {"include": ["reasoning.encrypted_content"]}
            reply = (await create(s, input=[question], tools=[CODE], store=store, **sealed)).json()
            assert items(reply, "code_interpreter_call")[0]["outputs"] is None
            more = {"role": "user", "content": "Sure?"}
            if store:
                fields = {"previous_response_id": reply["id"], "input": [more]}
            else:
                fields = {"input": [question, *stateless(reply), more], "store": False}
            await create(s, tools=[CODE], **fields)
            prompts.append(s.prompt())
    assert prompts[0] == prompts[1]
    assert "two!" in checkpoint(name).tokeniser.text(prompts[0])


@pytest.mark.parametrize("approve", [True, False])
@story
async def test_a_call_is_run_once_it_is_approved(approve: bool) -> None:
    name = "qwen3"
    writes = WRITES[name]
    made = [
        writes.calling("demo__find").removesuffix(writes.end),
        writes.answering("Found."),
        writes.answering("Yes."),
    ]
    async with mcp_site(tool("find")) as server:
        allowed: dict[str, Any] = {"mcp_urls": (server.url,)}
        async with template_served(name, *made, **LOOPBACK | allowed) as s:
            offered = offer(server, require_approval="always")
            first = (await create(s, tools=[offered])).json()
            (asked,) = items(first, "mcp_approval_request")
            answer = {
                "type": "mcp_approval_response",
                "approval_request_id": asked["id"],
                "approve": approve,
            }
            fields = {"previous_response_id": first["id"], "tools": [offered]}
            second = (await create(s, input=[answer], **fields)).json()
            assert len(items(second, "mcp_call")) == approve
            told = "found" if approve else "Not approved."
            tools = shown_to(s, name)
            so_far = [
                {"role": "user", "content": "What is 37 * 91?"},
                own("I look.", call={"name": "demo__find", "arguments": {}}),
                {"role": "tool", "name": "demo__find", "content": told},
            ]
            assert s.prompt(1) == rendered(name, so_far, tools)
            fields["previous_response_id"] = second["id"]
            await create(s, input="Sure?", **fields)
            so_far += [own("I know.", "Found."), {"role": "user", "content": "Sure?"}]
            assert s.prompt(2) == rendered(name, so_far, tools)


@story
async def test_names_match_exactly_and_what_is_not_there_is_told_once() -> None:
    name = "qwen3"
    writes, tool = WRITES[name], ScriptedTool("2")
    lost = [
        writes.calling(one, code="1").removesuffix(writes.end)
        for one in ("functions.python", "Python")
    ]
    async with template_served(name, *lost, tools=[tool]) as s:
        reply = (await create(s, tools=[CODE])).json()
        assert reply["status"] == "completed"
        assert len(s.engine.requests) == 2
        text = checkpoint(name).tokeniser.text(s.prompt())
        assert "There is no tool named" in text
        assert "The tools are: python." in text
        assert not tool.calls


@story
async def test_a_function_of_the_client_that_has_a_tools_name_is_refused() -> None:
    async with template_served("qwen3", "x<|im_end|>", tools=[ScriptedTool("2")]) as s:
        call = await create(s, tools=[WEATHER | {"name": "python"}, CODE])
        assert (call.status, call.error["param"]) == (400, "tools[0].name")
        assert "the tool code_interpreter (tools[1])" in call.error["message"]
        assert not s.engine.requests


@pytest.mark.parametrize("asked", [1, None])
@story
async def test_calls_are_bounded_over_the_response(asked: int | None) -> None:
    name, tool = "qwen3", ScriptedTool("2")
    writes = WRITES[name]
    calling = writes.calling("python", code="1").removesuffix(writes.end)
    bound = asked or 32
    thought = "<think>\nEnough.\n</think>"
    async with template_served(
        name, *[calling] * bound, thought, "It is 2.<|im_end|>", tools=[tool]
    ) as s:
        reply = (await create(s, tools=[CODE], max_tool_calls=asked)).json()
        assert reply["status"] == "completed", reply
        assert len(items(reply, "code_interpreter_call")) == len(tool.calls) == bound
        assert items(reply, "message")[0]["content"][0]["text"] == "It is 2."


@story
async def test_a_flood_is_cut_and_leaves_room_for_an_answer() -> None:
    name = "qwen3"
    writes = WRITES[name]
    made = writes.calling("python", code="1").removesuffix(writes.end), writes.answering("2")
    tool = ScriptedTool(ToolAnswer("flood " * 100_000))
    async with template_served(name, *made, tools=[tool], context_tokens=2000) as s:
        reply = (await create(s, tools=[CODE], include=OUTPUTS)).json()
        assert reply["status"] == "completed"
        (item,) = items(reply, "code_interpreter_call")
        assert "characters are left out here" in item["outputs"][0]["logs"]
        assert len(s.prompt()) < 2000 - 200
