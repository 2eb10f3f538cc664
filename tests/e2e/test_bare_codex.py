"""Codex, whole turns, on a server without any extra: a command is run, a deferred tool is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_http import SERVER

ROOT = Path(__file__).parents[2]
CODEX = shutil.which("codex")
CONFIG = """\
model = "{model}"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
"""
SEARCHES = """\
[features]
tool_search = true
tool_search_always_defer_mcp_tools = true
[mcp_servers.demo]
command = {python}
args = [{server}, {tools}]
default_tools_approval_mode = "approve"
required = true
"""
CALL = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"
SEARCHED = CALL.format("tool_search", '{"query": "rename"}')
RENAMED = CALL.format("mcp__demo__rename", "{}")
DONE = "<|channel|>final<|message|>It has a new name.<|return|>"


def turn(tmp_path: Path, question: str, model: str, *arguments: str, more: str = "") -> str:
    """What Codex prints of a turn with this server."""
    assert CODEX is not None
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.bare_server", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        (tmp_path / "config.toml").write_text(CONFIG.format(port=port, model=model) + more)
        (tmp_path / "work").mkdir()
        done = subprocess.run(
            [CODEX, "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", question],
            check=False,
            cwd=tmp_path / "work",
            env=os.environ | {"CODEX_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    finally:
        server.kill()
        server.communicate()
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow  # Codex starts twice as long as all the rest
@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
def test_codex_runs_a_command_and_ends_its_turn(tmp_path: Path) -> None:
    command = json.dumps({"cmd": "echo apple > notes.txt"})
    printed = turn(tmp_path, "Write it.", "demo", command)
    assert (tmp_path / "work" / "notes.txt").read_text() == "apple\n"
    assert "The word is in the file." in printed


@pytest.mark.slow  # Codex starts twice as long as all the rest
@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
@pytest.mark.parametrize("tools", ["three", "three of 2000"])
def test_codex_finds_a_deferred_tool_of_an_mcp_server_and_calls_it(
    tmp_path: Path, tools: str
) -> None:
    """Of a model in its own catalogue, Codex sends `tool_search` and none of the server's tools."""
    values = {"python": sys.executable, "server": str(SERVER), "tools": tools}
    more = SEARCHES.format(**{name: json.dumps(value) for name, value in values.items()})
    model = "gpt-5.5"
    turns = (SEARCHED, RENAMED, DONE)
    printed = turn(tmp_path, "Rename it.", model, model, *turns, more=more)
    assert "mcp: demo/rename (completed)" in printed
    assert "It has a new name." in printed
