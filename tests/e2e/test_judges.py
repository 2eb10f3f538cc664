"""Agents of others on the scripts of `docs/testing-agents.md`, each as the page shows it: three
tools, a 503 and a cut reply in the middle, and an answer that fills a schema.

The Python frameworks run in the interpreter that `AGENTS_PYTHON` names, since they bring packages
that nothing else wants; node finds its packages by `NODE_PATH`. What is missing is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support.pages import DOCS
from trt_responses.testing import responses_server as responses_server  # the fixture itself

if TYPE_CHECKING:
    from trt_responses.testing import ResponsesServer

pytestmark = pytest.mark.slow  # each framework takes seconds to load

PYTHON = os.environ.get("AGENTS_PYTHON", sys.executable)
NODE, MODULES = shutil.which("node"), Path(os.environ.get("NODE_PATH", "none"))
CODEX, CLAUDE = shutil.which("codex"), shutil.which("claude")
PAGE = (DOCS / "testing-agents.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
QUESTION = "To 'Rome' for 3 nights"
TRIP = {"city": "Rome", "nights": 3}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}},
    "required": ["city", "nights"],
    "additionalProperties": False,
}
CONFIG = """\
model = "any"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{}"
wire_api = "responses"
"""


def block(language: str, part: str) -> str:
    """The page's block with this part."""
    found: str
    [found] = [text for name, text in BLOCKS if name == language and part in text]
    assert len(found.replace("\n\n", "\n").splitlines()) <= 20
    return found


def play(server: ResponsesServer, part: str) -> None:
    rules = yaml.safe_load(block("yaml", part))["rules"]

    server.script(*rules)


def run(command: list[str], place: Path, **environment: str) -> str:
    """What a program prints."""
    ran = subprocess.run(
        command,
        cwd=place,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def openai_at(server: ResponsesServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "-"}


def asked(server: ResponsesServer) -> list[Any]:
    """The bodies of the requests for an answer."""
    return [each.body for each in server.requests if each.method == "POST"]


def without(module: str) -> bool:
    looks = f"import sys, importlib.util as i; sys.exit(i.find_spec('{module}') is None)"
    return subprocess.run([PYTHON, "-c", looks], check=False).returncode != 0


@pytest.mark.parametrize("module", ["agents", "langchain_openai"])
def test_a_python_framework_makes_the_trip(
    module: str, responses_server: ResponsesServer, tmp_path: Path
) -> None:
    if without(module):
        pytest.skip(f"no {module} (AGENTS_PYTHON)")
    play(responses_server, "find_flight")
    (tmp_path / "trip.py").write_text(block("python", "class Trip"))
    (tmp_path / "travel.py").write_text(block("python", f"from {module} import"))
    told = run([PYTHON, "travel.py"], tmp_path, PYTHONPATH="", **openai_at(responses_server))
    assert told.splitlines()[-1] == "Trip(city='Rome', nights=3)"
    assert len(asked(responses_server)) == 9  # four turns, a 503, a cut reply, and four turns again


@pytest.mark.skipif(NODE is None or not (MODULES / "ai").exists(), reason="no ai (NODE_PATH)")
def test_the_ai_sdk_makes_the_trip(responses_server: ResponsesServer, tmp_path: Path) -> None:
    play(responses_server, "find_flight")
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "trip.mjs").write_text(block("js", "@ai-sdk/openai"))
    told = run([f"{NODE}", "trip.mjs"], tmp_path, **openai_at(responses_server))
    assert json.loads(told) == TRIP
    assert len(asked(responses_server)) == 6


@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
def test_codex_runs_three_commands(responses_server: ResponsesServer, tmp_path: Path) -> None:
    play(responses_server, "exec_command")
    (tmp_path / "config.toml").write_text(CONFIG.format(responses_server.base_url))
    (tmp_path / "trip.json").write_text(json.dumps(SCHEMA))
    command = [f"{CODEX}", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write"]
    command += ["--output-schema", "trip.json", QUESTION]
    told = run(command, tmp_path, CODEX_HOME=f"{tmp_path}")
    assert json.loads(told) == TRIP
    assert len(asked(responses_server)) == 6


@pytest.mark.skipif(CLAUDE is None, reason="no claude on the path")
def test_claude_code_runs_three_commands(responses_server: ResponsesServer, tmp_path: Path) -> None:
    play(responses_server, "StructuredOutput")
    command = [f"{CLAUDE}", "-p", QUESTION, "--allowedTools", "Bash", "--output-format", "json"]
    told = run(
        [*command, "--json-schema", json.dumps(SCHEMA)],
        tmp_path,
        HOME=f"{tmp_path}",
        ANTHROPIC_BASE_URL=responses_server.base_url.removesuffix("/v1"),
        ANTHROPIC_API_KEY="-",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    assert json.loads(json.loads(told)["result"]) == TRIP
