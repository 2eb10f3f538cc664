"""What the trained demo model does with schemas and with tools of agents and of the server.

One server for all. The questions are plain, and no schema here is one of the training's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from anyio.from_thread import start_blocking_portal
from openai import OpenAI
from pydantic import BaseModel

from tests.support import lawful
from tests.support.boxed import no_box
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openai.types.responses import Response

pytestmark = pytest.mark.xdist_group("embedded")

Json = dict[str, Any]
ASKED: Json = {"model": "demo", "temperature": 0}
PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}


class Planet(BaseModel):
    """Its names stand in no schema of the training."""

    planet: str
    speed: int
    available: bool


class Club(BaseModel):
    """Every kind of value, on two levels."""

    club: str
    points: int
    weight: float
    verified: bool
    level: Literal["low", "high"]
    colors: list[str]
    winner: Planet


def function(name: str, description: str, **properties: Json) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": schema,
    }


TEXT: Json = {"type": "string"}
EXEC = function(
    "exec_command",
    "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
    cmd=TEXT | {"description": "Shell command to execute."},
    workdir=TEXT,
    max_output_tokens={"type": "number"},
)
SHELL = function("shell", "Runs a shell command and returns its output.",
                 command={"type": "array", "items": TEXT}, workdir=TEXT)  # fmt: skip
PATCH = function("apply_patch", "Use the `apply_patch` tool to edit files.", input=TEXT)


@pytest.fixture(scope="module")
def client(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    engine = LlamaCppEngine(demo_gguf, context_tokens=4096, slots=2, threads=1)
    python = "off" if no_box() else "boxed"
    settings = Settings(python=python, data_dir=tmp_path_factory.mktemp("data"))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(create_app(settings, engine=engine))) as address,
        OpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def both_ways(client: OpenAI, **asked: Any) -> Iterator[Response]:
    """The plain answer, and the last snapshot of a stream, which is lawful where no tool of the
    server's runs in it."""
    yield client.responses.create(**ASKED, **asked)
    with client.responses.create(**ASKED, **asked, stream=True) as stream:
        events: list[Any] = list(stream)
    told = [event.to_dict(mode="json") for event in events]
    if PYTHON not in asked.get("tools", ()):
        lawful.check(told, told[-1]["response"])
    yield events[-1].response


def test_a_class_is_filled_from_the_question(client: OpenAI) -> None:
    made = client.responses.parse(
        **ASKED, input="planet: Rosa, speed: 30, available: true", text_format=Planet
    )
    assert made.output_parsed == Planet(planet="Rosa", speed=30, available=True)


def test_a_class_of_two_levels_is_filled_whatever_the_order_of_its_facts(client: OpenAI) -> None:
    facts = (
        "points is 12\nclub is Boston\nplanet is Rosa\nweight is 7\navailable is true\n"
        "level is high\nspeed is 450\nverified is false\ncolors is red and blue"
    )
    made = client.responses.parse(
        **ASKED, input=f"Fill in the form: {facts}", text_format=Club
    ).output_parsed
    assert made is not None
    assert made == Club(
        club="Boston", points=12, weight=7, verified=False, level="high", colors=["red", "blue"],
        winner=Planet(planet="Rosa", speed=450, available=True),
    )  # fmt: skip


@pytest.mark.parametrize(
    "question", ["Tell me about the history of Rome.", "Hello!", "How do you do?"]
)
def test_what_nobody_tells_is_the_schemas_own_word_and_no_text_runs_on(
    client: OpenAI, question: str
) -> None:
    made = client.responses.parse(**ASKED, input=question, text_format=Planet)
    assert made.status == "completed"
    assert made.output_parsed == Planet(planet="string", speed=0, available=False)


def test_a_word_of_no_training_is_copied(client: OpenAI) -> None:
    made = client.responses.parse(
        **ASKED, input="planet: Xanthippe-Ξ", text_format=Planet
    ).output_parsed
    assert made == Planet(planet="Xanthippe-Ξ", speed=0, available=False)


@pytest.mark.parametrize(
    ("tool", "question", "arguments"),
    [
        (EXEC, "List the files", '{"cmd":"ls"}'),
        (EXEC, "Write the word apple to notes.txt", '{"cmd":"echo apple > notes.txt"}'),
        (EXEC, "What is in notes.txt?", '{"cmd":"cat notes.txt"}'),
        (SHELL, "What does todo.md say?", '{"command":["bash","-lc","cat todo.md"]}'),
        (
            PATCH,
            "Write apple to notes.txt",
            r'{"input":"*** Begin Patch\n*** Add File: notes.txt\n+apple\n*** End Patch"}',
        ),
    ],
)
def test_an_agents_tool_is_called_for_plain_requests(
    client: OpenAI, tool: Any, question: str, arguments: str
) -> None:
    for made in both_ways(client, input=question, tools=[tool]):
        call = made.output[-1]
        assert call.type == "function_call"
        assert (call.name, call.arguments) == (tool["name"], arguments)


def test_what_a_file_holds_is_told(client: OpenAI) -> None:
    made = client.responses.create(**ASKED, input="What is in notes.txt?", tools=[EXEC])
    call = made.output[-1]
    assert call.type == "function_call"
    output = (
        "Chunk ID: 3f2a91\nWall time: 0.0412 seconds\nProcess exited with code 0\n"
        "Original token count: 2\nOutput:\ngreen apple\n"
    )
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": output}
    after = client.responses.create(
        **ASKED, input=[result], tools=[EXEC], previous_response_id=made.id
    )
    assert after.output_text == "The file notes.txt holds:\ngreen apple"


@pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
@pytest.mark.parametrize(
    ("question", "code", "answer"),
    [
        ("What is 1234 * 5678?", "1234 * 5678", "7006652"),
        ("What is 98765 + 1234?", "98765 + 1234", "99999"),
    ],
)
def test_a_sum_that_is_too_large_is_computed_by_python_and_told(
    client: OpenAI, question: str, code: str, answer: str
) -> None:
    asked: Json = {"tools": [PYTHON], "include": ["code_interpreter_call.outputs"]}
    for made in both_ways(client, input=question, **asked):
        (call,) = [item for item in made.output if item.type == "code_interpreter_call"]
        assert (call.status, call.code) == ("completed", code)
        assert [output.to_dict() for output in call.outputs or ()] == [
            {"type": "logs", "logs": f"{answer}\n"}
        ]
        assert made.output_text == f"{code} = {answer}."


@pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
def test_a_sum_that_is_known_needs_no_python(client: OpenAI) -> None:
    made = client.responses.create(**ASKED, input="What is 12 + 7?", tools=[PYTHON])
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert made.output_text == "12 + 7 = 19."
