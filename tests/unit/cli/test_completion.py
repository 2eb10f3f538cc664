"""Completion: what a Tab offers, and that each shell can load its script."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from trt_responses.cli.completion import SCRIPTS, candidates
from trt_responses.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path


def test_commands_options_and_choices() -> None:
    assert candidates([""]) == list(COMMANDS)
    assert candidates(["ro"]) == ["rollout"]
    assert "build" in candidates(["engine", ""])
    assert candidates(["serve", "--po"]) == ["--port"]
    assert candidates(["engine", "build", "--kind", "tr"]) == ["trtllm"]
    assert candidates(["serve", "--port", ""]) == []
    assert candidates(["--ver"]) == ["--version"]
    assert candidates(["nonsense", "x", "-"]) == ["-h", "--help", "--version"]


def test_prepared_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carded(tmp_path, "tiny")
    monkeypatch.setenv("TRT_RESPONSES_ENGINES_DIR", str(tmp_path))
    assert candidates(["serve", ""]) == ["tiny"]
    assert candidates(["serve", "--engine", "t"]) == ["tiny"]
    assert candidates(["engine", "show", "other"]) == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_completes(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on the path")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    program = '#!/bin/sh\n[ "$*" = "completion words -- engine bu" ] && echo build\n'
    (tmp_path / "trt-responses").write_text(program)
    (tmp_path / "trt-responses").chmod(0o755)
    script.write_text(capsys.readouterr().out)
    typed = {
        "bash": "source script; COMP_WORDS=(trt-responses engine bu); COMP_CWORD=2; "
        '_trt_responses; printf "%s\\n" "${COMPREPLY[@]}"',
        "zsh": "compdef() { :; }; compadd() { shift; print -l $@; }; source script; "
        "words=(trt-responses engine bu); CURRENT=3; _trt_responses",
        "fish": "source script; complete -C 'trt-responses engine bu'",
    }[shell]
    reply = subprocess.run(
        [shell, *(("-f",) if shell == "zsh" else ()), "-c", typed],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert reply.stdout.splitlines() == ["build"]
