"""A Hugging Face directory of Qwen3 (dense), as the contents of a GGUF file.
Weights keep their type (bfloat16, float16 or float32); vectors become float32, as llama.cpp
requires. Refuses a config with other fields that change the model. Reads JSON and headers; executes
nothing, and does not interpret the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.language import MOST_TOKENS, language_of
from trt_responses.prepare.checkpoint.open import (
    MAX_CONFIG_BYTES,
    checkpoint_name,
    config_number,
    indexed,
    inside,
    json_object,
    refuse_pickles,
)
from trt_responses.prepare.checkpoint.safetensors import Array, Tensor, widen
from trt_responses.prepare.faults import WrongInput, refusal, shown

Json = Mapping[str, Any]

MODEL_TYPE = "qwen3"
HARMONY = "gpt_oss"
KINDS = {"BF16": Kind.BF16, "F16": Kind.F16, "F32": Kind.F32}
MAX_LAYERS = 1000
"""The most layers: a bound on the list of names that a hostile config can ask for."""
FIXED: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (False, None),
    "hidden_act": ("silu", None),
    "use_sliding_window": (False, None),
    "rope_scaling": (None,),
    "quantization_config": (None,),
    "auto_map": (None,),
}
"""Fields with fixed values (None: may be absent)."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the model that llama.cpp needs, apart from the weights."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    context: int
    tokens: int
    rms_eps: float
    rope_theta: float
    tied: bool
    """Whether the output matrix is the embedding."""


@dataclass(frozen=True, slots=True)
class Qwen3Checkpoint:
    """A checked directory; `tensors` by llama.cpp's names."""

    path: Path
    name: str
    numbers: Numbers
    tensors: Mapping[str, Tensor]
    files: tuple[Path, ...]
    vocabulary: Json
    """The keys of its tokens and its chat template, as in a GGUF file."""
    layout: Literal["hf"] = "hf"
    architecture: None = None
    region: None = None
    model: str = MODEL_TYPE
    """llama.cpp's name of the architecture."""

    @property
    def context(self) -> int:
        return self.numbers.context

    @property
    def size_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.tensors.values())

    def add_head(self, writer: gguf.GGUFWriter, renamed: Mapping[str, object]) -> None:
        """Write the numbers, the tokens and the table of the tensors."""
        n = self.numbers
        writer.add_block_count(n.layers)
        writer.add_context_length(n.context)
        writer.add_embedding_length(n.hidden)
        writer.add_feed_forward_length(n.feed_forward)
        writer.add_head_count(n.heads)
        writer.add_head_count_kv(n.kv_heads)
        writer.add_key_length(n.head)
        writer.add_value_length(n.head)
        writer.add_layer_norm_rms_eps(n.rms_eps)
        writer.add_rope_freq_base(n.rope_theta)
        for key, value in {**self.vocabulary, **renamed}.items():
            if key.startswith("tokenizer.ggml."):
                _add(writer, key, value)
        for name, tensor in self.tensors.items():
            data_type = np.dtype(np.float32)  # ignored beside the kind, unless it is uint8
            size_bytes = self._stored_bytes(tensor)
            writer.add_tensor_info(name, tensor.shape, data_type, size_bytes, _kind(tensor))

    def values(self) -> Iterator[Array]:
        """The values of each tensor, in the table's order."""
        for tensor in self.tensors.values():
            values = tensor.read()
            yield widen(values) if _kind(tensor) == Kind.F32 else values

    def _stored_bytes(self, tensor: Tensor) -> int:
        size = int(np.prod(tensor.shape, dtype=np.int64))
        return size * (4 if _kind(tensor) == Kind.F32 else 2)


def open_qwen3(directory: Path) -> Qwen3Checkpoint | None:
    """The directory; None for gpt-oss in either layout and for a directory without a checkpoint.
    Refuses any other model by name."""
    if not (directory / "config.json").is_file():
        return None
    config = json_object(directory, "config.json", MAX_CONFIG_BYTES)
    if _is_gpt_oss(config):
        return None
    refuse_pickles(directory)
    numbers = _numbers(config)
    tensors, files = indexed(directory)
    named = _named(tensors, numbers)
    vocabulary, read = language_of(directory, config, numbers.tokens)
    paths = (inside(directory, "config.json"), *files, *read)
    return Qwen3Checkpoint(directory, checkpoint_name(directory), numbers, named, paths, vocabulary)


def check_model_type(directory: Path) -> None:
    """Refuse a directory whose `config.json` is of a model that this package does not convert."""
    _is_gpt_oss(json_object(directory, "config.json", MAX_CONFIG_BYTES))


def _is_gpt_oss(config: Json) -> bool:
    """Whether a config is of gpt-oss; False for Qwen3. Refuses others."""
    if (found := config.get("model_type", HARMONY)) not in (HARMONY, MODEL_TYPE):
        raise WrongInput(
            f"config.json, model_type: found {shown(found)}, expected {HARMONY} or {MODEL_TYPE}; "
            "for another model with a chat template, convert it to GGUF with llama.cpp's "
            "convert_hf_to_gguf.py and give that file, or serve it with TensorRT-LLM "
            "(`--kind trtllm`)."
        )
    return bool(found == HARMONY)


def _numbers(config: Json) -> Numbers:
    for key, lawful in FIXED.items():
        if config.get(key) not in lawful:
            raise refusal(f"config.json, {key}", shown(config[key]), shown(lawful[0]))
    rope = config.get("rope_parameters") or {}
    kind = rope.get("rope_type", "default") if isinstance(rope, dict) else shown(rope)
    if kind != "default":
        raise refusal("config.json, rope_parameters", shown(kind), "default")

    def real(key: str, found: object) -> float:
        if type(found) not in (int, float) or not 0 < float(found) < 1e12:  # type: ignore[arg-type]
            raise refusal(f"config.json, {key}", shown(found), "a positive number")
        return float(found)  # type: ignore[arg-type]

    made = Numbers(
        layers=config_number(config, "num_hidden_layers"),
        hidden=config_number(config, "hidden_size"),
        feed_forward=config_number(config, "intermediate_size"),
        heads=config_number(config, "num_attention_heads"),
        kv_heads=config_number(config, "num_key_value_heads"),
        head=config_number(config, "head_dim"),
        context=config_number(config, "max_position_embeddings"),
        tokens=config_number(config, "vocab_size"),
        rms_eps=real("rms_norm_eps", config.get("rms_norm_eps")),
        rope_theta=real("rope_theta", rope.get("rope_theta", config.get("rope_theta"))),
        tied=config.get("tie_word_embeddings") is True,
    )
    for key, found, most in (
        ("num_hidden_layers", made.layers, MAX_LAYERS),
        ("vocab_size", made.tokens, MOST_TOKENS),
    ):
        if found > most:
            raise refusal(f"config.json, {key}", found, f"at most {most}")
    return made


# --- weights ----------------------------------------------------------------------------------


def _shapes(n: Numbers) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of such a checkpoint, by name."""
    query, key = n.heads * n.head, n.kv_heads * n.head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (n.tokens, n.hidden)}
    for layer in range(n.layers):
        block = f"model.layers.{layer}"
        shapes |= {
            f"{block}.input_layernorm.weight": (n.hidden,),
            f"{block}.self_attn.q_proj.weight": (query, n.hidden),
            f"{block}.self_attn.k_proj.weight": (key, n.hidden),
            f"{block}.self_attn.v_proj.weight": (key, n.hidden),
            f"{block}.self_attn.o_proj.weight": (n.hidden, query),
            f"{block}.self_attn.q_norm.weight": (n.head,),
            f"{block}.self_attn.k_norm.weight": (n.head,),
            f"{block}.post_attention_layernorm.weight": (n.hidden,),
            f"{block}.mlp.gate_proj.weight": (n.feed_forward, n.hidden),
            f"{block}.mlp.up_proj.weight": (n.feed_forward, n.hidden),
            f"{block}.mlp.down_proj.weight": (n.hidden, n.feed_forward),
        }
    shapes["model.norm.weight"] = (n.hidden,)
    return shapes if n.tied else shapes | {"lm_head.weight": (n.tokens, n.hidden)}


def _named(tensors: Mapping[str, Tensor], numbers: Numbers) -> dict[str, Tensor]:
    """The tensors by llama.cpp's names. Refuses a missing or an extra one, and another shape."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, numbers.layers)
    shapes, named = _shapes(numbers), {}
    for name, shape in shapes.items():
        if (tensor := tensors.get(name)) is None:
            raise refusal(f"tensor {name!r}", "none", f"one of shape {shape}")
        if tensor.shape != shape:
            raise refusal(f"tensor {name!r}, shape", tensor.shape, shape)
        if tensor.dtype not in KINDS:
            raise refusal(f"tensor {name!r}, dtype", tensor.dtype, " or ".join(KINDS))
        theirs = names.get_name(name, try_suffixes=(".weight",))
        assert theirs is not None, name
        named[theirs] = tensor
    for name in tensors:
        if name not in shapes and not (numbers.tied and name == "lm_head.weight"):
            raise refusal(f"tensor {name!r}", "an extra tensor", "none of that name")
    return named


def _kind(tensor: Tensor) -> Kind:
    return Kind.F32 if len(tensor.shape) == 1 else KINDS[tensor.dtype]


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    """Add one key in GGUF's type for its value."""
    match value:
        case str():
            writer.add_string(key, value)
        case int():
            writer.add_uint32(key, value)
        case list():
            writer.add_array(key, value)
