"""The examples of docs/extending.md, run as they stand there from a package of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("extending")  # one process loads its engines


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
LINES = 40
NAMES = ("tool", "plain", "named", "talk")
"""The responses that are stored, in order."""
STORY = """\
import asyncio, json, sys

import orjson
from example.app import adding
from tests.support.asgi import Client, asked, living
from trt_responses import Settings, create_app

CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


async def main():
    told = {}
    app = adding()
    async with living(app):
        client = Client(app)
        told["tool"] = (await client.create(tools=[CODE])).json()
        told["plain"] = (await client.create()).json()
        made = await client.send("POST", "/generate", orjson.dumps({"prompt": "Hello"}))
        told["generate"] = made.json()
    place = {"engine": "parrot://Hello.", "model": "demo", "store": "noted://noted.txt"}
    named = Settings(**place, tools=("sums",))
    app = create_app(named)
    async with living(app):
        told["named"] = (await Client(app).create()).json()
        told["tools"] = [tool.kind for tool in app.state.server.tools]
    app = create_app(named.model_copy(update={"speaks": "talker"}))
    async with living(app):
        told["dialect"] = (await Client(app).create(tools=[FUNCTION])).json()
        told["talk"] = (await Client(app).create()).json()
    print(json.dumps(told))


asyncio.run(main())
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def installed(directory: Path) -> Path:
    """The page's package as pip would install it: modules, and a description with entry points."""
    package, about = directory / "example", directory / "example-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    for block in blocks("python"):
        (directory / block.partition("\n")[0].removeprefix("# ")).write_text(block)
    [project] = blocks("toml")
    groups = tomllib.loads(project)["project"]["entry-points"]
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    return directory


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the servers of the page answer."""
    directory = tmp_path_factory.mktemp("extending")
    path = os.pathsep.join((str(installed(directory)), str(ROOT)))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
    child = subprocess.run(
        [sys.executable, "-c", STORY],
        check=False,
        capture_output=True,
        cwd=directory,
        env=inherited | {"PYTHONPATH": path},
    )
    assert child.returncode == 0, child.stderr.decode()
    answers: dict[str, Any] = json.loads(child.stdout)
    return answers | {"noted": (directory / "noted.txt").read_text().split()}


def text_of(response: dict[str, Any]) -> str:
    text: str = response["output"][-1]["content"][0]["text"]
    return text


def test_an_example_is_short() -> None:
    assert all(len(block.splitlines()) <= LINES for block in blocks("python"))


def test_the_feature_notes_the_machine_in_each_response(told: dict[str, Any]) -> None:
    assert all(told[name]["metadata"]["machine"] for name in NAMES)


def test_the_api_answers_a_prompt(told: dict[str, Any]) -> None:
    assert told["generate"] == {"status": "completed", "text": "Hello."}


def test_the_engine_gives_its_answers(told: dict[str, Any]) -> None:
    assert text_of(told["plain"]) == text_of(told["named"]) == text_of(told["talk"]) == "Hello."


def test_the_store_notes_what_it_keeps(told: dict[str, Any]) -> None:
    assert told["noted"] == [told[name]["id"] for name in NAMES]


def test_settings_name_parts_of_the_package(told: dict[str, Any]) -> None:
    assert (text_of(told["named"]), told["tools"]) == ("Hello.", ["code_interpreter"])


def test_the_tool_has_run_in_the_response(told: dict[str, Any]) -> None:
    [call] = [item for item in told["tool"]["output"] if item["type"] == "code_interpreter_call"]
    assert (call["code"], call["status"], call["container_id"]) == ("1 + 2", "completed", "sums")


def test_the_dialect_refuses_tools_by_name(told: dict[str, Any]) -> None:
    assert told["dialect"]["error"]["param"].startswith("tools")
