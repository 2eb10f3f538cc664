"""The gpt-oss architecture in torch, over the compact vocabulary.

Knows the maths of gpt_oss and its tensor names; knows no data and no training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from trt_responses.prepare.demo_rows import PROPERTIES, WIDTH
from trt_responses.tokens.control import FIRST_CONTROL_ID

UNUSED_MARGIN = 5.0
"""Nats by which training overstates the unused ids, so that they are rarer than it believes."""

NOTE = (
    "A tiny demo model of 1.9 million parameters: it shows what the server does, and knows next to "
    "nothing."
)
"""What users are to know of it: the server says it once, wherever one begins."""

SINK_WIDTH = 8
"""Dimensions that the sink adds to a head: one is used, the others keep it aligned."""
LONG = 512


@dataclass(frozen=True, slots=True)
class Shape:
    """The figures of `config.json` that the maths needs."""

    hidden: int = 128
    intermediate: int = 64
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 4
    experts_per_token: int = 2
    window: int = 128
    rope_theta: float = 150_000.0
    rope: dict[str, float] = field(
        default_factory=lambda: {
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        }
    )
    eps: float = 1e-5
    limit: float = 7.0
    vocabulary: int = 201_088

    def config(self) -> dict[str, object]:
        """An ordinary Hugging Face configuration."""
        kinds = ("sliding_attention", "full_attention")
        return {
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "attention_bias": True,
            "attention_dropout": 0.0,
            "eos_token_id": 200_002,
            "pad_token_id": 199_999,
            "experts_per_token": self.experts_per_token,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initial_context_length": 4096,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "layer_types": [kinds[i % 2] for i in range(self.layers)],
            "max_position_embeddings": 131_072,
            "num_attention_heads": self.heads,
            "num_experts_per_tok": self.experts_per_token,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "num_local_experts": self.experts,
            "output_router_logits": False,
            "rms_norm_eps": self.eps,
            "rope_scaling": {**self.rope, "rope_type": "yarn", "truncate": False},
            "rope_theta": self.rope_theta,
            "router_aux_loss_coef": 0.9,
            "sliding_window": self.window,
            "swiglu_limit": self.limit,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": self.vocabulary,
            "trt_responses": {"note": NOTE, "temperature": 0.0, "strict_tools": True},
        }


def rotation(shape: Shape, length: int, *, truncate: bool) -> Tensor:
    """YaRN's cosines and sines, [2, length, head_dim / 2]. Some engines round the range."""
    dim, base = shape.head_dim, shape.rope_theta
    original = shape.rope["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(shape.rope["beta_fast"]), pair_of(shape.rope["beta_slow"])
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    pairs = torch.arange(dim // 2, dtype=torch.float32)
    slow = ((pairs - low) / (high - low)).clamp(0, 1)
    frequency = base ** (-2 * pairs / dim)
    frequency = frequency * (1 - slow) + frequency / shape.rope["factor"] * slow
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequency
    scale = 0.1 * math.log(shape.rope["factor"]) + 1
    return torch.stack((angles.cos(), angles.sin())) * scale


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """x: [batch, length, heads, head_dim], its halves paired."""
    cos, sin = turn[0][:, None], turn[1][:, None]
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):  # type: ignore[misc]  # torch may have no types here
    def __init__(self, shape: Shape, *, sliding: bool) -> None:
        super().__init__()
        self.shape, self.sliding = shape, sliding
        wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.widths = (wide, narrow, narrow)
        self.qkv_proj = nn.Linear(shape.hidden, sum(self.widths))
        self.o_proj = nn.Linear(wide, shape.hidden)
        self.sinks = nn.Parameter(torch.zeros(shape.heads))

    def forward(self, x: Tensor, turn: Tensor, masks: tuple[Tensor, Tensor]) -> Tensor:
        shape, (batch, length, _) = self.shape, x.shape
        group = shape.heads // shape.kv_heads
        q, k, v = (
            each.view(batch, length, -1, shape.head_dim)
            for each in self.qkv_proj(x).split(self.widths, dim=-1)
        )
        q, k = rotate(q, turn), rotate(k, turn)
        k, v = (each.transpose(1, 2).repeat_interleave(group, dim=1) for each in (k, v))
        out = attend(*self._with_sink(q.transpose(1, 2), k, v), masks[self.sliding])
        out = out[..., : shape.head_dim].transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(out)

    def parts(self, head: int) -> tuple[list[Tensor], list[Tensor]]:
        """Views of one query head's weights and biases: query, and its group's key and value."""
        size, kv = self.shape.head_dim, head * self.shape.kv_heads // self.shape.heads
        starts = (head, self.shape.heads + kv, self.shape.heads + self.shape.kv_heads + kv)
        slices = [slice(start * size, (start + 1) * size) for start in starts]
        proj = self.qkv_proj
        return [proj.weight[s] for s in slices], [proj.bias[s] for s in slices]

    def _with_sink(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One more key, whose score with every query is the head's sink and whose value is zero."""
        scale = self.shape.head_dim**-0.5
        sinks = self.sinks[None, :, None, None].expand(*q.shape[:3], 1) / scale
        q = torch.cat((q, functional.pad(sinks, (0, SINK_WIDTH - 1)).to(q.dtype)), dim=-1) * scale
        k, v = (functional.pad(each, (0, SINK_WIDTH, 0, 1)) for each in (k, v))
        one = torch.zeros_like(k[0, 0])
        one[-1, self.shape.head_dim] = 1
        return q, k + one, v


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Short rows are faster by plain products, long ones would not fit in memory."""
    if q.shape[2] > LONG and q.device.type == "cpu":
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask.to(q.dtype), scale=1.0
        )
    scores = q @ k.transpose(-1, -2) + mask
    return scores.softmax(-1, dtype=q.dtype) @ v


class Experts(nn.Module):  # type: ignore[misc]  # torch may have no types here
    """Every expert for every token, weighted by the router's choice: few and small enough."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        count, hidden, inner = shape.experts, shape.hidden, shape.intermediate
        self.router = nn.Linear(hidden, count)
        self.gate_proj = nn.Linear(hidden, count * inner)
        self.up_proj = nn.Linear(hidden, count * inner)
        self.down_proj = nn.Parameter(torch.randn(count * inner, hidden) * 0.3 * inner**-0.5)
        self.down_proj_bias = nn.Parameter(torch.zeros(count, hidden))
        for linear in (self.gate_proj, self.up_proj):
            nn.init.normal_(linear.weight, std=hidden**-0.5)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        shape, flat = self.shape, x.reshape(-1, x.shape[-1])
        best, chosen = self.router(flat).float().topk(shape.experts_per_token, dim=-1)
        share = torch.zeros(len(flat), shape.experts, device=x.device)
        share = share.scatter(1, chosen, best.softmax(-1)).to(x.dtype)
        gate = self.gate_proj(flat).clamp(max=shape.limit)
        up = self.up_proj(flat).clamp(-shape.limit, shape.limit)
        gated = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        gated = gated.view(-1, shape.experts, shape.intermediate) * share[:, :, None]
        out = gated.flatten(1) @ self.down_proj + share @ self.down_proj_bias.to(x.dtype)
        return out.view(x.shape)


class Norm(nn.Module):  # type: ignore[misc]  # torch may have no types here
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.eps = shape.eps

    def forward(self, x: Tensor) -> Tensor:
        kind = torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype
        return functional.rms_norm(x.float(), x.shape[-1:], self.weight, self.eps).to(kind)


class Layer(nn.Module):  # type: ignore[misc]  # torch may have no types here
    def __init__(self, shape: Shape, *, sliding: bool) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(shape), Norm(shape)
        self.self_attn = Attention(shape, sliding=sliding)
        self.mlp = Experts(shape)

    def forward(self, x: Tensor, turn: Tensor, masks: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, masks)
        return x + self.mlp(self.post_attention_layernorm(x))


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """Tokens without a row of their own, for one batch: their pictures and properties, and by how
    much each stands for others, in nats. Rows behind the model's own are theirs, in this order."""

    pictures: Tensor
    properties: Tensor
    offsets: Tensor


class Made(nn.Module):  # type: ignore[misc]  # torch may have no types here
    """Makes rows out of pictures and properties."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(hidden, WIDTH))
        self.properties = nn.Parameter(torch.zeros(PROPERTIES, hidden))

    def forward(self, extra: ExtraRows) -> Tensor:
        return extra.pictures @ self.matrix.T + extra.properties @ self.properties


class Model(nn.Module):  # type: ignore[misc]  # torch may have no types here
    """`rows`: used ids, and one last row that stands for all control ids among the others. Rows
    behind them are made, for the tokens of a batch that have none."""

    def __init__(self, shape: Shape, rows: int) -> None:
        super().__init__()
        self.made_embed, self.made_head = Made(shape.hidden), Made(shape.hidden)
        self.shape, self.rows = shape, rows
        self.embed_tokens = nn.Embedding(rows, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, sliding=i % 2 == 0) for i in range(shape.layers))
        self.norm = Norm(shape)
        self.lm_head = nn.Linear(shape.hidden, rows, bias=False)
        unused = math.log(shape.vocabulary - FIRST_CONTROL_ID) + UNUSED_MARGIN
        self.register_buffer("unused", torch.eye(rows)[-1] * unused, persistent=False)

    def forward(self, rows: Tensor, turn: Tensor, extra: ExtraRows) -> Tensor:
        """Hidden states, normed; `logits` takes those that count."""
        masks = self._masks(rows.shape[1], rows.device)
        x = functional.embedding(
            rows, torch.cat((self.embed_tokens.weight, self.made_embed(extra)))
        )
        for layer in self.layers:
            x = layer(x, turn, masks)
        return self.norm(x)

    def logits(self, hidden: Tensor, extra: ExtraRows) -> Tensor:
        heads = torch.cat((self.lm_head.weight, self.made_head(extra)))
        offsets = torch.cat((self.unused, extra.offsets))
        return functional.linear(hidden, heads, offsets).float()

    def _masks(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        apart = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)
        never = torch.tensor(-30_000.0, dtype=torch.bfloat16, device=device)
        full = torch.where(apart >= 0, never * 0, never)
        near = torch.where((apart >= 0) & (apart < self.shape.window), never * 0, never)
        return functional.pad(full, (0, 1)), functional.pad(near, (0, 1))
