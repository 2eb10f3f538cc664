"""The program of TensorRT-LLM's own process, which may run in another environment than the server.

It needs that package, orjson and the standard library: imports here must ask for no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trt_responses.engines.remote.child import host
from trt_responses.engines.trtllm.engine import TrtLlmEngine


def main() -> None:
    """The program of the process."""
    host(_engine_from)


def _engine_from(given: dict[str, Any]) -> TrtLlmEngine:
    return TrtLlmEngine(
        Path(given["checkpoint"]),
        given["arguments"],
        variables=given["variables"],
        end_id=given["end_id"],
        adapters={name: Path(path) for name, path in given["adapters"].items()},
    )


if __name__ == "__main__":
    main()
