"""The demo's weights as `make engine` converts them: `python -m tests.support.demo_file TARGET`.

A process of its own, since it takes 270 MB for a while.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts.demo.wordings import SOURCE
from scripts.gguf_model import convert
from tests.support.tokens import vocabulary
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import expand


def write(target: Path) -> None:
    """Whole or not at all. The checkpoint stands beside it meanwhile."""
    grown, part = target.with_suffix(""), target.with_suffix(".part")
    expand(SOURCE, grown)
    convert(open_checkpoint(grown), part, vocabulary(), weight_type="q8_0")
    part.rename(target)
    shutil.rmtree(grown)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
