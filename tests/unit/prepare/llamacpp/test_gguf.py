"""What the converter writes, read back with the format's own library.

About 8 s in all on one core: each of two conversions writes the whole vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from scripts.checkpoints import GPT_OSS_20B, TINY, Recipe, quantised, write_checkpoint
from scripts.gguf_model import convert, planned_bytes
from tests.support.gguf_reader import QuickReader
from trt_responses.prepare.checkpoint.mxfp4 import dequantised
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.checkpoint.safetensors import widen
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.gguf import SLICE_VALUES, WeightType, plan
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.tokens.vocabulary import Vocabulary

    Floats = NDArray[np.float32]

pytestmark = pytest.mark.xdist_group("written vocabulary")  # 5 s, once per process

SMALL = replace(
    TINY, layers=2, hidden=32, intermediate=64, heads=2, kv_heads=1, head_dim=32, experts=3
)


LARGE = pytest.mark.slow  # 90 MB: a table of words
WHOLE = pytest.mark.slow  # 5 s: a file with the whole vocabulary; test_build.py makes some too
ROWS = 1 << 14
"""So many are read at once: a whole table of words takes 130 MB meanwhile."""


class Packed(NamedTuple):
    """An MXFP4 checkpoint, its file as the format's own library reads it, and what its conversion
    told: slow, so once."""

    checkpoint: Checkpoint
    reader: QuickReader
    digest: str
    told: list[int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def packed(folder: Path, vocabulary: Vocabulary) -> Packed:
    checkpoint = open_checkpoint(write_checkpoint(folder / "mxfp4", Recipe(SMALL, form="mxfp4")))
    path, told = folder / "packed.gguf", list[int]()
    digest = convert(checkpoint, path, vocabulary, advance=told.append)
    return Packed(checkpoint, QuickReader(path), digest, told)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Checkpoint:
    return open_checkpoint(write_checkpoint(folder / "bf16", Recipe(SMALL)))


def source(checkpoint: Checkpoint, name: str) -> Floats:
    return widen(checkpoint.tensors[name].read())


def values(checkpoint: Checkpoint, name: str, weight_type: WeightType = "bf16") -> Floats:
    """A tensor's bytes as they will be written, understood by the format's own library."""
    tensor = next(t for t in plan(checkpoint, weight_type) if t.name == name)
    found, at = np.empty(math.prod(tensor.shape), np.float32), 0
    for part in tensor.slices():
        for rows in np.array_split(part, 1 + len(part) // ROWS):
            read = dequantize(np.frombuffer(rows.tobytes(), np.uint8), tensor.kind)
            found[at : at + read.size] = read
            at += read.size
    assert at == found.size
    return found.reshape(tensor.shape)


@WHOLE
def test_mxfp4_is_repacked_without_loss(packed: Packed) -> None:
    for layer in range(SMALL.layers):
        prefix = f"model.layers.{layer}.mlp.experts"
        for projection, halves in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
            blocks, scales = (
                packed.checkpoint.tensors[f"{prefix}.{projection}_{part}"].read()
                for part in ("blocks", "scales")
            )
            expected = dequantised(blocks, scales)
            assert len(np.unique(expected)) > 15
            for n, half in enumerate(halves):
                name = f"blk.{layer}.ffn_{half}_exps.weight"
                tensor = next(t for t in packed.reader.tensors if t.name == name)
                assert tensor.tensor_type == Kind.MXFP4
                found = dequantize(tensor.data, tensor.tensor_type)
                np.testing.assert_array_equal(found, expected[:, n :: len(halves)])


def test_a_block_unpacks_low_nibble_first_and_packs_back() -> None:
    blocks = np.arange(256, dtype=np.uint8).reshape(16, 1, 16)
    scales = np.array([1, 2, 100, 127, 128, 200, 250, 3] * 2, np.uint8)[:, None]
    values = dequantised(blocks, scales)
    assert values[3, 0] == 0.0
    assert values[3, 1] == 1.5  # byte 0x30: the low nibble 0 first, then the high one, code 3
    again = quantised(values[2:6])
    np.testing.assert_array_equal(dequantised(*again), values[2:6])


def test_bf16_experts_are_transposed_and_split_by_rows(plain: Checkpoint) -> None:
    both = source(plain, "model.layers.1.mlp.experts.gate_up_proj").transpose(0, 2, 1)
    np.testing.assert_array_equal(values(plain, "blk.1.ffn_gate_exps.weight"), both[:, 0::2])
    np.testing.assert_array_equal(values(plain, "blk.1.ffn_up_exps.weight"), both[:, 1::2])
    down = source(plain, "model.layers.1.mlp.experts.down_proj").transpose(0, 2, 1)
    np.testing.assert_array_equal(values(plain, "blk.1.ffn_down_exps.weight"), down)
    biases = source(plain, "model.layers.1.mlp.experts.gate_up_proj_bias")
    np.testing.assert_array_equal(values(plain, "blk.1.ffn_gate_exps.bias"), biases[:, 0::2])
    np.testing.assert_array_equal(values(plain, "blk.1.ffn_up_exps.bias"), biases[:, 1::2])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param("model.embed_tokens.weight", "token_embd.weight", marks=LARGE),
        pytest.param("lm_head.weight", "output.weight", marks=LARGE),
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"),
        ("model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight"),
        ("model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight"),
        ("model.layers.1.self_attn.k_proj.bias", "blk.1.attn_k.bias"),
        ("model.layers.1.self_attn.v_proj.weight", "blk.1.attn_v.weight"),
        ("model.layers.1.self_attn.o_proj.weight", "blk.1.attn_output.weight"),
        ("model.layers.1.self_attn.sinks", "blk.1.attn_sinks.weight"),
        ("model.layers.1.mlp.router.weight", "blk.1.ffn_gate_inp.weight"),
        ("model.layers.1.mlp.router.bias", "blk.1.ffn_gate_inp.bias"),
    ],
)
def test_other_tensors_keep_their_values_under_new_names(
    plain: Checkpoint, ours: str, theirs: str
) -> None:
    """Not NumPy's own assertion: it takes another 75 MB of a table of words."""
    assert np.array_equal(values(plain, theirs), source(plain, ours))


@pytest.mark.parametrize("weight_type", ["f32", "bf16", "q8_0"])
def test_norms_biases_sinks_and_router_are_always_float32(
    plain: Checkpoint, weight_type: WeightType
) -> None:
    kinds = {t.name: t.kind for t in plan(plain, weight_type)}
    exact = {n for n in kinds if n.endswith(("norm.weight", ".bias", "sinks.weight"))}
    exact |= {n for n in kinds if "ffn_gate_inp" in n}
    assert len(exact) == 1 + SMALL.layers * (2 + 4 + 1 + 3 + 2)
    assert {kinds.pop(name) for name in exact} == {Kind.F32}
    assert {kind.name.lower() for kind in kinds.values()} == {weight_type}


def test_q8_0_is_within_half_a_step(plain: Checkpoint) -> None:
    expected = source(plain, "model.layers.0.self_attn.q_proj.weight").reshape(-1, 32)
    steps = np.abs(expected).max(axis=1, keepdims=True) / 127
    away = np.abs(values(plain, "blk.0.attn_q.weight", "q8_0").reshape(-1, 32) - expected)
    assert (away <= steps * 0.6).all()  # a half, and the rounding of the step itself to float16
    assert away.max() > 0


@WHOLE
def test_the_file_holds_what_was_planned_where_its_table_says(packed: Packed) -> None:
    planned = plan(packed.checkpoint, "bf16")
    assert [t.name for t in packed.reader.tensors] == [t.name for t in planned]
    for read, wrote in zip(packed.reader.tensors, planned, strict=True):
        assert tuple(reversed(read.shape.tolist())) == wrote.shape
        raw = b"".join(np.ascontiguousarray(part).tobytes() for part in wrote.slices())
        assert read.data.tobytes() == raw, read.name


@WHOLE
def test_both_layouts_and_any_sharding_give_the_same_file(
    folder: Path, packed: Packed, vocabulary: Vocabulary
) -> None:
    recipe = Recipe(SMALL, form="mxfp4", layout="original", shards=3)
    original = open_checkpoint(write_checkpoint(folder / "original", recipe))
    assert convert(original, folder / "original.gguf", vocabulary) == packed.digest


@WHOLE
def test_the_digest_is_the_files_and_every_byte_is_told(folder: Path, packed: Packed) -> None:
    assert packed.digest == hashlib.sha256((folder / "packed.gguf").read_bytes()).hexdigest()
    assert sum(packed.told) == planned_bytes(packed.checkpoint, "bf16")


@WHOLE
def test_the_head_has_the_models_numbers_and_control_ids(packed: Packed) -> None:
    expected = {
        "general.architecture": "gpt-oss",
        "gpt-oss.block_count": 2,
        "gpt-oss.context_length": 131_072,
        "gpt-oss.attention.head_count_kv": 1,
        "gpt-oss.attention.sliding_window": 128,
        "gpt-oss.expert_count": 3,
        "gpt-oss.expert_used_count": 2,
        "gpt-oss.rope.scaling.type": "yarn",
        "gpt-oss.rope.scaling.factor": 32.0,
        "gpt-oss.rope.scaling.original_context_length": 4096,
        "tokenizer.ggml.bos_token_id": CONTROL.startoftext,
        "tokenizer.ggml.eos_token_id": CONTROL.return_,
        "tokenizer.ggml.eot_token_id": CONTROL.endoftext,
        "tokenizer.ggml.padding_token_id": CONTROL.endoftext,
    }
    found = {key: packed.reader.fields[key].contents() for key in expected}
    assert found == expected
    names = packed.reader.texts("tokenizer.ggml.tokens")
    types = packed.reader.numbers("tokenizer.ggml.token_type")
    assert len(names) == len(types) == len(set(names)) == 201_088
    assert (names[CONTROL.call], types[CONTROL.call]) == ("<|call|>", 3)
    assert (names[0], types[0]) == ("!", 1)


@WHOLE
def test_every_ordinary_string_is_whole_characters(packed: Packed, vocabulary: Vocabulary) -> None:
    """llama.cpp holds an id back while its text ends inside a character; we want every id."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in prints]
    byte_of = {chr(b): b for b in prints} | {chr(256 + n): b for n, b in enumerate(others)}
    names = packed.reader.texts("tokenizer.ggml.tokens")
    changed = 0
    for name, raw in zip(names, vocabulary.token_bytes, strict=False):
        written = bytes(byte_of[letter] for letter in name)
        assert written.decode()
        changed += written != raw
    assert changed == sum(not is_whole(raw) for raw in vocabulary.token_bytes) > 1000


def is_whole(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_q8_0_rows_that_do_not_fit_its_blocks_are_refused(tmp_path: Path) -> None:
    odd = replace(SMALL, hidden=48)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, Recipe(odd, sparse=True)))
    with pytest.raises(PrepareError, match=r"hidden_size: found 48, expected a multiple of 32"):
        planned_bytes(checkpoint, "q8_0")


def test_a_20b_checkpoint_is_planned_at_its_known_size_in_small_slices(tmp_path: Path) -> None:
    recipe = Recipe(GPT_OSS_20B, form="mxfp4", sparse=True)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, recipe))
    assert 13.7e9 < planned_bytes(checkpoint, "bf16") < 13.9e9
    for tensor in plan(checkpoint, "bf16"):
        if tensor.name in ("token_embd.weight", "blk.0.ffn_gate_exps.weight"):
            assert next(tensor.slices()).nbytes <= 2 * SLICE_VALUES
