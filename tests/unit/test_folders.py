"""The package without one of its folders: it serves, and refuses what the folder brought."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import ROOT
from tests.support.without import PACKAGE, REFUSED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROOMS = ("features", "apis", "engines", "stores", "tools", "dialects")
KEPT = {"stores.memory", "stores.at_rest"}
"""A part of the core, and what all stores share."""
FAST = ("features.conversations", "apis.chat", "engines.llamacpp")

SERVED = """\
import sys
from pathlib import Path
from trt_responses.app import create_app
from trt_responses.backends.engines import llamacpp_over
from trt_responses.settings import Settings
settings = Settings(store="sqlite:///kept.db", model="demo")
create_app(settings, engine=llamacpp_over(Path("model.gguf"), settings))
print(*sys.modules)
"""


def folders() -> set[str]:
    found = {
        f"{room}.{each.name}"
        for room in ROOMS
        for each in (ROOT / PACKAGE / room).iterdir()
        if (each / "__init__.py").exists()
    }
    return found - KEPT | {"fleet"}


def copy_without(folder: str, directory: Path) -> Path:
    """A copy of the package, of links; only what holds the folder is made anew."""
    room, _, left_out = folder.rpartition(".")
    for number, place in enumerate([PACKAGE, f"{PACKAGE}/{room}"] if room else [PACKAGE]):
        (directory / place).mkdir()
        gone = {"__pycache__", left_out if number or not room else room}
        for each in (ROOT / place).iterdir():
            if each.name not in gone:
                (directory / place / each.name).symlink_to(each)
    return directory


def serve_without(lacking: Sequence[str], tmp_path: Path) -> None:
    copies = {}
    for folder in lacking:
        directory = tmp_path / folder
        directory.mkdir()
        copies[folder] = str(copy_without(folder, directory))
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.without", json.dumps(copies)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.returncode == 0, child.stdout + child.stderr


def test_the_table_has_every_folder() -> None:
    assert set(REFUSED) == folders()


def test_the_package_serves_without_a_folder(tmp_path: Path) -> None:
    serve_without(FAST, tmp_path)


def test_a_server_loads_what_its_settings_ask_for_and_no_more(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    loaded = subprocess.check_output([sys.executable, "-c", SERVED], cwd=tmp_path, env=env).split()
    names = {name.decode().removeprefix(f"{PACKAGE}.") for name in loaded}
    rooms = ("engines", "stores", "tools", "dialects")
    found = {each for each in folders() if each.startswith(rooms) and each in names}
    assert found == {"engines.llamacpp", "stores.sqlite"}


@pytest.mark.slow  # as many starts as there are folders
@pytest.mark.early(19)
@pytest.mark.parametrize("room", [*ROOMS, "fleet"])
def test_the_package_serves_without_any_folder(room: str, tmp_path: Path) -> None:
    serve_without([each for each in sorted(folders()) if each.startswith(room)], tmp_path)
