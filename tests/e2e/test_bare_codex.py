"""Codex, a whole turn, on a server without any extra: a command is run and its end is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODEX = shutil.which("codex")
CONFIG = """\
model = "demo"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
"""


@pytest.mark.slow  # Codex starts twice as long as all the rest
@pytest.mark.skipif(CODEX is None, reason="no codex on the path")
def test_codex_runs_a_command_and_ends_its_turn(tmp_path: Path) -> None:
    assert CODEX is not None
    command = json.dumps({"cmd": "echo apple > notes.txt"})
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.bare_server", command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        (tmp_path / "config.toml").write_text(CONFIG.format(port=port))
        work = tmp_path / "work"
        work.mkdir()
        turn = subprocess.run(
            [CODEX, "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "Write it."],
            check=False,
            cwd=work,
            env=os.environ | {"CODEX_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    finally:
        server.kill()
        server.communicate()
    assert turn.returncode == 0, turn.stderr
    assert (work / "notes.txt").read_text() == "apple\n"
    assert "The word is in the file." in turn.stdout
