"""The commands of deploy/Dockerfile.cpu in an empty directory: a fresh environment with our wheel
alone, its engine, its server and its health check. What a package index gives is taken from the
environment of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest
from openai import AsyncOpenAI

from tests.support.asgi import PATIENCE_S
from tests.support.imports import ROOT
from tests.support.serving import Child

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "deploy" / "Dockerfile.cpu").read_text("utf-8").replace("\\\n", " ")
STAGES = re.split(r"^FROM .*$", TEXT, flags=re.MULTILINE)[1:]
# pip reads the last of these the wrong way round: 0 is "no isolation".
OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}


def lines(stage: str, word: str) -> list[str]:
    return re.findall(rf"^{word} +(.*)$", stage, flags=re.MULTILINE)


def environment(stage: str, home: Path) -> dict[str, str]:
    """What the stage sets, with its places in `home`."""
    pairs = [pair.split("=", 1) for line in lines(stage, "ENV") for pair in shlex.split(line)]
    set_here = {name: placed(value, home) for name, value in pairs}
    set_here["PATH"] = set_here.get("PATH", "$PATH").replace("$PATH", os.environ["PATH"])
    return {"HOME": "/nonexistent", **set_here}


def placed(text: str, home: Path) -> str:
    for place in ("/opt/trt-responses", "/srv", "/data"):
        text = text.replace(place, f"{home}{place}")
    return text


def run(command: str, cwd: Path, env: dict[str, str]) -> None:
    made = subprocess.run(["sh", "-ec", command], cwd=cwd, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.early(24)
def test_the_image_answers_by_its_own_commands(tmp_path: Path) -> None:
    _, build, final = STAGES
    source = tmp_path / "src"
    for line in lines(build, "COPY"):
        *names, target = line.split()
        for name in names:
            to = source / target / name if target == "./" else source / target
            to.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, to)
    env = environment(build, tmp_path) | OFFLINE
    [commands] = lines(build, "RUN")
    create, *rest = [placed(command.strip(), tmp_path) for command in commands.split("&&")]
    run(create.replace("python ", f"{sys.executable} ", 1), source, env)
    site = next((tmp_path / "opt/trt-responses/lib").glob("python*/site-packages"))
    (site / "index.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for command in rest:
        run(command, source, env)
    assert lines(final, "COPY") == [
        "--from=build /opt/trt-responses /opt/trt-responses",
        "--from=build /src/engines/demo /srv/engines/demo",
    ]
    shutil.copytree(source / "engines/demo", tmp_path / "srv/engines/demo")
    (tmp_path / "data").mkdir()
    shutil.rmtree(source)
    asyncio.run(served(final, tmp_path))


async def served(final: str, home: Path) -> None:
    changed = {
        "TRT_RESPONSES_HOST": "127.0.0.1",  # a test offers nothing to others
        "TRT_RESPONSES_PORT": "0",
        "TRT_RESPONSES_API_KEYS": "me:key",
    }
    env = environment(final, home) | changed
    [*_, command] = lines(final, "CMD")
    process = await asyncio.create_subprocess_exec(
        *json.loads(command),
        cwd=home / "srv",
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    child = Child(process)
    try:
        address = await child.ready()
        health = next(json.loads(c) for c in re.findall(r"CMD +(\[.*\])", final))
        health[-1] = health[-1].replace("127.0.0.1:8000", f"127.0.0.1:{address.port}")
        checked = await asyncio.create_subprocess_exec(*health, env=env, cwd=home)
        assert await asyncio.wait_for(checked.wait(), PATIENCE_S) == 0
        async with AsyncOpenAI(base_url=f"{address.url}/v1", api_key="key") as client:
            answer = await client.responses.create(
                model="demo", input="What is the capital of Norway?"
            )
        assert "Oslo" in answer.output_text
    finally:
        await child.kill()
