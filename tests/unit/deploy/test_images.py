"""What an image copies is enough to build the package, wherever the tests run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.support.images import gather
from tests.support.imports import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile"])
def test_the_wheel_can_be_built_from_what_an_image_copies(name: str, tmp_path: Path) -> None:
    source = gather(ROOT / "deploy" / name, tmp_path / "src")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    made = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert "trt_responses/prepare/demo-source/compact.safetensors" in packed.namelist()
