"""The head of a compiled plan: what it is, and which release made it.

Read without TensorRT and without a GPU; knows no more of the format than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.prepare.faults import refusal

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"vtrt"
VERSION_AT = slice(24, 28)
"""Measured on 1.7.1.116, whose plans say 1, 7, 1, 116 there."""
HEAD_BYTES = VERSION_AT.stop


def release_of(head: bytes, name: str) -> str:
    """The release in a plan's head, as `1.7.1.116`."""
    if len(head) < HEAD_BYTES or head[:4] != MAGIC:
        raise refusal(name, f"a head of {head[:4]!r}", f"{MAGIC!r}, a plan of TensorRT-RTX")
    return ".".join(map(str, head[VERSION_AT]))


def release_in(path: Path) -> str:
    with path.open("rb") as file:
        return release_of(file.read(HEAD_BYTES), path.name)
