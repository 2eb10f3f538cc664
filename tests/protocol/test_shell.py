"""`shell` that runs here: commands in the box, as items and events, streamed and plain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.boxed import no_box, processes_in
from tests.support.code_server import begun
from tests.support.replies import check_streamed, without_ids
from tests.support.served import served
from tests.support.steering import GUIDES
from tests.support.story import story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Json

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

TOOL: Json = {"type": "shell", "environment": {"type": "container_auto"}}
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
ORDER = [
    ("output_item.added", 0),
    ("shell_call_command.added", 0),
    ("shell_call_command.delta", 0),
    ("shell_call_command.done", 0),
    ("output_item.done", 0),
    ("output_item.added", 1),
    ("shell_call_output_content.delta", 1),
    ("shell_call_output_content.done", 1),
    ("output_item.done", 1),
]


def calling(script: str, **said: Any) -> str:
    arguments = orjson.dumps({"cmd": ["bash", "-lc", script], **said}).decode()
    header = "<|channel|>commentary to=container.exec <|constrain|>json"
    return f"{header}<|message|>{arguments}<|call|>"


def containers_in(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("containers/*/cntr_*"))


def here(tmp_path: Path, **settings: Any) -> dict[str, Any]:
    return {"shell": "boxed", "data_dir": tmp_path, **settings}


@story
async def test_a_command_runs_within_its_response(tmp_path: Path) -> None:
    replies = []
    for stream in (True, False):
        script = calling("echo out; echo err >&2; exit 3")
        async with served(script, ANSWER, **here(tmp_path)) as app:
            call = await app.client.create(input="Hi", tools=[TOOL], stream=stream)
            replies.append(check_streamed(call) if stream else call.json())
            if stream:
                told = [
                    (event["type"].removeprefix("response."), event["output_index"])
                    for event in call.events
                    if event.get("output_index", 2) < 2
                ]
                assert told == ORDER
            assert app.prompt_text().endswith(
                "<|start|>container.exec to=assistant<|channel|>commentary<|message|>"
                "out\nerr\n[exit code 3]<|end|><|start|>assistant"
            )
            assert "namespace container {" in app.prompt_text()
    streamed, plain = map(without_ids, replies)
    for reply in replies:
        call_item, result = reply["output"][:2]
        assert call_item["action"]["commands"] == ["echo out; echo err >&2; exit 3"]
        assert call_item["environment"]["type"] == "container_reference"
        assert result["call_id"] == call_item["call_id"]
        assert result["output"] == [
            {"stdout": "out\n", "stderr": "err\n", "outcome": {"type": "exit", "exit_code": 3}}
        ]
    assert [item["type"] for item in streamed["output"]] == [
        item["type"] for item in plain["output"]
    ]


HEADERS = [
    "<|channel|>analysis to=container.exec code",
    "<|channel|>commentary to=container.exec json",
    "<|channel|>commentary to=container.exec",
    " to=container.exec<|channel|>commentary <|constrain|>json",
    "<|channel|>commentary to=functions.container.exec <|constrain|>json",
]


@story
async def test_a_header_may_have_any_form_that_models_write(tmp_path: Path) -> None:
    written = [f'{header}<|message|>{{"cmd": ["echo", "1"]}}<|call|>' for header in HEADERS]
    async with served(*written, ANSWER, **here(tmp_path)) as app:
        reply = (await app.client.create(input="Hi", tools=[TOOL])).json()
        told = [item for item in reply["output"] if item["type"] == "shell_call_output"]
        assert [one["output"][0]["stdout"] for one in told] == ["1\n"] * len(HEADERS)


@story
async def test_files_stay_in_a_container_from_response_to_response(tmp_path: Path) -> None:
    scripts = (calling("echo 42 > kept"), ANSWER, calling("cat kept"), ANSWER)
    async with served(*scripts, *scripts[2:], **here(tmp_path)) as app:
        first = (await app.client.create(input="Hi", tools=[TOOL])).json()
        second = (
            await app.client.create(input="And?", tools=[TOOL], previous_response_id=first["id"])
        ).json()
        assert second["output"][1]["output"][0]["stdout"] == "42\n"
        container_id = first["output"][0]["environment"]["container_id"]
        by_id = {"type": "container_reference", "container_id": container_id}
        third = await app.client.create(input="Hi", tools=[TOOL | {"environment": by_id}])
        assert third.json()["output"][1]["output"][0]["stdout"] == "42\n"


@story
async def test_a_turn_that_is_carried_renders_to_what_was_generated(tmp_path: Path) -> None:
    """A client that stores nothing sends both items again: the output is not said twice."""
    scripts = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant" + calling("echo 1")
    function: Json = {"type": "function", "name": "f", "parameters": {}}
    asked: Json = {
        "tools": [TOOL, function],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    broken_off = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    async with served(scripts, broken_off, ANSWER, **here(tmp_path)) as app:
        user = {"role": "user", "content": "Hi"}
        first = (await app.client.create(input=[user], **asked)).json()
        kinds = [item["type"] for item in first["output"]]
        assert kinds == ["reasoning", "shell_call", "shell_call_output", "function_call"]
        result = {
            "type": "function_call_output",
            "call_id": first["output"][-1]["call_id"],
            "output": "2",
        }
        again = await app.client.create(input=[user, *first["output"], result], **asked)
        assert again.json()["status"] == "completed", again.body
        before = app.prompt(1)
        assert app.prompt(2)[: len(before)] == before
        assert app.prompt_text().count("<|start|>container.exec to=assistant") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "Error parsing tool arguments as JSON"),
        ('{"cmd": []}', "`cmd` is missing"),
        ('{"cmd": ["ls"], "user": "root"}', "`user` is not supported"),
        ('{"cmd": ["ls"], "session_name": "a"}', "`session_name` is not supported"),
        ('{"cmd": ["ls"], "env": {"A": 1}}', "`env` is no object of strings"),
        ('{"cmd": ["ls"], "timeout": -1}', "`timeout` is no number"),
        ('{"cmd": ["ls"], "timeout": 1180591620717411303424}', "`timeout` is no number"),
        ('{"cmd": ["ls"], "timeout": true}', "`timeout` is no number"),
        ('{"cmd": ["ls", "\\ud800"]}', "Error parsing tool arguments as JSON"),
        ('{"cmd": ["a\\u0000b"]}', "no program can be given"),
    ],
)
@story
async def test_arguments_that_cannot_be_read_are_told_to_the_model(
    tmp_path: Path, arguments: str, told: str
) -> None:
    text = calling("").partition("<|message|>")[0] + f"<|message|>{arguments}<|call|>"
    async with served(text, ANSWER, **here(tmp_path)) as app:
        reply = (await app.client.create(input="Hi", tools=[TOOL])).json()
        assert reply["status"] == "completed"
        assert told in app.prompt_text()
        (output,) = reply["output"][1]["output"]
        assert told in output["stderr"]
        assert output["outcome"] == {"type": "exit", "exit_code": 126}


@story
async def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    script = calling("sleep 1000 & sleep 1000", timeout=500)
    async with served(script, ANSWER, **here(tmp_path)) as app:
        reply = (await app.client.create(input="Hi", tools=[TOOL])).json()
        (output,) = reply["output"][1]["output"]
        assert output["outcome"] == {"type": "timeout"}
        assert "[The command took too long and was ended.]" in app.prompt_text()
        assert processes_in(tmp_path) == []


@pytest.mark.parametrize("stream", [True, False])
@story
async def test_a_hang_up_ends_the_command_and_all_that_it_began(
    tmp_path: Path, stream: bool
) -> None:
    script = calling("(while :; do :; done) & echo > begun; while :; do :; done")
    async with served(script, **here(tmp_path)) as app:
        call = app.client.ask(input="Hi", tools=[TOOL], stream=stream)
        await until(lambda: bool(begun(tmp_path)))
        call.hang_up()
        await asyncio.gather(call.done(), return_exceptions=True)
        await until(lambda: not processes_in(tmp_path))
        assert len(app.runs) == 0


@story
async def test_a_command_that_fills_the_disk_is_ended(tmp_path: Path) -> None:
    script = calling("while :; do head -c 100000 /dev/zero > $RANDOM$RANDOM; done")
    async with served(script, ANSWER, **here(tmp_path, container_bytes=2**20)) as app:
        reply = (await app.client.create(input="Hi", tools=[TOOL])).json()
        assert "variables and files are lost" in reply["output"][1]["output"][0]["stderr"]
        assert not containers_in(tmp_path)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "shell"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]},
    ],
)
@story
async def test_a_choice_forces_the_first_call(tmp_path: Path, choice: Json) -> None:
    forced = ("I run it.", '{"cmd": ["echo", "1"]}<|call|>', "Done.<|end|>", "Done.<|return|>")
    async with served(*forced, **here(tmp_path)) as app:
        call = await app.client.create(input="Hi", tools=[TOOL], tool_choice=choice)
        kinds = [item["type"] for item in call.json()["output"]]
        assert kinds == ["reasoning", "shell_call", "shell_call_output", "reasoning", "message"]
        assert call.json()["output"][2]["output"][0]["stdout"] == "1\n"


@pytest.mark.parametrize(
    ("environment", "param", "status"),
    [
        ({"type": "container_auto", "file_ids": ["f"]}, "file_ids[0]", 404),
        ({"type": "container_auto", "memory_limit": "4g"}, "memory_limit", 400),
        (
            {"type": "container_auto", "network_policy": {"type": "allowlist"}},
            "network_policy",
            400,
        ),
        ({"type": "container_auto", "skills": [{"type": "skill_reference"}]}, "skills", 400),
        ({"type": "container_reference", "container_id": "cntr_0"}, "container_id", 404),
    ],
)
@story
async def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, environment: Json, param: str, status: int
) -> None:
    async with served(ANSWER, **here(tmp_path)) as app:
        call = await app.client.create(input="Hi", tools=[TOOL | {"environment": environment}])
        assert (call.status, call.error["param"]) == (status, f"tools[0].environment.{param}")


@story
async def test_the_clients_own_shell_stays_the_clients(tmp_path: Path) -> None:
    header = "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.shell "
    written = (
        "<|channel|>analysis<|message|>",
        f"{header}<|constrain|>json<|message|>",
        '{"commands": ["ls"]}<|endoftext|>',
    )
    async with served(*written, guides=GUIDES, **here(tmp_path)) as app:
        reply = (await app.client.create(input="Hi", tools=[{"type": "shell"}])).json()
        _, call = reply["output"]
        assert (call["type"], call["environment"]) == ("shell_call", {"type": "local"})
        assert "namespace container" not in app.prompt_text()


@story
async def test_without_the_operator_no_command_runs() -> None:
    async with served(ANSWER) as app:
        call = await app.client.create(input="Hi", tools=[TOOL])
        assert (call.status, call.error["param"]) == (400, "tools[0].type")


@story
async def test_python_and_commands_share_a_container_by_its_id(tmp_path: Path) -> None:
    python = "<|channel|>analysis to=python code<|message|>open('f', 'w').write('shared')<|call|>"
    async with served(
        python, calling("cat f"), ANSWER, python="boxed", **here(tmp_path), api_keys="ann:key-a"
    ) as app:
        headers = {
            "host": "127.0.0.1:8000",
            "content-type": "application/json",
            "authorization": "Bearer key-a",
        }

        async def post(path: str, body: Json) -> Json:
            reply = await app.client.send("POST", path, orjson.dumps(body), headers)
            told: Json = reply.json()
            return told

        made = await post("/v1/containers", {"name": "both"})
        tools = [
            {"type": "code_interpreter", "container": made["id"]},
            {
                "type": "shell",
                "environment": {"type": "container_reference", "container_id": made["id"]},
            },
        ]
        reply = await post("/v1/responses", {"model": "demo", "input": "Hi", "tools": tools})
        assert reply["output"][2]["output"][0]["stdout"] == "shared"
