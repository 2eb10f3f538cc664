"""The gpt-oss forward pass in NumPy, float32: the reference that engines are compared with.
Independent of every engine, and slow: only tests and `doctor --deep` run it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trt_responses.prepare.checkpoint.architecture import SWIGLU_LIMIT, Architecture
from trt_responses.prepare.checkpoint.mxfp4 import dequantised
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.checkpoint.safetensors import Floats, widen

Mask = NDArray[np.bool_]

SWIGLU_ALPHA = 1.702


class Reference:
    """The forward pass of one checkpoint. `truncate` rounds the YaRN range outwards, as llama.cpp
    does."""

    def __init__(self, checkpoint: Checkpoint, *, truncate: bool | None = None) -> None:
        self._checkpoint = checkpoint
        self._a = checkpoint.architecture
        self._truncate = self._a.truncate if truncate is None else truncate

    def logprobs(self, token_ids: Sequence[int], *, last: int = 1) -> Floats:
        """Log probabilities over the whole vocabulary: one row for each of the last positions."""
        logits = self.logits(token_ids, last=last)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        total = np.log(np.exp(shifted, dtype=np.float64).sum(axis=-1, keepdims=True))
        found: Floats = (shifted - total).astype(np.float32)
        return found

    def logits(self, token_ids: Sequence[int], *, last: int = 1) -> Floats:
        embedding = self._checkpoint.tensors["model.embed_tokens.weight"].read()
        hidden = widen(embedding[np.asarray(token_ids)])
        turn = rotations(self._a, len(token_ids), truncate=self._truncate)
        for n in range(self._a.layers):
            hidden = hidden + self._attention(n, hidden, turn)
            hidden = hidden + self._experts(n, hidden)
        found: Floats = (
            self._normed(hidden[-last:], "model.norm.weight") @ self._weight("lm_head.weight").T
        )
        return found

    def _weight(self, name: str) -> Floats:
        return widen(self._checkpoint.tensors[name].read())

    def _normed(self, hidden: Floats, name: str) -> Floats:
        mean = np.mean(hidden * hidden, axis=-1, keepdims=True)
        found: Floats = hidden / np.sqrt(mean + np.float32(self._a.rms_eps)) * self._weight(name)
        return found

    def _linear(self, values: Floats, name: str) -> Floats:
        return values @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _attention(self, n: int, hidden: Floats, turn: tuple[Floats, Floats]) -> Floats:
        a, prefix = self._a, f"model.layers.{n}.self_attn"
        x = self._normed(hidden, f"model.layers.{n}.input_layernorm.weight")
        count = len(x)
        q, k, v = (
            self._linear(x, f"{prefix}.{letter}_proj").reshape(count, -1, a.head_dim)
            for letter in "qkv"
        )
        group = a.heads // a.kv_heads
        k, v = (np.repeat(half, group, axis=1) for half in (rotated(k, turn), v))
        scores = np.einsum("ihd,jhd->hij", rotated(q, turn), k) / math.sqrt(a.head_dim)
        scores = np.where(visible(count, a.sliding_window if n % 2 == 0 else None), scores, -np.inf)
        weights = softmax_with_sink(scores, self._weight(f"{prefix}.sinks"))
        mixed = np.einsum("hij,jhd->ihd", weights, v).reshape(count, -1)
        return self._linear(mixed.astype(np.float32), f"{prefix}.o_proj")

    def _experts(self, n: int, hidden: Floats) -> Floats:
        prefix = f"model.layers.{n}"
        x = self._normed(hidden, f"{prefix}.post_attention_layernorm.weight")
        scores = self._linear(x, f"{prefix}.mlp.router")
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : self._a.experts_per_token]
        picked = np.take_along_axis(scores, chosen, axis=-1)
        shares = np.exp(picked - picked.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        out = np.zeros_like(x)
        for expert in range(self._a.experts):
            rows, ranks = np.nonzero(chosen == expert)
            if rows.size:
                out[rows] += shares[rows, ranks, None] * self._expert(prefix, expert, x[rows])
        return out

    def _expert(self, prefix: str, expert: int, x: Floats) -> Floats:
        both = self._projected(f"{prefix}.mlp.experts.gate_up_proj", expert, x)
        return self._projected(f"{prefix}.mlp.experts.down_proj", expert, clamped_swiglu(both))

    def _projected(self, name: str, expert: int, x: Floats) -> Floats:
        tensors = self._checkpoint.tensors
        if self._a.packed:
            blocks, scales = (tensors[f"{name}_{part}"].read() for part in ("blocks", "scales"))
            weight = dequantised(blocks[expert], scales[expert]).T
        else:
            weight = widen(tensors[name].read()[expert])
        return x @ weight + widen(tensors[f"{name}_bias"].read()[expert])


def rotations(a: Architecture, count: int, *, truncate: bool) -> tuple[Floats, Floats]:
    """Cosine and sine for each position and pair, with YaRN's stretch and attention factor in
    them."""
    half = a.head_dim // 2
    plain = a.rope_theta ** (-np.arange(half) / half)
    low, high = (_pair_that_turns(a, beta) for beta in (a.beta_fast, a.beta_slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, a.head_dim - 1)
    stretched = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
    frequencies = plain * (1 - stretched) + plain / a.rope_factor * stretched
    angles = np.arange(count)[:, None] * frequencies
    factor = 0.1 * math.log(a.rope_factor) + 1
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(
        np.float32
    )


def _pair_that_turns(a: Architecture, beta: float) -> float:
    """The pair of dimensions that turns `beta` times within the original context."""
    turns = a.rope_original_context / (beta * 2 * math.pi)
    return a.head_dim * math.log(turns) / (2 * math.log(a.rope_theta))


def rotated(x: Floats, turn: tuple[Floats, Floats]) -> Floats:
    """The rotated heads: the first half of each turned against the second."""
    cos, sin = (part[:, None, :] for part in turn)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def visible(count: int, window: int | None) -> Mask:
    """A mask of the positions that each position sees: itself and earlier ones, as far back as the
    window."""
    distance = np.arange(count)[:, None] - np.arange(count)
    seen: Mask = distance >= 0
    return seen if window is None else seen & (distance < window)


def softmax_with_sink(scores: Floats, sinks: Floats) -> Floats:
    """The softmax of the scores. Each head's learned sink adds to the sum and has no output."""
    sink = sinks[:, None, None]
    top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    shares = np.exp(scores - top)
    found: Floats = shares / (shares.sum(axis=-1, keepdims=True) + np.exp(sink - top))
    return found


def clamped_swiglu(both: Floats) -> Floats:
    """The clamped SwiGLU: the gate in the even columns, clamped above; the linear half in the odd
    ones, clamped, plus one."""
    gate = np.minimum(both[..., 0::2], SWIGLU_LIMIT)
    linear = np.clip(both[..., 1::2], -SWIGLU_LIMIT, SWIGLU_LIMIT)
    gated: Floats = gate / (1 + np.exp(-SWIGLU_ALPHA * gate)) * (linear + 1)
    return gated
