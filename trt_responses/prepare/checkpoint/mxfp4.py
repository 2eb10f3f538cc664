"""MXFP4: unpack blocks of 32 four-bit floats with one power-of-two scale, and repack for ggml.
Works on arrays of bytes, in the two layouts of a block.
"""

from __future__ import annotations

import numpy as np

from trt_responses.prepare.checkpoint.safetensors import Array, Bytes, Floats

VALUES = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
    np.float32,
)
SCALE_BIAS = 127


def codes(blocks: Array) -> Bytes:
    """The codes of [..., block, 16] bytes as [..., block, 32]: value 2j is low in byte j, value
    2j+1 high."""
    pairs = np.asarray(blocks, np.uint8)
    found = np.empty((*pairs.shape[:-1], 32), np.uint8)
    found[..., 0::2] = pairs & 0x0F
    found[..., 1::2] = pairs >> 4
    return found


def dequantised(blocks: Array, scales: Array) -> Floats:
    """The floats of [..., block, 16] bytes and [..., block] scales as [..., block * 32],
    exactly."""
    exponents = np.asarray(scales, np.uint8).astype(np.int32) - SCALE_BIAS
    values = np.ldexp(VALUES[codes(blocks)], exponents[..., None])
    return values.reshape(*values.shape[:-2], -1).astype(np.float32, copy=False)


def repacked(blocks: Array, scales: Array) -> Bytes:
    """The blocks in ggml's layout, [..., block * 17]: the scale, then value j low and value j + 16
    high."""
    found = codes(blocks)
    packed = np.empty((*found.shape[:-1], 17), np.uint8)
    packed[..., 0] = scales
    packed[..., 1:] = found[..., :16] | (found[..., 16:] << 4)
    return packed.reshape(*packed.shape[:-2], -1)
