"""Opens the models for TensorRT-LLM: gpt-oss, and models with a chat template.
TensorRT-LLM reads the weights itself: of a model with a template this reads the configuration, the
tokeniser and the template only. Executes nothing, and does not interpret the template.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.language import (
    MAX_TOKENIZER_CONFIG_BYTES,
    MOST_TOKENS,
    TOKENIZER_CONFIG,
    id_of,
    language_of,
)
from trt_responses.prepare.checkpoint.open import (
    MAX_CONFIG_BYTES,
    Checkpoint,
    checkpoint_name,
    config_number,
    indexed,
    inside,
    json_object,
    open_checkpoint,
    refuse_pickles,
)
from trt_responses.prepare.faults import refusal, shown
from trt_responses.prepare.shelf.card import StoredWeights

HARMONY = "gpt_oss"
ARCHITECTURES = (
    "DeepseekV3ForCausalLM",
    "Glm4MoeForCausalLM",
    "LlamaForCausalLM",
    "NemotronHForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Classes in TensorRT-LLM's list of models for its PyTorch backend, of those whose tokenisers and
templates are supported here."""
WEIGHTS: Mapping[str, StoredWeights] = {"bfloat16": "bf16", "float16": "f16"}


class Shape(NamedTuple):
    """The numbers that limit parallelism, and the context."""

    context: int
    heads: int
    kv_heads: int
    experts: int
    """0 if the package distributes them itself."""


@dataclass(frozen=True, slots=True)
class TemplateModel:
    """A directory of a model with a chat template."""

    directory: Path
    name: str
    shape: Shape
    weights: StoredWeights
    size_bytes: int
    files: tuple[Path, ...]
    """All files that were read, and the weights."""
    language: Mapping[str, Any]
    """The keys of its tokens as in a GGUF file, and its template."""
    end_id: int
    """The tokeniser's end id, with which TensorRT-LLM ends a guide."""
    layout: Literal["hf"] = "hf"
    architecture: None = None


Model = Checkpoint | TemplateModel


def open_model(directory: Path) -> Model:
    """The model of a directory: gpt-oss in either layout, or one with a chat template. Refuses any
    other by name."""
    if not is_template_directory(directory):
        return open_checkpoint(directory)
    return _template_model(directory, json_object(directory, "config.json", MAX_CONFIG_BYTES))


def is_template_directory(path: Path) -> bool:
    """Whether this is a Hugging Face directory of a model other than gpt-oss."""
    if not (path / "config.json").is_file():
        return False
    config = json_object(path, "config.json", MAX_CONFIG_BYTES)
    return config.get("model_type", HARMONY) != HARMONY


def shape_of(model: Model) -> Shape:
    """The shape in its configuration."""
    if isinstance(model, TemplateModel):
        return model.shape
    a = model.architecture
    return Shape(a.context, a.heads, a.kv_heads, a.experts)


def weights_of(model: Model) -> StoredWeights:
    """The type of its stored weights, for the card."""
    if isinstance(model, TemplateModel):
        return model.weights
    return "mxfp4" if model.architecture.packed else "bf16"


def _template_model(directory: Path, config: Mapping[str, object]) -> TemplateModel:
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise refusal("config.json, architectures", shown(named), f"one of {list(ARCHITECTURES)}")
    if (quantization := config.get("quantization_config")) is not None:
        raise refusal("config.json, quantization_config", shown(quantization), "none")
    stored = config.get("torch_dtype", config.get("dtype"))
    if not isinstance(stored, str) or stored not in WEIGHTS:
        raise refusal("config.json, torch_dtype", shown(stored), " or ".join(WEIGHTS))
    refuse_pickles(directory)
    heads = config_number(config, "num_attention_heads")
    shape = Shape(
        context=config_number(config, "max_position_embeddings"),
        heads=heads,
        kv_heads=config_number(config, "num_key_value_heads", heads),
        experts=0,
    )
    rows = config_number(config, "vocab_size")
    if rows > MOST_TOKENS:
        raise refusal("config.json, vocab_size", rows, f"at most {MOST_TOKENS}")
    tensors, shards = indexed(directory)
    language, read = language_of(directory, config, rows)
    return TemplateModel(
        directory,
        checkpoint_name(directory),
        shape,
        WEIGHTS[stored],
        sum(tensor.size_bytes for tensor in tensors.values()),
        (inside(directory, "config.json"), *shards, *read),
        language,
        _end_id(directory, language),
    )


def _end_id(directory: Path, language: Mapping[str, Any]) -> int:
    named = json_object(directory, TOKENIZER_CONFIG, MAX_TOKENIZER_CONFIG_BYTES).get("eos_token")
    if (found := id_of(named, language["tokenizer.ggml.tokens"])) is None:
        raise refusal(
            f"{TOKENIZER_CONFIG}, eos_token", shown(named), "one of its tokens, which ends a guide"
        )
    return found
