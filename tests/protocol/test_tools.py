"""Tools of every kind: as the model is shown them, and as its calls come back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support import lawful
from tests.support.replies import check_streamed, without_ids
from tests.support.scripted.engine import Script
from tests.support.served import WEATHER, ids, served
from tests.support.steering import GUIDES
from trt_responses.features.guides.schemas import anchored

PATCH = '*** Begin Patch\n+ "grüezi" \\n 🙂\n*** End Patch'
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
GRAMMAR = CUSTOM | {"format": {"type": "grammar", "syntax": "lark", "definition": "start: x\nx: y"}}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
SPACE = {
    "type": "namespace",
    "name": "files",
    "description": "About files.",
    "tools": [
        {"type": "function", "name": "read", "description": "Read one.", "parameters": PATH},
        {"type": "custom", "name": "patch"},
    ],
}
HOSTED = [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "brand_new"}]


NO_JSON = [
    (PATCH, PATCH),
    ('{"input": "half', "half"),
    ('{"inp', '{"inp'),
    ('{"input": "a\\', "a\\"),
    ("{}", ""),
]


def call_of(name: str, arguments: str) -> str:
    return (
        "<|channel|>analysis<|message|>Now.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
    )


def wrapped(text: str) -> str:
    return json.dumps({"input": text}, ensure_ascii=False)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_custom_tools_text_is_unwrapped_as_it_is_written(chunk: int, ascii_only: bool) -> None:
    async def story() -> None:
        written = call_of("apply_patch", json.dumps({"input": PATCH}, ensure_ascii=ascii_only))
        tokens = ids(written)
        steps = tuple(tokens[n : n + chunk] for n in range(0, len(tokens), chunk))
        async with served(Script(steps)) as s:
            streamed = await s.client.create(stream=True, tools=[CUSTOM])
            last = check_streamed(streamed)
            lawful.check(streamed.events, last)
            call = last["output"][1]
            assert call["id"].startswith("ctc_")
            assert call["call_id"].startswith("call_")
            assert (call["type"], call["name"]) == ("custom_tool_call", "apply_patch")
            assert call["input"] == PATCH
            assert call.keys() == {"id", "type", "name", "input", "call_id", "status"}
            deltas = [e for e in streamed.events if e["type"].endswith("input.delta")]
            assert len(deltas) > 4
            plain = (await s.client.create(tools=[CUSTOM])).json()
            assert without_ids(plain) == without_ids(last)

    asyncio.run(story())


def test_a_tool_with_a_lark_grammar_is_shown_with_it_and_takes_text_as_it_is() -> None:
    async def story() -> None:
        async with served() as s:
            answer = await s.client.create(tools=[GRAMMAR])
            told = s.prompt_text()
            assert (
                "// Edit files.\n// Write the input as it is, not as JSON. "
                "The input follows a Lark grammar:\n// start: x\n// x: y\n" in told
            )
            assert "type apply_patch = () => any;" in told
            assert answer.json()["tools"] == [GRAMMAR]

    asyncio.run(story())


def plate(definition: str = r"[A-Z]{2}-\d+", syntax: str = "regex") -> dict[str, Any]:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": "plate", "format": form}


@pytest.mark.parametrize("text", ["AB-1", "AB-", "xAB-1", "AB-1\n", ""])
def test_a_regular_expression_holds_however_the_call_comes_about(text: str) -> None:
    """The body of an engine that does not follow its guide: no call that departs is completed."""
    body, lawful = f"{wrapped(text)}<|endoftext|>", text == "AB-1"
    opening = "<|channel|>commentary to=functions.plate <|constrain|>json<|message|>"
    forced = {"tool_choice": {"type": "custom", "name": "plate"}, "reasoning": {"effort": "none"}}

    async def story() -> None:
        for asked, written in ((forced, (body,)), ({}, (opening, body))):
            async with served(*written, guides=GUIDES) as s:
                call = await s.client.create(tools=[plate()], **asked)
                guide = s.last.options.guide
                assert guide is not None
                assert r'"pattern":"^[A-Z]{2}\\x{2d}[0-9]+$"' in guide.source
                assert (call.status == 200) == lawful
                if lawful:
                    assert call.json()["output"][-1]["input"] == text
                    assert "x-trt-ignored" not in call.headers
                else:
                    assert "the format of 'plate'" in call.error["message"]

    asyncio.run(story())


@pytest.mark.parametrize("definition", ["(?=a)b", r"\bword\b", "x{2000}", "(a", "a" * 5_000])
def test_a_regular_expression_that_cannot_be_followed_is_refused_by_name(definition: str) -> None:
    nested = {"type": "namespace", "name": "n", "tools": [CUSTOM, plate(definition)]}

    async def story() -> None:
        async with served(guides=GUIDES) as s:
            for tools, place in (
                ([plate(definition)], "tools[0]"),
                ([nested], "tools[0].tools[1]"),
            ):
                call = await s.client.create(tools=tools)
                assert (call.status, call.error["param"]) == (400, f"{place}.format.definition")
                assert "Leave 'format' out" in call.error["message"]
            assert not s.engine.requests

    asyncio.run(story())


def test_an_engine_without_guides_refuses_a_regular_expression_and_takes_lark() -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.create(tools=[CUSTOM | {"name": "other"}, plate()])
            assert (call.status, call.error["param"]) == (400, "tools[1].format")
            call = await s.client.create(tools=[plate("start: x", "lark")])
            assert call.status == 200
            assert call.headers["x-trt-schema-left"] == "tools[0].format"
            assert s.last.options.guide is None

    asyncio.run(story())


@pytest.mark.parametrize(
    ("expression", "pattern"),
    [
        *(("a", "^a$"), ("^a", "^a$"), ("a$", "^a$"), ("^a$", "^a$"), ("[$]", "^[$]$")),
        *((r"a\$", r"^a\$$"), (r"a\\$", r"^a\\$"), ("a|b", "^(?:a|b)$"), ("^a|b$", "^(?:a|b)$")),
    ],
)
def test_an_expression_is_for_the_whole_text_with_or_without_its_anchors(
    expression: str, pattern: str
) -> None:
    assert anchored(expression) == pattern


def test_a_custom_call_and_its_output_go_round_and_the_next_prompt_begins_with_all_that_came() -> (
    None
):
    async def story() -> None:
        written = call_of("apply_patch", wrapped(PATCH))
        async with served(written, "<|channel|>final<|message|>Done.<|return|>") as s:
            first = (await s.client.create(tools=[CUSTOM])).json()
            so_far = [*s.prompt(), *ids(written)]
            result = {
                "type": "custom_tool_call_output",
                "call_id": first["output"][1]["call_id"],
                "output": [{"type": "input_text", "text": "Patched."}],
            }
            chain = {"previous_response_id": first["id"], "input": [result], "tools": [CUSTOM]}
            second = await s.client.create(**chain)
            assert second.status == 200
            assert s.prompt()[: len(so_far)] == so_far
            told = s.prompt_text()
            assert "<|start|>functions.apply_patch to=assistant<|channel|>commentary" in told
            replay = [{"role": "user", "content": "Hello"}, *first["output"], result]
            assert (await s.client.create(input=replay, tools=[CUSTOM], store=False)).status == 200
            header = "<|channel|>commentary to=functions.apply_patch <|constrain|>json<|message|>"
            assert header + wrapped(PATCH) in s.prompt_text()

    asyncio.run(story())


def test_what_is_no_json_in_a_custom_call_is_given_as_it_was_written() -> None:
    async def story() -> None:
        for text, told in NO_JSON:
            async with served(call_of("apply_patch", text)) as s:
                streamed = await s.client.create(stream=True, tools=[CUSTOM])
                last = check_streamed(streamed)
                lawful.check(streamed.events, last)
                assert last["output"][1]["input"] == told

    asyncio.run(story())


def test_a_custom_call_that_is_cut_is_incomplete_and_dropped_from_what_follows() -> None:
    async def story() -> None:
        written = call_of("apply_patch", wrapped("a" * 200))
        async with served(written) as s:
            cut = await s.client.create(stream=True, tools=[CUSTOM], max_output_tokens=30)
            last = check_streamed(cut)
            lawful.check(cut.events, last)
            assert last["output"][1]["status"] == "incomplete"
            assert set(last["output"][1]["input"]) == {"a"}
            more = await s.client.create(previous_response_id=last["id"], tools=[CUSTOM])
            assert more.status == 200
            assert '"input"' not in s.prompt_text().partition("Edit files")[2].partition("}")[2]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("inner", "arguments", "kind"),
    [("read", '{"path":"x"}', "function_call"), ("patch", wrapped("y"), "custom_tool_call")],
)
def test_a_namespace_is_flattened_for_the_model_and_given_back_apart(
    inner: str, arguments: str, kind: str
) -> None:
    async def story() -> None:
        async with served(call_of(f"files__{inner}", arguments)) as s:
            streamed = await s.client.create(stream=True, tools=[WEATHER, SPACE])
            last = check_streamed(streamed)
            lawful.check(streamed.events, last)
            told = s.prompt_text()
            assert (
                "// About files.\n// Read one.\ntype files__read = (_: {\npath: string,\n}) => any;"
                in told
            )
            assert "type files__patch = (_: {\ninput: string,\n}) => any;" in told
            call = last["output"][1]
            assert (call["type"], call["name"], call["namespace"]) == (kind, inner, "files")
            space = last["tools"][1]
            assert (space["type"], space["name"], len(space["tools"])) == ("namespace", "files", 2)
            result = {"type": f"{kind}_output", "call_id": call["call_id"], "output": "ok"}
            replay = [{"role": "user", "content": "Hello"}, *last["output"], result]
            again = await s.client.create(input=replay, tools=[WEATHER, SPACE])
            assert again.status == 200
            assert f"<|channel|>commentary to=functions.files__{inner} " in s.prompt_text()
            assert f"<|start|>functions.files__{inner} to=assistant" in s.prompt_text()

    asyncio.run(story())


def test_tools_that_nobody_runs_are_left_out_of_a_mixed_list_and_named() -> None:
    async def story() -> None:
        async with served() as s:
            for stream in (False, True):
                call = await s.client.create(tools=[*HOSTED, WEATHER], stream=stream)
                assert call.status == 200
                assert call.headers["x-trt-dropped-tools"] == "web_search, mcp, brand_new"
            answer = await s.client.create(tools=[*HOSTED, WEATHER])
            assert [tool["type"] for tool in answer.json()["tools"]] == ["function"]
            assert "web_search" not in s.prompt_text()
            plain = await s.client.create(tools=[WEATHER])
            assert "x-trt-dropped-tools" not in plain.headers

    asyncio.run(story())


def test_a_call_that_nobody_offered_is_a_thought_and_no_end() -> None:
    async def story() -> None:
        for name in ("files__nothing", "read", "web_search"):
            async with served(call_of(name, "{}"), "<|channel|>final<|message|>No.<|return|>") as s:
                last = (await s.client.create(tools=[SPACE, *HOSTED])).json()
                types = [item["type"] for item in last["output"]]
                assert types == ["reasoning", "reasoning", "message"]
                assert [item["content"][0]["text"] for item in last["output"]][1:] == ["{}", "No."]

    asyncio.run(story())


# --- more calls than one ------------------------------------------------------------------------

HEADER = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
OTHER = " to=functions.files__read<|channel|>commentary <|constrain|>json<|message|>"
FIRST = f'<|channel|>analysis<|message|>Two.<|end|><|start|>assistant{HEADER}{{"a":1}}<|call|>'
NO_CALL = "<|channel|>final<|message|>"
TOOLS: list[Any] = [WEATHER, SPACE]


def calls(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (item["name"], item["arguments"])
        for item in response["output"]
        if item["type"] == "function_call"
    ]


def test_one_call_ends_a_turn_unless_the_operator_allows_more_and_the_client_does_not_mind() -> (
    None
):
    async def story() -> None:
        for most, parallel in ((1, True), (1, None), (4, False)):
            async with served(FIRST, HEADER, max_calls=most) as s:
                last = (await s.client.create(tools=TOOLS, parallel_tool_calls=parallel)).json()
                assert (calls(last), last["parallel_tool_calls"]) == (
                    [("weather", '{"a":1}')],
                    False,
                )
                assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_calls_go_on_while_the_next_header_is_again_a_call() -> None:
    async def story() -> None:
        written = (FIRST, OTHER, '{"b":2}<|call|>', HEADER, '{"c":3}<|end|>', NO_CALL)
        async with served(*written, max_calls=8) as s:
            streamed = await s.client.create(stream=True, tools=TOOLS)
            last = check_streamed(streamed)
            lawful.check(streamed.events, last)
            assert calls(last) == [
                ("weather", '{"a":1}'),
                ("read", '{"b":2}'),
                ("weather", '{"c":3}'),
            ]
            assert (last["status"], last["parallel_tool_calls"]) == ("completed", True)
            kept = FIRST + "<|start|>assistant".join(("", OTHER + '{"b":2}<|call|>'))
            kept += "<|start|>assistant" + HEADER + '{"c":3}<|call|>'
            assert last["usage"]["output_tokens"] == len(ids(kept))
            results = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
                for item in last["output"]
                if item["type"] == "function_call"
            ]
            prompt = s.prompt(0) + list(ids(kept))
            more = await s.client.create(
                previous_response_id=last["id"], input=results, tools=TOOLS
            )
            assert more.status == 200
            assert s.prompt(6)[: len(prompt)] == prompt

    asyncio.run(story())


@pytest.mark.parametrize(
    "tried",
    [
        *(NO_CALL, "<|return|>", "<|end|>", "<|start|>", "just words", "x" * 400),
        " to=functions.unknown<|channel|>commentary<|message|>",
        " to=functions.<|channel|>commentary<|message|>",
    ],
)
def test_a_header_that_is_no_call_is_taken_back_as_if_it_had_not_been_tried(tried: str) -> None:
    async def story() -> None:
        async with served(FIRST, tried, max_calls=8) as s:
            streamed = await s.client.create(stream=True, tools=TOOLS)
            last = check_streamed(streamed)
            lawful.check(streamed.events, last)
            assert (calls(last), last["status"]) == ([("weather", '{"a":1}')], "completed")
            assert last["usage"]["output_tokens"] == len(ids(FIRST))
            assert len(s.engine.requests) == 2

    asyncio.run(story())


def test_calls_are_counted_and_the_last_one_that_is_allowed_ends_the_turn() -> None:
    async def story() -> None:
        async with served(FIRST, HEADER, '{"b":2}<|call|>', HEADER, max_calls=2) as s:
            last = (await s.client.create(tools=TOOLS)).json()
            assert len(calls(last)) == 2
            assert len(s.engine.requests) == 3

    asyncio.run(story())


def test_a_call_after_the_first_that_is_cut_leaves_the_first_whole() -> None:
    async def story() -> None:
        budget = len(ids(FIRST)) + 30
        async with served(FIRST, HEADER, "1 " * 100, max_calls=2) as s:
            last = (await s.client.create(tools=TOOLS, max_output_tokens=budget)).json()
            assert last["status"] == "incomplete"
            assert [item["status"] for item in last["output"]] == [
                *("completed", "completed", "incomplete")
            ]
            assert last["usage"]["output_tokens"] == budget

    asyncio.run(story())


A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STRICT = WEATHER | {"parameters": A | {"additionalProperties": False}, "strict": True}
GUIDED = '{"a": %d}<|endoftext|>'


def test_calls_after_the_first_are_steered_as_the_first_was() -> None:
    named = {"type": "function", "name": "weather"}

    async def story() -> None:
        chosen = ("Now.<|end|>", GUIDED % 1, HEADER, GUIDED % 2, OTHER)
        async with served(*chosen, guides=GUIDES, max_calls=8) as s:
            last = (await s.client.create(tools=[WEATHER, SPACE], tool_choice=named)).json()
            assert calls(last) == [("weather", '{"a": 1}'), ("weather", '{"a": 2}')]
            guided = [request.options.guide is not None for request in s.engine.requests]
            assert guided == [False, True, False, True, False]
        strict = (HEADER, GUIDED % 1, HEADER, GUIDED % 2, OTHER, '{"path":"x"}<|call|>', NO_CALL)
        async with served(*strict, guides=GUIDES, max_calls=8) as s:
            last = (await s.client.create(tools=[STRICT, SPACE])).json()
            assert calls(last) == [
                ("weather", '{"a": 1}'),
                ("weather", '{"a": 2}'),
                ("read", '{"path":"x"}'),
            ]
            guided = [request.options.guide is not None for request in s.engine.requests]
            assert guided == [False, True, False, True, False, False, False]

    asyncio.run(story())
