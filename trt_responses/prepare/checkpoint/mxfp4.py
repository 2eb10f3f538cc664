"""MXFP4: blocks of 32 four-bit floats with one power-of-two scale. Unpack, and repack for ggml.

Knows the two layouts of a block; knows no tensor names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trt_responses.prepare.checkpoint.safetensors import Array

VALUES = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
    np.float32,
)
SCALE_BIAS = 127


def codes(blocks: Array) -> NDArray[np.uint8]:
    """[..., block, 16] bytes as [..., block, 32] codes: value 2j low in byte j, 2j+1 high."""
    pairs = np.asarray(blocks, np.uint8)
    found = np.empty((*pairs.shape[:-1], 32), np.uint8)
    found[..., 0::2] = pairs & 0x0F
    found[..., 1::2] = pairs >> 4
    return found


def dequantised(blocks: Array, scales: Array) -> NDArray[np.float32]:
    """[..., block, 16] and [..., block] as [..., block * 32] floats, exactly."""
    exponents = np.asarray(scales, np.uint8).astype(np.int32) - SCALE_BIAS
    values = np.ldexp(VALUES[codes(blocks)], exponents[..., None])
    return values.reshape(*values.shape[:-2], -1).astype(np.float32, copy=False)


def repacked(blocks: Array, scales: Array) -> NDArray[np.uint8]:
    """ggml's layout, [..., block * 17]: the scale, then value j low and value j + 16 high."""
    found = codes(blocks)
    packed = np.empty((*found.shape[:-1], 17), np.uint8)
    packed[..., 0] = scales
    packed[..., 1:] = found[..., :16] | (found[..., 16:] << 4)
    return packed.reshape(*packed.shape[:-2], -1)


def quantised(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Blocks and scales of [..., n * 32] floats, each value to the nearest code."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(groups).max(axis=-1)
    exponents = np.floor(np.log2(np.maximum(largest, 1e-30))).astype(np.int32) - 2
    scaled = np.ldexp(groups, -exponents[..., None])
    middles = (VALUES[:7] + VALUES[1:8]) / 2
    found = np.searchsorted(middles, np.abs(scaled)).astype(np.uint8)
    found |= (scaled < 0).astype(np.uint8) << 3
    blocks = found[..., 0::2] | (found[..., 1::2] << 4)
    return blocks, (exponents + SCALE_BIAS).clip(0, 254).astype(np.uint8)
