"""A checkpoint of gpt-oss as a GGUF file, in one call: for tests and measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.prepare.llamacpp.gguf import plan, write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.tokens.vocabulary import Vocabulary


def convert(
    checkpoint: Checkpoint,
    target: Path,
    vocabulary: Vocabulary,
    *,
    weight_type: WeightType = "bf16",
    unpack: bool = False,
    advance: Callable[[int], object] = lambda size_bytes: None,
) -> str:
    """Write the file, and return its SHA-256.

    `unpack` dequantises MXFP4, so that an engine's other errors can be measured alone.
    """
    tensors = plan(checkpoint, weight_type, unpack=unpack)
    return write_gguf(tensors, checkpoint.architecture, target, vocabulary, advance)


def planned_bytes(checkpoint: Checkpoint, weight_type: WeightType) -> int:
    """The bytes of the file's tensors."""
    return sum(tensor.size_bytes for tensor in plan(checkpoint, weight_type))
