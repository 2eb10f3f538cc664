"""Tools of which the API says what a call is, and which the client runs: shells, and patches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.replies import check_streamed, without_ids
from tests.support.served import KEYED, WEATHER, ids, served
from tests.support.steering import GUIDES
from tests.support.story import story

if TYPE_CHECKING:
    from tests.support.asgi import Json

THOUGHT = "<|channel|>analysis<|message|>"
CALL = "I look.<|end|><|start|>assistant<|channel|>commentary "
ANSWER = ("<|channel|>final<|message|>", "Done.<|return|>")
UPDATE = {"type": "update_file", "path": "a.py", "diff": "@@\n-x\n+ü\n"}
DELETE = {"type": "delete_file", "path": "b.py"}
LIST = {"commands": ["ls -l", "echo 'grüezi'"], "timeout_ms": 1000}
RUN = {"command": ["ls", "-l"], "working_directory": "/tmp"}
ACTIONS: list[tuple[str, Json, Json]] = [
    (
        "shell",
        LIST,
        {"action": LIST | {"max_output_length": None}, "environment": {"type": "local"}},
    ),
    (
        "local_shell",
        RUN,
        {"action": {"type": "exec", "env": {}, "timeout_ms": None, "user": None} | RUN},
    ),
    (
        "shell",
        LIST | {"timeout_ms": 2**70},
        {
            "action": LIST | {"timeout_ms": None, "max_output_length": None},
            "environment": {"type": "local"},
        },
    ),
    ("apply_patch", UPDATE, {"operation": UPDATE}),
    ("apply_patch", DELETE, {"operation": DELETE}),
]
"""The tool's kind, what the model writes, and what the item says."""


def wrote(kind: str, arguments: Json | str) -> tuple[str, str, str]:
    """What an engine writes in the segments of a call: two headers, and its guided body."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    header = f"{CALL}to=functions.{kind} <|constrain|>json<|message|>"
    return THOUGHT, header, f"{text}<|endoftext|>"


@pytest.mark.parametrize(("kind", "arguments", "told"), ACTIONS)
@story
async def test_a_call_is_an_item_of_its_own_kind(kind: str, arguments: Json, told: Json) -> None:
    written = wrote(kind, arguments)
    async with served(*written, *written, *ANSWER, guides=GUIDES) as app:
        streamed = await app.client.create(stream=True, tools=[{"type": kind}, WEATHER])
        last = check_streamed(streamed)
        assert "x-trt-dropped-tools" not in streamed.headers
        call = last["output"][1]
        assert call == told | {
            "type": f"{kind}_call",
            "id": call["id"],
            "call_id": call["call_id"],
            "status": "completed",
        }
        events = [e for e in streamed.events if e.get("output_index") == 1]
        assert events[0]["item"]["status"] == "in_progress"
        assert events[0]["item"]["id"] == call["id"]
        assert events[-1]["item"] == call
        plain = (await app.client.create(tools=[{"type": kind}, WEATHER])).json()
        assert without_ids(plain) == without_ids(last)
        assert plain["tools"][0] == {"type": kind}


@story
async def test_commands_are_told_one_by_one() -> None:
    async with served(*wrote("shell", LIST), guides=GUIDES) as app:
        streamed = await app.client.create(stream=True, tools=[{"type": "shell"}])
    of_item = [e for e in streamed.events if e.get("output_index") == 1]
    kinds = [e["type"].removeprefix("response.shell_call_command.") for e in of_item]
    assert kinds[1:-1] == ["added", "delta", "done"] * 2
    assert [e["command_index"] for e in of_item[1:-1]] == [0, 0, 0, 1, 1, 1]
    assert [e["delta"] for e in of_item if "delta" in e] == LIST["commands"]
    assert [e["command"] for e in of_item if e["type"].endswith("done") and "command" in e] == (
        LIST["commands"]
    )


OUTPUTS: list[tuple[str, Json, str]] = [
    (
        "shell",
        {
            "output": [
                {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "no\n", "outcome": {"type": "exit", "exit_code": 2}},
                {"stdout": "b", "stderr": "", "outcome": {"type": "timeout"}},
            ]
        },
        "a\nno\n[exit code 2]\nb\n[The command took too long and was ended.]",
    ),
    ("local_shell", {"output": "a"}, "a"),
    ("apply_patch", {"status": "failed", "output": "no such line"}, "failed\nno such line"),
    ("apply_patch", {"status": "completed"}, "completed"),
]


@pytest.mark.parametrize("carried", ["stored", "sealed", "open"])
@pytest.mark.parametrize(("kind", "output", "shown"), OUTPUTS)
@story
async def test_the_output_goes_to_the_call(
    kind: str, output: Json, shown: str, carried: str
) -> None:
    """The prompt goes on from what the model wrote, whoever keeps it."""
    arguments = next(wanted for name, wanted, _ in ACTIONS if name == kind)
    asked: Json = {"tools": [{"type": kind}]}
    if carried != "stored":
        asked["store"] = False
    if carried == "sealed":
        asked["include"] = ["reasoning.encrypted_content"]
    async with served(*wrote(kind, arguments), *ANSWER, guides=GUIDES, **KEYED) as app:
        first = (await app.client.create(input="Go", **asked)).json()
        before = app.prompt_text() + json.dumps(arguments, ensure_ascii=False) + "<|call|>"
        call = first["output"][-1]
        result = {"type": f"{kind}_call_output", "call_id": call["call_id"]} | output
        if kind == "local_shell":
            result["id"] = result.pop("call_id")
        if carried == "stored":
            asked |= {"input": [result], "previous_response_id": first["id"]}
        else:
            asked["input"] = [{"role": "user", "content": "Go"}, *first["output"], result]
        reply = await app.client.create(**asked)
        assert reply.json()["output"][-1]["content"][0]["text"] == "Done."
        answer = f"<|start|>functions.{kind} to=assistant<|channel|>commentary<|message|>{shown}"
        text = app.prompt_text()
        assert text.endswith(f"{answer}<|end|><|start|>assistant{ANSWER[0]}")
        if carried != "open":
            assert text.startswith(before)
        else:
            assert f"to=functions.{kind}" in text
        if carried == "stored":
            listed = await app.client.get(f"/v1/responses/{reply.json()['id']}/input_items")
            assert [item["type"] for item in listed.json()["data"]] == [f"{kind}_call_output"]


@story
async def test_a_call_that_is_cut_says_so_and_is_not_kept() -> None:
    cut: list[tuple[str, str, Json]] = [
        ("shell", '{"commands": ["ls", "rm -r', {"status": "incomplete"}),
        ("local_shell", '{"command": ["rm", "-r', {"status": "incomplete"}),
        ("apply_patch", '{"type": "create_file", "pa', {"status": "in_progress"}),
    ]
    for kind, text, told in cut:
        thought, header, body = wrote(kind, text)
        body = body.removesuffix("<|endoftext|>")
        tokens = len(ids(thought + header + body))
        async with served(thought, header, body, guides=GUIDES) as app:
            asked: Json = {"tools": [{"type": kind}], "max_output_tokens": tokens}
            streamed = await app.client.create(stream=True, **asked)
            last = check_streamed(streamed)
            assert last["status"] == "incomplete"
            assert last["output"][1]["type"] == f"{kind}_call"
            assert told.items() <= last["output"][1].items()
            if kind == "shell":
                assert last["output"][1]["action"]["commands"][0] == "ls"
            await app.client.create(previous_response_id=last["id"], tools=[{"type": kind}])
            assert "to=functions" not in app.prompt_text()


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch"])
@story
async def test_a_call_can_be_forced_and_forbidden(kind: str) -> None:
    *_, body = wrote(kind, next(wanted for name, wanted, _ in ACTIONS if name == kind))
    tools: list[Any] = [{"type": kind}, WEATHER]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": kind}]}
    for choice in ({"type": kind}, allowed):
        async with served(body, guides=GUIDES) as app:
            asked: Json = {"tools": tools, "tool_choice": choice, "reasoning": {"effort": "none"}}
            reply = (await app.client.create(**asked)).json()
            assert [item["type"] for item in reply["output"]] == [f"{kind}_call"]
            assert reply["tool_choice"] == choice
    async with served("Done.<|return|>", guides=GUIDES) as app:
        answer = await app.client.create(tools=[WEATHER], tool_choice={"type": kind})
        assert (answer.status, answer.error["param"]) == (400, "tool_choice")
        answer = await app.client.create(tools=[{"type": kind}], tool_choice="none")
        assert answer.json()["output"][-1]["type"] == "message"


@story
async def test_what_departs_from_a_calls_form_is_no_call() -> None:
    async with served(*wrote("shell", {"commands": "ls"}), guides=GUIDES) as app:
        reply = await app.client.create(tools=[{"type": "shell"}])
        assert (reply.status, reply.error["code"]) == (500, "output_departs_from_format")


@story
async def test_refusals_name_the_place() -> None:
    wrong: list[tuple[Json, str]] = [
        ({"type": "shell", "environment": {"type": "moon"}}, "tools[0].environment"),
        ({"type": "shell", "environment": {"type": "container_reference"}}, "container_id"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "tools[0].type"),
    ]
    async with served(*ANSWER, guides=GUIDES) as app:
        for tool, param in wrong:
            reply = await app.client.create(tools=[tool])
            assert reply.status == 400, tool
            assert reply.error["param"].endswith(param), reply.error
        twice = await app.client.create(
            tools=[{"type": "shell"}, {"type": "function", "name": "shell"}]
        )
        assert (twice.status, twice.error["param"]) == (400, "tools[1].name")
        skilled = {"type": "local", "skills": [{"name": "s", "description": "d", "path": "/p"}]}
        await app.client.create(tools=[{"type": "shell", "environment": skilled}])
        assert "// Skill s, in /p: d\n" in app.prompt_text()
    async with served(*ANSWER, guides={}) as app:
        reply = await app.client.create(tools=[{"type": "shell"}])
        assert (reply.status, reply.error["param"]) == (400, "tools[0].type")
