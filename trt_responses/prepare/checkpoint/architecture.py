"""The numbers of a gpt-oss model, from the config of either layout; refuses fields that an engine
misreads. Works on parsed configs: opens no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError, refusal, shown
from trt_responses.tokens.control import VOCABULARY_SIZE

SWIGLU_LIMIT = 7.0
"""The limit of the SwiGLU, a constant in llama.cpp and in TensorRT-LLM, as are alpha 1.702 and the
+1 on the linear half."""
ORIGINAL_RMS_EPS = 1e-5
"""The epsilon of the RMS norms, which OpenAI's own layout leaves to the code."""
MAX_LAYERS = 1000
"""The most layers: a bound on the list of names that a hostile config can ask for."""

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Architecture:
    """The numbers of a model that an engine needs, apart from the weights."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    sliding_window: int
    context: int
    rope_theta: float
    rope_factor: float
    rope_original_context: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    rms_eps: float
    vocabulary: int
    packed: bool
    """Whether the experts are stored as MXFP4 blocks and scales."""


class Field(NamedTuple):
    """One config field: its name, the attribute it sets, and the default if the file omits it."""

    key: str
    attribute: str
    kind: type
    default: float | None = None


HF_FIELDS = (
    Field("num_hidden_layers", "layers", int),
    Field("hidden_size", "hidden", int),
    Field("intermediate_size", "intermediate", int),
    Field("num_attention_heads", "heads", int),
    Field("num_key_value_heads", "kv_heads", int),
    Field("head_dim", "head_dim", int),
    Field("num_local_experts", "experts", int),
    Field("num_experts_per_tok", "experts_per_token", int),
    Field("sliding_window", "sliding_window", int),
    Field("max_position_embeddings", "context", int),
    Field("vocab_size", "vocabulary", int),
    Field("rms_norm_eps", "rms_eps", float),
)
HF_ROPE_FIELDS = (
    Field("factor", "rope_factor", float),
    Field("original_max_position_embeddings", "rope_original_context", int),
    Field("beta_fast", "beta_fast", float, 32.0),
    Field("beta_slow", "beta_slow", float, 1.0),
)
ORIGINAL_FIELDS = (
    *(f for f in HF_FIELDS if f.key.startswith(("num_h", "hidden", "inter", "num_a", "num_k"))),
    Field("head_dim", "head_dim", int),
    Field("num_experts", "experts", int),
    Field("experts_per_token", "experts_per_token", int),
    Field("vocab_size", "vocabulary", int),
    Field("sliding_window", "sliding_window", int),
    Field("initial_context_length", "rope_original_context", int),
    Field("rope_theta", "rope_theta", float),
    Field("rope_scaling_factor", "rope_factor", float),
    Field("rope_ntk_beta", "beta_fast", float, 32.0),
    Field("rope_ntk_alpha", "beta_slow", float, 1.0),
)

HF_FIXED: Mapping[str, tuple[object, ...]] = {
    "model_type": ("gpt_oss",),
    "attention_bias": (True, None),
    "tie_word_embeddings": (False, None),
    "swiglu_limit": (SWIGLU_LIMIT, None),
    "hidden_act": ("silu", None),
    "attention_dropout": (0, None),
    "num_nextn_predict_layers": (0, None),
}
"""Fields with fixed values (None: may be absent); an engine ignores or misreads any other value."""
ROPE_FIXED: Mapping[str, tuple[object, ...]] = {
    "rope_type": ("yarn",),
    "truncate": (False,),  # transformers reads an absent one as true, gpt-oss was trained without
    "attention_factor": (None,),
    "mscale": (None,),
    "mscale_all_dim": (None,),
}


def from_hf(config: Config) -> Architecture:
    """The numbers in a Hugging Face `config.json`; transformers 5 writes `rope_parameters`, 4
    `rope_scaling`."""
    if "auto_map" in config:
        raise PrepareError(
            "config.json, auto_map: found code to be run with the model, expected none; remove "
            "the field, a gpt_oss model needs no code of its own."
        )
    _check_fixed("config.json", config, HF_FIXED)
    name = "rope_parameters" if "rope_parameters" in config else "rope_scaling"
    rope = config.get(name)
    if not isinstance(rope, dict):
        raise refusal(f"config.json, {name}", shown(rope), "the YaRN numbers of a gpt-oss model")
    _check_fixed(f"config.json, {name}", {"rope_type": rope.get("type"), **rope}, ROPE_FIXED)
    theta = rope.get("rope_theta", config.get("rope_theta"))
    numbers = _numbers("config.json", config, HF_FIELDS)
    numbers |= _numbers(f"config.json, {name}", rope, HF_ROPE_FIELDS)
    numbers |= _numbers(
        "config.json", {"rope_theta": theta}, (Field("rope_theta", "rope_theta", float),)
    )
    architecture = _checked(numbers)
    _check_layer_types(config.get("layer_types"), architecture.layers)
    return replace(architecture, packed=_is_packed(config.get("quantization_config")))


def from_original(config: Config) -> Architecture:
    """The numbers in OpenAI's own `config.json`. Its field names differ, and it has no context
    length: that is the factor times the initial context."""
    _check_fixed("config.json", config, {"swiglu_limit": (SWIGLU_LIMIT, None)})
    numbers = _numbers("config.json", config, ORIGINAL_FIELDS)
    numbers["context"] = int(numbers["rope_original_context"] * numbers["rope_factor"])
    numbers["rms_eps"] = ORIGINAL_RMS_EPS
    return _checked(numbers)


def from_gguf(name: str, keys: Config, fields: tuple[Field, ...], *, packed: bool) -> Architecture:
    """The numbers in the keys of a GGUF file, by llama.cpp's names; missing ones have gpt-oss's
    values."""
    fields = (*fields, Field("vocab_size", "vocabulary", int))
    return replace(_checked(_numbers(name, keys, fields)), packed=packed)


def _check_fixed(name: str, config: Config, fixed: Mapping[str, tuple[object, ...]]) -> None:
    for key, lawful in fixed.items():
        if (found := config.get(key)) not in lawful:
            expected = " or ".join("nothing" if v is None else repr(v) for v in lawful)
            raise refusal(f"{name}, {key}", shown(found), expected)


def _numbers(name: str, config: Config, fields: tuple[Field, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for field in fields:
        value = config.get(field.key, field.default)
        lawful = (int,) if field.kind is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, lawful) or not 0 < value < 2**40:
            expected = "a whole number above 0" if field.kind is int else "a number above 0"
            raise refusal(f"{name}, {field.key}", shown(value), expected)
        found[field.attribute] = field.kind(value)
    return found


def _checked(numbers: dict[str, float]) -> Architecture:
    architecture = Architecture(**numbers, truncate=False, packed=False)  # type: ignore[arg-type]  # kinds follow the field table
    a = architecture
    claims = (
        ("num_hidden_layers", a.layers, a.layers <= MAX_LAYERS, f"at most {MAX_LAYERS}"),
        ("vocab_size", a.vocabulary, a.vocabulary == VOCABULARY_SIZE, VOCABULARY_SIZE),
        ("head_dim", a.head_dim, a.head_dim % 2 == 0, "an even number"),
        ("num_key_value_heads", a.kv_heads, a.heads % a.kv_heads == 0, f"a divisor of {a.heads}"),
        (
            "experts per token",
            a.experts_per_token,
            a.experts_per_token <= a.experts,
            f"at most {a.experts}",
        ),
        ("rope_theta", a.rope_theta, a.rope_theta > 1, "more than 1"),
        ("rope factor", a.rope_factor, a.rope_factor > 1, "more than 1"),
        (
            "original context",
            a.rope_original_context,
            a.rope_original_context <= a.context,
            f"at most {a.context}",
        ),
    )
    for name, found, holds, expected in claims:
        if not holds:
            raise refusal(f"config.json, {name}", found, expected)
    return architecture


def _check_layer_types(found: object, layers: int) -> None:
    """Refuse layers that do not alternate: llama.cpp and TensorRT-LLM always use the sliding window
    on even layers and ignore the config."""
    expected = [("sliding_attention", "full_attention")[n % 2] for n in range(layers)]
    if found is not None and found != expected:
        at = _first_difference(found, expected)
        raise refusal("config.json, layer_types", at, "sliding and full in turn, sliding first")


def _first_difference(found: object, expected: list[str]) -> str:
    if not isinstance(found, list) or len(found) != len(expected):
        count = len(found) if isinstance(found, list) else "no"
        return f"{count} entries for {len(expected)} layers"
    n = next(n for n, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
    return f"{shown(found[n])} at layer {n}"


def _is_packed(quantization: object) -> bool:
    if quantization is None:
        return False
    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if method != "mxfp4":
        raise refusal("config.json, quantization_config", shown(method), "mxfp4 or none")
    return True
