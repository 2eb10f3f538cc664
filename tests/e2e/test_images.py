"""The images as their Dockerfiles build them, in machines of the tests' own: the server starts as
the image's user, can write nowhere but where the image lets it, is healthy and answers."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.images import Build, steps
from tests.support.imports import ROOT
from tests.support.machine import why_not
from tests.support.processes import children_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.images import Image

DEPLOY = ROOT / "deploy"
QUESTION = {"model": "demo", "input": "What is the capital of Norway?"}

pytestmark = [
    pytest.mark.skipif(why_not("curl") is not None, reason=str(why_not("curl"))),
    pytest.mark.xdist_group("embedded"),
]


@contextmanager
def running(image: Image, **settings: str) -> Iterator[None]:
    """Runs it from when it says that it is ready; it must end well."""
    with subprocess.Popen(image.started(**settings), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert b" is ready; try: " in server.stdout.readline()
            yield
        finally:
            for process in children_of(server.pid):  # nsenter passes no signal on
                os.kill(process, signal.SIGTERM)
    assert server.returncode == 0


def answer(image: Image) -> str:
    image.is_healthy()
    made: dict[str, Any] = image.machine.ask("http://127.0.0.1:8000/v1/responses", QUESTION, "key")
    return str(made["output"][-1]["content"][0]["text"])


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile"])
def test_an_image_builds_from_what_it_copies_and_answers_as_its_user(
    name: str, tmp_path: Path
) -> None:
    """The engine that the GPU image is for cannot run here: it serves a demo that lies in its
    volume instead. Budget: 90 s each."""
    with ExitStack() as stack:
        image = Build(DEPLOY / name, tmp_path, stack).stage()
        if name == "Dockerfile":
            engines = image.env["TRT_RESPONSES_ENGINES_DIR"]
            build = ["trt-responses", "engine", "build", "--name", "demo"]
            image.machine.run([*build, "--engines-dir", engines], env=image.env)
        image.machine.close_files(*image.volumes)
        with running(image, TRT_RESPONSES_API_KEYS="me:key"):
            assert "Oslo" in answer(image)


def test_what_the_images_pin_by_hand_is_what_the_constraints_say() -> None:
    constraints = (DEPLOY.parent / "constraints.txt").read_text("utf-8").split()
    commands = " ".join(rest for word, rest in steps(DEPLOY / "Dockerfile") if word == "RUN")
    [orjson] = [word for word in commands.split() if word.startswith("orjson==")]
    assert orjson in constraints
