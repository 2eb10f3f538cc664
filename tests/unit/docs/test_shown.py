"""Commands that cannot run here are checked as far as it goes: flags, targets, syntax, files."""

from __future__ import annotations

import ast
import io
import re
import shlex
import shutil
import subprocess
import tomllib
from contextlib import redirect_stdout
from functools import cache
from typing import TYPE_CHECKING

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from scripts.docs_blocks import PAGES, blocks
from tests.support.pages import ROOT
from trt_responses.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.docs_blocks import Block

COMMAND = re.compile(
    r"(?:^|[\s/])trt-responses "
    r"((?:serve|engine|keys|chat|export|explain|drain|doctor)\b[^|&;>#\n)]*)"
)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
SHELL = [block for page in PAGES for block in blocks(page) if block.language == "sh"]


DEPTH = {"engine": 2, "keys": 2, "export": 2}
"""Words that name a command; the others have one."""


def commands(block: Block) -> Iterator[list[str]]:
    """The words behind `trt-responses`, of each command line that a block shows."""
    for found in COMMAND.findall(block.text.replace("\\\n", " ")):
        yield shlex.split(found.partition(" #")[0].replace('"', ""))


@cache
def help_of(*command: str) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown), pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    return shown.getvalue()


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_have_the_flags_that_are_shown(block: Block) -> None:
    for words in commands(block):
        depth = 3 if words[1:2] == ["adapter"] else DEPTH.get(words[0], 1)
        flags = [word.partition("=")[0] for word in words if word.startswith("-")]
        known = help_of(*words[:depth])
        assert [one for one in flags if not re.search(rf"(?<!\S){one}\b", known)] == [], words


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_make_has_the_targets_that_are_shown(block: Block) -> None:
    named = re.findall(r"^make ([a-z-]+)", block.text, re.M)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_the_shell_can_parse_every_command(block: Block) -> None:
    parsed = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert parsed.returncode == 0, parsed.stderr


def test_files_that_a_reader_saves_can_be_parsed() -> None:
    parsers = {
        "python": ast.parse,
        "toml": tomllib.loads,
        "yaml": yaml.safe_load,
    }
    saved = [block for page in PAGES for block in blocks(page) if block.mark == "file"]
    assert {block.page.name for block in saved} >= {"first-agent.md", "codex.md", "production.md"}
    for block in saved:
        parsers.get(block.language, str)(block.text)


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if (systemd := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze on this machine")
    (unit,) = [b for p in PAGES for b in blocks(p) if (b.marked or "").endswith("@.service")]
    path = tmp_path / "trt-responses@8001.service"
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.text, flags=re.M))
    verified = subprocess.run([systemd, "verify", path], capture_output=True, text=True)
    about_this = [line for line in verified.stderr.splitlines() if path.name in line]
    assert about_this == []
