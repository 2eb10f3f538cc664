"""An environment with the stand-in for TensorRT-LLM, and without the server and its packages."""

from __future__ import annotations

import venv
from pathlib import Path

import orjson

ROOT = Path(__file__).parents[3]
VERSION = "1.2.1"
ANSWER = (100, 101, 102)
PACKAGE = f"""
import sys
from tests.support.double.llm import Double
from tests.support.double.results import Script
from trt_responses.tokens.control import CONTROL

def says(prompt_ids, params):
    if params.guided_decoding is not None:
        return Script(((9, CONTROL.return_),))
    return Script(({ANSWER}, (CONTROL.return_,)))

sys.modules.update(Double(says, gpus=8).modules())
"""


def environment(directory: Path) -> Path:
    """The interpreter of a new environment."""
    venv.create(directory, symlinks=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "orjson").symlink_to(Path(orjson.__file__).parent)
    (packages / "tests").mkdir()
    (packages / "tests" / "support").symlink_to(ROOT / "tests" / "support")
    (packages / "tensorrt_llm.py").write_text(PACKAGE)
    facts = packages / f"tensorrt_llm-{VERSION}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: tensorrt-llm\nVersion: {VERSION}\n")
    return directory / "bin" / "python"
