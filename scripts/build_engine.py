"""Prepare an engine for TensorRT-LLM: `python scripts/build_engine.py --checkpoint DIR`.

The same as `trt-responses engine build --kind trtllm`, for a launcher that starts a script. Ends
with status 0 when the engine is verified, 1 with a sentence when it cannot be, and 3 when this
machine could only plan it; then it says what it would take.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trt_responses.cli import main as cli

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    return cli.main(["engine", "build", "--kind", "trtllm", *given])


if __name__ == "__main__":
    sys.exit(main())
