"""A Hugging Face directory of a tiny random Qwen3, as its publisher's files are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.template_families import CONTROLS, FOLDER
from tests.support.tiny_gguf import CONTEXT, HIDDEN, tiny_vocabulary
from trt_responses.prepare.checkpoint.safetensors import (
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROWS = 512
"""Of the embedding: more than there are tokens, as publishers round up."""
CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "max_position_embeddings": CONTEXT,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "vocab_size": ROWS,
}


def write_tiny_hf(
    directory: Path,
    config: dict[str, Any] | None = None,
    *,
    dtype: str = "BF16",
    response_template: dict[str, Any] | None = None,
    template: str = "qwen3",
) -> Path:
    """The directory. `config` replaces fields of the usual one."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = CONFIG | (config or {})
    tokens, merges = tiny_vocabulary()
    controls = CONTROLS[template]
    added = [
        {
            "id": len(tokens) + place,
            "content": text,
            "special": text.startswith("<|"),
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for place, text in enumerate(controls)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": level | {"use_regex": True},
        "decoder": level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {text: place for place, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
    ends = [len(tokens) + controls.index(text) for text in ("<|im_end|>", "<|endoftext|>")]
    tokens_config: dict[str, Any] = {"eos_token": "<|im_end|>", "bos_token": None}
    if response_template is not None:
        tokens_config["response_template"] = response_template
    for name, content in (
        ("config.json", numbers),
        ("generation_config.json", {"eos_token_id": ends}),
        ("tokenizer_config.json", tokens_config),
        ("tokenizer.json", tokenizer),
    ):
        (directory / name).write_text(json.dumps(content), "utf-8")
    source = (FOLDER / f"{template}.jinja").read_text("utf-8")
    (directory / "chat_template.jinja").write_text(source, "utf-8")
    used = len(tokens) + len(controls)
    write_tensors(directory / "model.safetensors", _tensors(numbers, dtype, used))
    return directory


def _tensors(n: dict[str, Any], dtype: str, used: int) -> list[Tensor]:
    """Rows of the embedding that no token has are zero: a trained model says none of them."""
    random = np.random.default_rng(0)
    hidden, head, feed = n["hidden_size"], n["head_dim"], n["intermediate_size"]
    query, key = n["num_attention_heads"] * head, n["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (n["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(n["num_hidden_layers"]):
        parts = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key, hidden),
            "self_attn.v_proj": (key, hidden),
            "self_attn.o_proj": (hidden, query),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "mlp.gate_proj": (feed, hidden),
            "mlp.up_proj": (feed, hidden),
            "mlp.down_proj": (hidden, feed),
        }
        shapes |= {f"model.layers.{layer}.{k}.weight": shape for k, shape in parts.items()}
    if not n["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (n["vocab_size"], hidden)

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        values = (random.standard_normal(shape) * 0.4 + (len(shape) == 1)).astype(np.float32)
        if shape[0] == n["vocab_size"]:
            values[used:] = 0
        convert: dict[str, Any] = {"BF16": narrow, "F16": np.float16, "F32": np.float32}
        stored = convert[dtype](values)
        return Tensor(name, dtype, shape, lambda: stored)

    return [tensor(name, shape) for name, shape in shapes.items()]


def next_id(directory: Path, ids: Sequence[int]) -> int:
    """The likeliest id behind these, by the model's own arithmetic in numpy."""
    stored = read_tensors(directory / "model.safetensors")
    weights = {name: widen(tensor.read()).astype(np.float64) for name, tensor in stored.items()}
    config = json.loads((directory / "config.json").read_text("utf-8"))
    heads, head = config["num_attention_heads"], config["head_dim"]
    shared = heads // config["num_key_value_heads"]
    places = np.arange(len(ids))
    angles = places[:, None] * config["rope_theta"] ** (-np.arange(0, head, 2) / head)
    turn = np.concatenate([np.cos(angles)] * 2, -1)[:, None], np.sin(angles)[:, None]

    def norm(x: Any, name: str) -> Any:
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"])
        return x / scale * weights[f"{name}.weight"]

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T

    def turned(x: Any) -> Any:
        half = head // 2
        swung = np.concatenate([-x[..., half:] * turn[1], x[..., :half] * turn[1]], -1)
        return x * turn[0] + swung

    x = weights["model.embed_tokens.weight"][list(ids)]
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        y = norm(x, f"{block}.input_layernorm")
        q, k, v = (
            linear(y, f"{block}.self_attn.{name}_proj").reshape(len(ids), -1, head)
            for name in "qkv"
        )
        q = turned(norm(q, f"{block}.self_attn.q_norm"))
        k = turned(norm(k, f"{block}.self_attn.k_norm")).repeat(shared, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head)
        scores[:, places[:, None] < places[None]] = -np.inf
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", chances, v.repeat(shared, 1))
        x = x + linear(mixed.reshape(len(ids), -1), f"{block}.self_attn.o_proj")
        y = norm(x, f"{block}.post_attention_layernorm")
        gate = linear(y, f"{block}.mlp.gate_proj")
        active = gate / (1 + np.exp(-gate)) * linear(y, f"{block}.mlp.up_proj")
        x = x + linear(active, f"{block}.mlp.down_proj")
    logits = norm(x[-1], "model.norm") @ weights["model.embed_tokens.weight"].T
    return int(logits.argmax())
