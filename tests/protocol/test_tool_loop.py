"""Tools that the server runs inside a response, over HTTP: items, events, bounds and ends."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON
from tests.support.background import cancelled, started
from tests.support.replies import check_streamed, without_ids
from tests.support.scripted_tool import Gate, ScriptedTool
from tests.support.served import served
from tests.support.story import story
from tests.support.virtual_time import run
from trt_responses.tool import ToolAnswer, ToolCall

if TYPE_CHECKING:
    from tests.support.asgi import Json

CODE = (
    "<|channel|>analysis<|message|>I will add.<|end|><|start|>assistant"
    "<|channel|>analysis to=python code<|message|>1+1<|call|>"
)
ANSWER = "<|channel|>final<|message|>It is 2.<|return|>"
TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
ASKED: Json = {
    "input": "What is 1+1?",
    "tools": [TOOL],
    "include": ["code_interpreter_call.outputs"],
}

ORDER = [
    "output_item.added",
    "code_interpreter_call.in_progress",
    "code_interpreter_call_code.delta",
    "code_interpreter_call_code.done",
    "code_interpreter_call.interpreting",
    "code_interpreter_call.completed",
    "output_item.done",
]
"""The hosted API's order of a call's events, as recorded; adjacent deltas are one."""


def kinds_of(events: list[Json], index: int) -> list[str]:
    """The events of one item, adjacent ones of a kind as one."""
    kinds = [
        event["type"].removeprefix("response.")
        for event in events
        if event.get("output_index") == index
    ]
    return [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]


def items(response: Json, kind: str) -> list[Json]:
    return [item for item in response["output"] if item["type"] == kind]


@story
async def test_a_call_runs_inside_its_response_and_ends_with_what_it_gave() -> None:
    tool = ScriptedTool("2\n")
    async with served(CODE, ANSWER, tools=[tool]) as app:
        assert tool.running
        call = await app.client.create(**ASKED | {"stream": True})
        last = check_streamed(call)
        assert [item["type"] for item in last["output"]] == [
            "reasoning",
            "code_interpreter_call",
            "message",
        ]
        assert kinds_of(call.events, 1) == ORDER
        added = next(e for e in call.events if e["type"].endswith("added") and e["output_index"])
        assert (added["item"]["code"], added["item"]["outputs"]) == ("", [])
        (item,) = items(last, "code_interpreter_call")
        assert item["code"] == "1+1"
        assert item["status"] == "completed"
        assert item["container_id"] == "cntr_scripted"
        assert item["outputs"] == [{"type": "logs", "logs": "2\n"}]
        assert [call.text for call in tool.calls] == ["1+1"]
        assert app.prompt_text().endswith(
            "<|start|>assistant<|channel|>analysis to=python code<|message|>1+1<|call|>"
            "<|start|>python to=assistant<|channel|>analysis<|message|>2\n<|end|>"
            "<|start|>assistant"
        )
    assert tool.closed == 1
    assert not tool.running


@story
async def test_streamed_equals_plain() -> None:
    replies = []
    for stream in (True, False):
        async with served(CODE, ANSWER, tools=[ScriptedTool("2")]) as app:
            call = await app.client.create(**ASKED | {"stream": stream})
            replies.append(check_streamed(call) if stream else call.json())
    streamed, plain = map(without_ids, replies)
    assert streamed == plain | {"usage": streamed["usage"]}
    assert _without_latency(streamed["usage"]) == _without_latency(plain["usage"])


def _without_latency(usage: Json) -> Json:
    details = {k: v for k, v in usage["output_tokens_details"].items() if "latency" not in k}
    return usage | {"output_tokens_details": details}


@story
async def test_outputs_are_null_for_a_client_that_did_not_include_them() -> None:
    async with served(CODE, ANSWER, tools=[ScriptedTool("2")]) as app:
        call = await app.client.create(**{"input": "Hi", "tools": [TOOL]})
        (item,) = items(call.json(), "code_interpreter_call")
        assert item["outputs"] is None


@pytest.mark.parametrize("name", ["include[]", "include"])
@story
async def test_outputs_are_told_to_who_includes_them_when_a_response_is_fetched(name: str) -> None:
    again = CODE.partition("<|start|>assistant")[2].replace("1+1", "2+2")
    asks = f"{name}=code_interpreter_call.outputs"
    async with served(CODE, again, ANSWER, tools=[ScriptedTool("2\n", "")]) as app:
        made = (await app.client.create(**{"input": "Hi", "tools": [TOOL]})).json()
        path = f"/v1/responses/{made['id']}"
        plain = await app.client.send("GET", path)
        included = await app.client.send("GET", f"{path}?{asks}")
        other = await app.client.send("GET", f"{path}?{asks}&{name}=x")
    assert [item["outputs"] for item in items(plain.json(), "code_interpreter_call")] == [None] * 2
    told = [item["outputs"] for item in items(included.json(), "code_interpreter_call")]
    assert told == [[{"type": "logs", "logs": "2\n"}], []]
    assert without_ids(other.json()) == without_ids(included.json())
    assert "x-trt-ignored" not in included.headers
    assert other.headers["x-trt-ignored"] == name


@story
async def test_without_the_operator_nothing_runs() -> None:
    async with served(ANSWER) as app:
        call = await app.client.create(**ASKED)
        assert call.status == 400
        assert call.error["param"] == "tools[0].type"
        function = {"type": "function", "name": "f"}
        call = await app.client.create(**ASKED | {"tools": [TOOL, function]})
        assert call.headers["x-trt-dropped-tools"] == "code_interpreter"
        assert "python" not in app.prompt_text()


@story
async def test_without_the_request_nothing_runs() -> None:
    tool = ScriptedTool("2")
    async with served(CODE, ANSWER, tools=[tool]) as app:
        call = await app.client.create(**{"input": "Hi"})
        assert call.json()["status"] == "completed"
        assert not items(call.json(), "code_interpreter_call")
    assert not tool.calls
    assert not tool.opened


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (RuntimeError("secret"), "The tool failed (RuntimeError)."),
        (ToolAnswer("The code ran too long.", failed=True), "The code ran too long."),
    ],
)
@story
async def test_what_fails_is_told_to_the_model(act: Any, told: str) -> None:
    async with served(CODE, ANSWER, tools=[ScriptedTool(act)]) as app:
        call = await app.client.create(**ASKED | {"stream": True})
        last = check_streamed(call)
        (item,) = items(last, "code_interpreter_call")
        assert item["status"] == "failed"
        assert item["outputs"] == [{"type": "logs", "logs": told}]
        assert f"<|message|>{told}<|end|>" in app.prompt_text()
        assert kinds_of(call.events, 1) == [k for k in ORDER if "completed" not in k]
        assert last["status"] == "completed"


@story
async def test_a_tool_that_hangs_is_ended_and_the_model_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # patched: a tool that hangs would be waited for
    monkeypatch.setattr("trt_responses.features.hosted_tools.loop.GRACE_S", 0.0)
    tool = ScriptedTool(Gate(), deadline_s=0.01)
    async with served(CODE, ANSWER, tools=[tool]) as app:
        call = await app.client.create(**ASKED)
        (item,) = items(call.json(), "code_interpreter_call")
        assert item["status"] == "failed"
    assert tool.broken_off == 1


def test_a_wait_for_other_calls_takes_nothing_of_the_deadline() -> None:
    class Waiting(ScriptedTool):
        async def act(self, call: ToolCall) -> ToolAnswer:
            with call.waits():
                asyncio.get_running_loop().call_later(3600, (others := asyncio.Event()).set)
                await others.wait()
            return await super().act(call)

    async def story() -> None:
        async with served(CODE, CODE, ANSWER, tools=[Waiting("2", Gate())]) as app:
            calls = items((await app.client.create(**ASKED)).json(), "code_interpreter_call")
            assert [item["status"] for item in calls] == ["completed", "failed"]

    run(story())


@story
async def test_an_unknown_name_is_told_to_the_model_once() -> None:
    lost = "<|channel|>analysis to=browser.search code<|message|>{}<|call|>"
    tool = ScriptedTool("2")
    async with served(lost, lost, tools=[tool]) as app:
        call = await app.client.create(**ASKED)
        assert call.json()["status"] == "completed"
        assert len(app.engine.requests) == 2
        assert "There is no tool named 'browser.search'. The tools are: python." in (
            app.prompt_text()
        )
    assert not tool.calls


THOUGHT = "<|channel|>analysis<|message|>I will add.<|return|>"
SEARCH = "<|channel|>commentary to=browser.search code<|message|>{}<|call|>"
FUNCTION: Json = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("tools", "told"),
    [([], "There are no tools: answer the user."), ([FUNCTION], "The tools are: functions.f.")],
)
@story
async def test_without_tools_of_the_server_too_a_call_of_an_unknown_name_is_no_end(
    tools: list[Json], told: str, stream: bool
) -> None:
    async with served(SEARCH, ANSWER, "<|channel|>final<|message|>Bye.<|return|>") as app:
        call = await app.client.create(input="Hi", tools=tools, stream=stream)
        last = check_streamed(call) if stream else call.json()
        assert [item["type"] for item in last["output"]] == ["reasoning", "message"]
        assert items(last, "message")[0]["content"][0]["text"] == "It is 2."
        assert app.prompt_text().endswith(
            "<|call|><|start|>browser.search to=assistant<|channel|>commentary<|message|>There is "
            f"no tool named 'browser.search'. {told}<|end|><|start|>assistant"
        )
        assert "unknown_recipient" in (await app.client.send("GET", "/metrics")).body.decode()
        usage = last["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        await app.client.create(input="And?", tools=tools, previous_response_id=last["id"])
        assert "browser.search" not in app.prompt_text()


@story
async def test_a_turn_that_ends_after_its_thought_is_gone_on_with_once() -> None:
    async with served(THOUGHT, ANSWER, THOUGHT, THOUGHT) as app:
        last = check_streamed(await app.client.create(input="Hi", stream=True))
        assert [item["type"] for item in last["output"]] == ["reasoning", "message"]
        assert app.prompt_text() == (
            app.prompt_text(0)
            + "<|channel|>analysis<|message|>I will add.<|end|><|start|>assistant"
        )
        assert 'kind="no_answer"' in (await app.client.send("GET", "/metrics")).body.decode()
        last = (await app.client.create(input="Hi")).json()
        assert (last["status"], len(app.engine.requests)) == ("completed", 4)
        assert [item["type"] for item in last["output"]] == ["reasoning", "reasoning"]


@story
async def test_a_turn_of_use_to_its_client_is_not_gone_on_with() -> None:
    call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    final = "<|channel|>final<|message|>It is 2.<|end|><|start|>assistant" + THOUGHT
    async with served(call, final, ANSWER.replace("final", "commentary")) as app:
        for _ in range(3):
            last = (await app.client.create(input="Hi", tools=[FUNCTION])).json()
            assert last["status"] == "completed"
        assert len(app.engine.requests) == 3


@story
async def test_names_match_exactly_and_under_functions_too() -> None:
    text = CODE.replace("to=python", "to=functions.python")
    tool = ScriptedTool("2")
    async with served(text, ANSWER, tools=[tool]) as app:
        call = await app.client.create(**ASKED)
        assert items(call.json(), "code_interpreter_call")
        assert "<|start|>functions.python to=assistant<|channel|>analysis" in app.prompt_text()
    tool = ScriptedTool("2")
    async with served(CODE.replace("to=python", "to=python_repl"), ANSWER, tools=[tool]) as app:
        assert not items((await app.client.create(**ASKED)).json(), "code_interpreter_call")
    tool = ScriptedTool("2")
    function = {"type": "function", "name": "python"}
    async with served(text, ANSWER, tools=[tool]) as app:
        call = await app.client.create(**ASKED | {"tools": [TOOL, function]})
        assert items(call.json(), "function_call")
    assert not tool.calls


@pytest.mark.parametrize(("asked", "bound"), [(1, 1), (2, 2), (33, 33), (129, 128), (None, 32)])
@story
async def test_calls_are_bounded_over_the_response(asked: int | None, bound: int) -> None:
    tool = ScriptedTool("2")
    end = ("<|channel|>analysis<|message|>Enough.<|end|>", "It is 2.<|return|>")
    async with served(*[CODE] * bound, *end, tools=[tool]) as app:
        call = await app.client.create(**ASKED | {"max_tool_calls": asked})
        last = call.json()
        assert last["status"] == "completed"
        assert len(items(last, "code_interpreter_call")) == bound
        assert items(last, "message")[0]["content"][0]["text"] == "It is 2."
    assert len(tool.calls) == bound


@story
async def test_output_tokens_are_bounded_over_all_turns() -> None:
    async with served(CODE, ANSWER, tools=[ScriptedTool("2 " * 200)]) as app:
        whole = (await app.client.create(**ASKED)).json()["usage"]
        most = whole["output_tokens"] - 3
    async with served(CODE, ANSWER, tools=[ScriptedTool("2 " * 200)]) as app:
        last = (await app.client.create(**ASKED | {"max_output_tokens": most})).json()
        assert last["status"] == "incomplete"
        assert last["usage"]["output_tokens"] == most
        assert items(last, "code_interpreter_call")[0]["status"] == "completed"


@story
async def test_a_flood_is_cut_and_the_prompt_stays_within_the_context() -> None:
    tool = ScriptedTool("flood " * 1_000_000)
    async with served(CODE, ANSWER, tools=[tool], context_tokens=2000) as app:
        last = (await app.client.create(**ASKED)).json()
        assert last["status"] == "completed"
        (item,) = items(last, "code_interpreter_call")
        assert "characters are left out here" in item["outputs"][0]["logs"]
        assert len(app.prompt()) < 2000 - 200


@pytest.mark.slow  # 100 MB
@story
async def test_an_answer_of_50_mb_takes_little_memory() -> None:
    answer = ToolAnswer("0123456789abcde\n" * (50 * 2**20 // 16))
    tool = ScriptedTool(answer)
    async with served(ANSWER, CODE, ANSWER, tools=[tool], context_tokens=4096) as app:
        await app.client.create(input="Warm up", tools=[])
        tracemalloc.start()
        try:
            reply = (await app.client.create(**ASKED)).json()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    (call,) = items(reply, "code_interpreter_call")
    assert "characters are left out here: print less" in call["outputs"][0]["logs"]
    assert most < 64 * 2**20
    assert len(app.prompt()) < 4096


@story
async def test_usage_counts_each_id_once_and_tells_each_turn() -> None:
    async with served(CODE, ANSWER, tools=[ScriptedTool("2")]) as app:
        usage = (await app.client.create(**ASKED)).json()["usage"]
        into, out = usage["input_tokens_details"], usage["output_tokens_details"]
        assert sum(into["input_tokens_per_turn"]) == usage["input_tokens"]
        assert sum(out["output_tokens_per_turn"]) == usage["output_tokens"]
        assert sum(into["cached_tokens_per_turn"]) == into["cached_tokens"]
        assert out["tool_output_tokens"] == sum(out["tool_output_tokens_per_turn"])
        assert into["input_tokens_per_turn"][0] == len(app.prompt(0))
        opened = 2  # the second prompt ends with `<|start|>assistant`, which the turn wrote
        assert (
            usage["total_tokens"] == len(app.prompt(1)) + out["output_tokens_per_turn"][1] - opened
        )
        assert len(out["tool_latency_ms_per_turn"]) == 2
    async with served(ANSWER, tools=[ScriptedTool("2")]) as app:
        usage = (await app.client.create(**ASKED)).json()["usage"]
        assert usage["output_tokens_details"].keys() == {"reasoning_tokens"}


@story
async def test_usage_of_one_that_is_cancelled_in_a_later_call_has_its_turns_alone() -> None:
    gate = Gate()
    async with served(CODE, tools=[ScriptedTool("2", gate)]) as app:
        job = await started(app, **ASKED)
        await gate.reached.wait()
        into = (await cancelled(app, job["id"])).json()["usage"]["input_tokens_details"]
        assert len(into["input_tokens_per_turn"]) == len(into["cached_tokens_per_turn"]) == 2


@story
async def test_a_turn_behind_a_tool_is_the_same_request_to_the_engine() -> None:
    """Of the same owner, whose cached tokens nobody shares, in the same trace."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    headers = JSON | trace | {"authorization": "Bearer key-a"}
    async with served(CODE, ANSWER, tools=[ScriptedTool("2")], api_keys="ann:key-a") as app:
        body = orjson.dumps({"model": "demo", **ASKED})
        reply = (await app.client.send("POST", "/v1/responses", body, headers)).json()
        first, second = [request.options for request in app.engine.requests]
    assert first.cache_salt is not None
    assert first.trace_headers == trace
    for name in ("cache_salt", "trace_headers", "request_id", "arrival_ns"):
        assert getattr(second, name) == getattr(first, name)
    assert first.request_id == reply["id"]


@pytest.mark.parametrize("stream", [True, False])
@story
async def test_a_hang_up_ends_the_tool(stream: bool) -> None:
    gate = Gate()
    tool = ScriptedTool(gate)
    async with served(CODE, ANSWER, tools=[tool]) as app:
        call = app.client.ask(**ASKED | {"stream": stream})
        await gate.reached.wait()
        call.hang_up()
        await asyncio.gather(call.done(), return_exceptions=True)
        assert tool.broken_off == 1
        assert tool.closed == 1
        assert len(app.engine.requests) == 1
        assert len(app.runs) == 0


@story
async def test_others_miss_no_step_while_a_tool_runs() -> None:
    gate = Gate("2")
    async with served(CODE, ANSWER, tools=[ScriptedTool(gate)]) as app:
        waiting = asyncio.ensure_future(app.client.create(**ASKED | {"stream": True}))
        await gate.reached.wait()
        other = await app.client.create(**{"input": "Hi"})
        assert other.json()["status"] == "completed"
        gate.opened.set()
        assert check_streamed(await waiting)["status"] == "completed"


CHOICES: dict[str, Json] = {
    "alone": {"type": "code_interpreter"},
    "among others": {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "code_interpreter"}],
    },
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@story
async def test_a_choice_forces_the_first_call_and_what_follows_is_free(choice: Json) -> None:
    tool = ScriptedTool("2\n")
    forced = ("I compute.", "1+1<|call|>", "Done.<|end|>", "It is 2.<|return|>")
    function = {"type": "function", "name": "f"}
    async with served(*forced, tools=[tool]) as app:
        call = await app.client.create(**ASKED | {"tools": [TOOL, function], "tool_choice": choice})
        last = call.json()
        assert last["tool_choice"] == choice
        assert [item["type"] for item in last["output"]] == [
            *("reasoning", "code_interpreter_call", "reasoning", "message"),
        ]
        assert [call.text for call in tool.calls] == ["1+1"]
        header = "<|start|>assistant<|channel|>analysis to=python code<|message|>"
        assert app.prompt_text(1).endswith(f"<|end|>{header}")


OTHER_APIS: dict[str, tuple[str, Json, Json]] = {
    "chat": ("/v1/chat/completions", {"type": "code_interpreter"}, {"type": "web_search"}),
    "messages": (
        "/v1/messages",
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "web_search_20250305", "name": "web_search"},
    ),
}


@pytest.mark.parametrize(("path", "tool", "other"), OTHER_APIS.values(), ids=OTHER_APIS)
@story
async def test_other_apis_run_a_tool_that_is_asked_for_and_switched_on_alone(
    path: str, tool: Json, other: Json
) -> None:
    ours = ScriptedTool("2")
    body = {"model": "demo", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
    async with served(CODE, ANSWER, CODE, ANSWER, tools=[ours]) as app:
        call = await app.client.send("POST", path, orjson.dumps(body | {"tools": [other]}))
        assert (call.status, "tools[0].type" in call.body.decode()) == (400, True)
        call = await app.client.send("POST", path, orjson.dumps(body | {"tools": [tool]}))
        assert (call.status, len(ours.calls)) == (200, 1)
        ours.opened, ours.calls = [], []
        # Unasked, a model that calls one all the same has called nothing.
        call = await app.client.send("POST", path, orjson.dumps(body))
        assert call.status == 200
        assert (ours.opened, ours.calls) == ([], [])
        assert "## python" not in app.prompt_text()
