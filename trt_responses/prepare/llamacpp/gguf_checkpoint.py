"""A downloaded GGUF file as a checkpoint whose weights are copied unchanged.
Only its head is rewritten: llama.cpp streams no id that ends inside a character (measured: ids are
lost), so the served file has other names for such ids. Checks llama.cpp's names for gpt-oss; writes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from gguf import GGMLQuantizationType as Kind

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture, Field, from_gguf
from trt_responses.prepare.checkpoint.safetensors import Array
from trt_responses.prepare.faults import PrepareError, refusal, shown
from trt_responses.prepare.files import GGUF, GGUF_PART
from trt_responses.prepare.llamacpp.gguf import ALWAYS_F32, tensor_shapes
from trt_responses.prepare.llamacpp.gguf_file import (
    ALIGNMENT,
    GgufHead,
    StoredTensor,
    Value,
    read_gguf,
)
from trt_responses.prepare.llamacpp.head import Planned, token_strings
from trt_responses.prepare.llamacpp.region import Region, region_of
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.vocabulary import Vocabulary

ARCHITECTURE = "gpt-oss"
FIELDS = (
    Field("block_count", "layers", int),
    Field("embedding_length", "hidden", int),
    Field("expert_feed_forward_length", "intermediate", int),
    Field("attention.head_count", "heads", int),
    Field("attention.head_count_kv", "kv_heads", int),
    Field("attention.key_length", "head_dim", int),
    Field("expert_count", "experts", int),
    Field("expert_used_count", "experts_per_token", int),
    Field("attention.sliding_window", "sliding_window", int),
    Field("context_length", "context", int),
    Field("rope.freq_base", "rope_theta", float),
    Field("rope.scaling.factor", "rope_factor", float),
    Field("rope.scaling.original_context_length", "rope_original_context", int),
    Field("rope.scaling.yarn_beta_fast", "beta_fast", float, 32.0),
    Field("rope.scaling.yarn_beta_slow", "beta_slow", float, 1.0),
    Field("attention.layer_norm_rms_epsilon", "rms_eps", float),
)
MAX_PARTS = 1_000
COPY_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """A checked GGUF file, or all parts of one."""

    name: str
    architecture: Architecture
    stored: Mapping[str, StoredTensor]
    files: tuple[Path, ...]
    region: Region | None = None
    """The place of the weights, if they can be taken over as they are."""
    layout: Literal["gguf"] = "gguf"

    @property
    def size_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.stored.values())

    def plan(self) -> list[Planned]:
        """The tensors to write, byte for byte those of the file."""
        return [
            Planned(each.name, each.shape, each.kind, partial(_as_it_is, each))
            for each in self.stored.values()
        ]


def _as_it_is(tensor: StoredTensor) -> Iterator[Array]:
    data = tensor.read()
    for start in range(0, len(data), COPY_BYTES):
        yield data[start : start + COPY_BYTES]


def open_gguf(path: Path, vocabulary: Vocabulary) -> GgufCheckpoint:
    """Check a file, and its other parts if it is the first of several."""
    paths = _parts(path)
    heads = [read_gguf(part) for part in paths]
    keys, name = heads[0].keys, path.name
    if (found := keys.get("general.architecture")) != ARCHITECTURE.encode():
        raise refusal(f"{name}, general.architecture", shown(found), ARCHITECTURE)
    _check_vocabulary(name, keys, vocabulary)
    stored = _joined(heads)
    packed = any(tensor.kind == Kind.MXFP4 for tensor in stored.values())
    architecture = from_gguf(name, _numbers(keys), FIELDS, packed=packed)
    ordered = _checked(name, stored, architecture)
    model = GGUF_PART.sub("", name).removesuffix(GGUF)
    region = region_of(heads[0], path) if len(paths) == 1 and ALIGNMENT not in keys else None
    if region is not None:
        ordered = stored  # the weights stay where they are
    return GgufCheckpoint(model, architecture, ordered, paths, region)


def _parts(path: Path) -> tuple[Path, ...]:
    found = GGUF_PART.search(path.name)
    if found is None:
        return (path,)
    count = int(found[2])
    if int(found[1]) != 1 or not 0 < count <= MAX_PARTS:
        raise refusal(path.name, f"part {int(found[1])} of {count}", "the first part")
    stem = path.name[: found.start()]
    paths = tuple(path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1))
    for part in paths:
        if not part.is_file():
            raise PrepareError(f"{part.name}: found no such file, expected it beside {path.name}.")
    return paths


def _numbers(keys: Mapping[str, Value]) -> dict[str, object]:
    """The keys of this architecture, without its name. Floats, which the format stores in 32 bits,
    are rounded to the written value."""
    prefix = f"{ARCHITECTURE}."
    found: dict[str, object] = {}
    for key, value in keys.items():
        if key.startswith(prefix):
            plain = float(f"{value:.7g}") if isinstance(value, float) else value
            found[key.removeprefix(prefix)] = plain
    found["vocab_size"] = len(_list(keys, "tokenizer.ggml.tokens"))
    return found


def _list(keys: Mapping[str, Value], name: str) -> list[object]:
    value = keys.get(name)
    return list(value) if isinstance(value, list) else []


def _check_vocabulary(name: str, keys: Mapping[str, Value], vocabulary: Vocabulary) -> None:
    """Check every ordinary id and every control id of Harmony against the built-in vocabulary."""
    tokens = _list(keys, "tokenizer.ggml.tokens")
    for token_id, lawful in enumerate(token_strings(vocabulary)):
        found = tokens[token_id] if token_id < len(tokens) else None
        if found not in lawful:
            raise refusal(
                f"{name}, token {token_id}",
                shown(found),
                f"{shown(lawful[0])}, as in o200k_harmony",
            )
    for control in CONTROL:
        expected = vocabulary.control_name(control).encode()
        found = tokens[control] if control < len(tokens) else None
        if found != expected:
            raise refusal(f"{name}, token {control}", shown(found), shown(expected))


def _joined(heads: list[GgufHead]) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for head in heads:
        for name, tensor in head.tensors.items():
            if name in stored:
                raise refusal(f"tensor {shown(name)}", f"a second one in {tensor.path.name}", "one")
            stored[name] = tensor
    return stored


def _checked(
    name: str, stored: Mapping[str, StoredTensor], architecture: Architecture
) -> dict[str, StoredTensor]:
    """The tensors in order. Refuses a missing or an extra tensor, and one of another shape:
    llama.cpp would abort the process."""
    expected = tensor_shapes(architecture)
    for tensor_name, shape in expected.items():
        tensor = stored.get(tensor_name)
        if tensor is None:
            raise refusal(f"{name}, tensor {tensor_name!r}", "none", shape)
        if tensor.shape != shape:
            raise refusal(f"{name}, tensor {tensor_name!r}, shape", tensor.shape, shape)
        if tensor_name.endswith(ALWAYS_F32) and tensor.kind != Kind.F32:
            raise refusal(f"{name}, tensor {tensor_name!r}", tensor.kind.name, "F32")
    for tensor_name in stored:
        if tensor_name not in expected:
            raise refusal(f"{name}, tensor {shown(tensor_name)}", "an extra tensor", "none")
    return {tensor_name: stored[tensor_name] for tensor_name in expected}
