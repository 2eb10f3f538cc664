"""What a checkpoint directory must be, and each way in which it can be wrong or hostile."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import (
    TINY,
    Recipe,
    hf_config,
    write_checkpoint,
    write_json,
)
from trt_responses.prepare.checkpoint.open import INDEX, checkpoint_name, open_checkpoint
from trt_responses.prepare.checkpoint.safetensors import (
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)
from trt_responses.prepare.faults import PrepareError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = replace(TINY, layers=2, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=32)
MODEL = "model.safetensors"


def sparse(directory: Path, **changes: object) -> Path:
    """A checkpoint with every header right; its values are holes on the disk."""
    recipe = Recipe(SMALL, sparse=True)
    return write_checkpoint(directory, replace(recipe, **changes))  # type: ignore[arg-type]


def refused(directory: Path) -> str:
    with pytest.raises(PrepareError) as caught:
        open_checkpoint(directory)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def changed_config(directory: Path, change: Callable[[dict[str, object]], object]) -> Path:
    config = json.loads((directory / "config.json").read_text("utf-8"))
    change(config)
    write_json(directory / "config.json", config)
    return directory


@pytest.mark.parametrize("form", ["bf16", "f32", "mxfp4"])
@pytest.mark.parametrize("layout", ["hf", "original"])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_form_layout_and_sharding_gives_the_same_view(
    tmp_path: Path, form: str, layout: str, shards: int
) -> None:
    found = open_checkpoint(sparse(tmp_path / "a", form=form, layout=layout, shards=shards))
    expected = open_checkpoint(sparse(tmp_path / "b", form=form))
    assert found.layout == layout
    assert found.architecture == expected.architecture == replace(SMALL, packed=form == "mxfp4")
    assert [(t.name, t.shape, t.dtype) for t in found.tensors.values()] == [
        (t.name, t.shape, t.dtype) for t in expected.tensors.values()
    ]
    assert found.files[0].name == "config.json"
    assert len(found.files) == 1 + shards + (shards > 1)


def test_values_are_the_same_in_both_layouts(tmp_path: Path) -> None:
    recipe = Recipe(SMALL, form="mxfp4")
    hf = open_checkpoint(write_checkpoint(tmp_path / "hf", recipe))
    theirs = replace(recipe, layout="original")
    original = open_checkpoint(write_checkpoint(tmp_path / "original", theirs))
    for name, tensor in hf.tensors.items():
        assert np.array_equal(tensor.read(), original.tensors[name].read()), name
    assert np.ptp(widen(hf.tensors["lm_head.weight"].read())) > 0


def test_transformers_5_rope_parameters_are_read(tmp_path: Path) -> None:
    def modern(config: dict[str, object]) -> None:
        rope = config.pop("rope_scaling")
        assert isinstance(rope, dict)
        config["rope_parameters"] = {**rope, "rope_theta": config.pop("rope_theta")}

    found = open_checkpoint(changed_config(sparse(tmp_path), modern))
    assert found.architecture == SMALL


FULL_FIRST = ["full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model_type", "llama", ("model_type", "'llama'", "'gpt_oss'")),
        ("layer_types", FULL_FIRST, ("layer_types", "'full_attention' at layer 0", "sliding")),
        ("layer_types", ["sliding_attention"], ("layer_types", "1 entries for 2 layers")),
        ("swiglu_limit", 5.0, ("swiglu_limit", "5.0", "7.0")),
        ("vocab_size", 200_000, ("vocab_size", "200000", "201088")),
        ("tie_word_embeddings", True, ("tie_word_embeddings", "True", "False")),
        ("attention_bias", False, ("attention_bias", "False", "True")),
        ("hidden_act", "gelu", ("hidden_act", "'gelu'", "'silu'")),
        ("head_dim", 31, ("head_dim", "31", "even")),
        ("head_dim", "64", ("head_dim", "'64'", "whole number")),
        ("num_hidden_layers", 0, ("num_hidden_layers", "0", "above 0")),
        ("num_hidden_layers", 10**9, ("num_hidden_layers", "1000000000", "at most 1000")),
        ("num_hidden_layers", True, ("num_hidden_layers", "True", "whole number")),
        ("num_key_value_heads", 3, ("num_key_value_heads", "3", "a divisor of 2")),
        ("num_experts_per_tok", 9, ("experts per token", "9", "at most 4")),
        ("sliding_window", None, ("sliding_window", "None", "whole number")),
        ("rms_norm_eps", 0, ("rms_norm_eps", "0", "above 0")),
        ("rope_theta", None, ("rope_theta", "None", "number")),
        ("rope_scaling", None, ("rope_scaling", "None", "YaRN")),
        ("rope_scaling.rope_type", "linear", ("rope_type", "'linear'", "'yarn'")),
        ("rope_scaling.truncate", True, ("truncate", "True", "False")),
        ("rope_scaling.truncate", None, ("truncate", "None", "False")),
        ("rope_scaling.attention_factor", 1.2, ("attention_factor", "1.2", "nothing")),
        ("rope_scaling.factor", 1.0, ("rope factor", "1.0", "more than 1")),
        ("rope_scaling.factor", float("nan"), ("factor", "nan", "above 0")),
        ("rope_scaling.original_max_position_embeddings", 10**6, ("original context", "131072")),
        ("quantization_config", {"quant_method": "gptq"}, ("quantization_config", "'gptq'")),
        ("auto_map", {"AutoModel": "evil.Model"}, ("auto_map", "code", "remove")),
    ],
)
def test_a_config_that_engines_would_misread_is_refused_by_field(
    tmp_path: Path, field: str, value: object, words: tuple[str, ...]
) -> None:
    def change(config: dict[str, object]) -> None:
        outer, _, inner = field.partition(".")
        within = config[outer] if inner else config
        assert isinstance(within, dict)
        within[inner or outer] = value

    sentence = refused(changed_config(sparse(tmp_path), change))
    assert [word for word in words if word not in sentence] == []
    assert "expected" in sentence


@pytest.mark.parametrize(
    ("field", "value"), [("swiglu_limit", 6.0), ("vocab_size", 5), ("rope_scaling_factor", 0)]
)
def test_an_original_config_is_checked_too(tmp_path: Path, field: str, value: float) -> None:
    directory = sparse(tmp_path, layout="original")
    sentence = refused(changed_config(directory, lambda config: config.update({field: value})))
    assert field in sentence
    assert str(value) in sentence


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": ' + "[" * 100_000, "\xff"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    directory = sparse(tmp_path)
    (directory / "config.json").write_text(text, "latin-1")
    assert "config.json" in refused(directory)


def test_packed_experts_without_the_config_saying_so_are_refused(tmp_path: Path) -> None:
    directory = sparse(tmp_path, form="mxfp4")
    write_json(directory / "config.json", hf_config(SMALL))
    assert "gate_up_proj'" in refused(directory)


def rewritten(directory: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    tensors = read_tensors(directory / MODEL)
    change(tensors)
    write_tensors(directory / "other.safetensors", tensors.values(), sparse=True)
    (directory / "other.safetensors").replace(directory / MODEL)
    return directory


def altered(tensors: dict[str, Tensor], key: str, /, **changes: object) -> None:
    tensors[key] = replace(tensors[key], **changes)  # type: ignore[arg-type]


SINKS = "model.layers.1.self_attn.sinks"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(SINKS), (SINKS, "found none", "(2,)")),
        (lambda t: altered(t, SINKS, name="extra"), (SINKS, "found none")),
        (lambda t: t.update(x=replace(t[SINKS], name="x")), ("'x'", "extra tensor")),
        (lambda t: altered(t, SINKS, shape=(3,)), (SINKS, "shape", "(3,)", "(2,)")),
        (lambda t: altered(t, SINKS, shape=(2, 1)), (SINKS, "(2, 1)")),
        (lambda t: altered(t, SINKS, dtype="F16"), (SINKS, "dtype", "F16", "BF16 or F32")),
        (lambda t: altered(t, "lm_head.weight", shape=(9, 32)), ("lm_head.weight", "(9, 32)")),
    ],
)
def test_a_wrong_set_of_tensors_is_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], object], words: tuple[str, ...]
) -> None:
    sentence = refused(rewritten(sparse(tmp_path), change))
    assert [word for word in words if word not in sentence] == []


def test_an_original_tensor_of_an_unknown_name_or_split_is_refused(tmp_path: Path) -> None:
    one = sparse(tmp_path / "one", layout="original")
    rewritten(one, lambda t: altered(t, "norm.scale", name="block.x.norm"))
    assert "block.x.norm" in refused(one)
    two = sparse(tmp_path / "two", layout="original")
    rewritten(two, lambda t: altered(t, "block.1.attn.qkv.weight", shape=(5, 32)))
    assert "block.1.attn.qkv.weight" in (sentence := refused(two))
    assert "128 (64 for q, 32 each for k and v)" in sentence


def headed(directory: Path, header: bytes, *, length: int | None = None, data: int = 0) -> Path:
    prefix = struct.pack("<Q", len(header) if length is None else length)
    (directory / MODEL).write_bytes(prefix + header + bytes(data))
    return directory


def entry(start: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> object:
    return {"dtype": dtype, "shape": shape or [end - start], "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("entries", "data", "words"),
    [
        ({"a": entry(0, 4), "b": entry(2, 6)}, 6, ("'b'", "an overlap")),
        ({"a": entry(0, 4), "b": entry(8, 12)}, 12, ("'b'", "a hole")),
        ({"a": entry(0, 4)}, 3, ("truncated", "3 bytes", "expected 4")),
        ({"a": entry(0, 4)}, 9, ("9 bytes of data", "4")),
        ({"a": entry(0, 4, [5])}, 4, ("'a'", "4 bytes", "5 bytes")),
        ({"a": entry(4, 0, [1])}, 4, ("'a'", "-4 bytes")),
        ({"a": entry(-4, 0, [4])}, 4, ("'a'", "no count")),
        ({"a": entry(0, 4, [-2, -2])}, 4, ("'a'", "no count")),
        ({"a": entry(0, 4, [2**70])}, 4, ("'a'", "expected")),
        ({"a": entry(0, 4, dtype="F8_E4M3")}, 4, ("'a'", "F8_E4M3", "BF16")),
        ({"a": {"dtype": "U8"}}, 0, ("'a'", "data_offsets")),
        ({"a": [1]}, 0, ("'a'", "data_offsets")),
    ],
)
def test_a_lying_header_is_refused_by_tensor(
    tmp_path: Path, entries: dict[str, object], data: int, words: tuple[str, ...]
) -> None:
    sentence = refused(headed(sparse(tmp_path), json.dumps(entries).encode(), data=data))
    assert [word for word in (MODEL, *words) if word not in sentence] == []


def test_a_header_of_4_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    directory = headed(sparse(tmp_path), b"{}", length=4 << 30)
    assert "header length" in (sentence := refused(directory))
    assert str(4 << 30) in sentence


@pytest.mark.parametrize(
    ("header", "length", "word"),
    [
        (b"{}", 99, "truncated"),
        (b"not json", None, "no JSON"),
        (b"[]", None, "list"),
        (b'{"a": 1, "a": 2}', None, "a name occurs twice"),
        (b"[" * 50_000, None, "no JSON"),
    ],
)
def test_a_header_that_is_no_header_is_refused(
    tmp_path: Path, header: bytes, length: int | None, word: str
) -> None:
    assert word in refused(headed(sparse(tmp_path), header, length=length))


def test_a_file_of_three_bytes_and_a_truncated_file_are_refused(tmp_path: Path) -> None:
    directory = sparse(tmp_path)
    size_bytes = (directory / MODEL).stat().st_size
    os.truncate(directory / MODEL, size_bytes - 1)
    assert "truncated" in refused(directory)
    os.truncate(directory / MODEL, 3)
    assert "3 bytes" in refused(directory)


@pytest.mark.parametrize(
    "shard",
    ["../other/model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", "a\\b", "x\0", 7],
)
def test_a_weight_map_that_leaves_the_directory_is_refused(tmp_path: Path, shard: object) -> None:
    directory = sparse(tmp_path, shards=2)
    index = json.loads((directory / INDEX).read_text("utf-8"))
    index["weight_map"][SINKS] = shard
    write_json(directory / INDEX, index)
    assert SINKS in (sentence := refused(directory))
    assert "a file name in the directory" in sentence


@pytest.mark.parametrize("shard", ["pytorch_model.bin", "weights.pt"])
def test_a_weight_map_that_names_a_pickle_is_refused(tmp_path: Path, shard: str) -> None:
    directory = sparse(tmp_path, shards=2)
    index = json.loads((directory / INDEX).read_text("utf-8"))
    index["weight_map"][SINKS] = shard
    write_json(directory / INDEX, index)
    assert shard in refused(directory)


def test_an_index_and_its_shards_must_agree(tmp_path: Path) -> None:
    changes: dict[str, Callable[[dict[str, str]], object]] = {
        "ghost": lambda names: names.update({"ghost": names[SINKS]}),
        SINKS: lambda names: names.pop(SINKS),
        "absent.safetensors": lambda names: names.update({SINKS: "absent.safetensors"}),
    }
    for n, (word, change) in enumerate(changes.items()):
        directory = sparse(tmp_path / str(n), shards=2)
        index = json.loads((directory / INDEX).read_text("utf-8"))
        change(index["weight_map"])
        write_json(directory / INDEX, index)
        assert word in refused(directory)


def test_a_link_inside_is_read_and_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    inside = sparse(tmp_path / "inside")
    (inside / MODEL).rename(inside / "blob")
    (inside / MODEL).symlink_to("blob")
    assert open_checkpoint(inside).tensors
    outside = sparse(tmp_path / "outside")
    (outside / MODEL).rename(tmp_path / "blob")
    (outside / MODEL).symlink_to("../blob")
    assert MODEL in (sentence := refused(outside))
    assert "cp -rL" in sentence
    (outside / MODEL).unlink()
    (outside / MODEL).symlink_to("nowhere")
    assert MODEL in refused(outside)


def test_a_snapshot_of_the_hub_is_read_and_its_links_stay_within_its_model(tmp_path: Path) -> None:
    model = tmp_path / "models--openai--gpt-oss-20b"
    snapshot = sparse(model / "snapshots" / ("0" * 40))
    (model / "blobs").mkdir()
    for path in list(snapshot.iterdir()):
        path.rename(model / "blobs" / path.name)
        path.symlink_to(f"../../blobs/{path.name}")
    assert open_checkpoint(snapshot).tensors
    assert checkpoint_name(snapshot) == "gpt-oss-20b"
    other = tmp_path / "models--openai--other" / "blobs"
    other.mkdir(parents=True)
    for stranger in (other / MODEL, tmp_path / MODEL, model / "snapshots" / MODEL):
        (model / "blobs" / MODEL).rename(stranger)
        (snapshot / MODEL).unlink()
        (snapshot / MODEL).symlink_to(stranger)
        assert "a link that leads out" in refused(snapshot)
        stranger.rename(model / "blobs" / MODEL)
    elsewhere = model.rename(tmp_path / "plain") / "snapshots" / snapshot.name
    (elsewhere / MODEL).unlink()
    (elsewhere / MODEL).symlink_to(f"../../blobs/{MODEL}")
    assert "a link that leads out" in refused(elsewhere)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "a.PTH", "optimizer.pkl"])
def test_a_pickle_is_refused_by_name_and_never_opened(tmp_path: Path, name: str) -> None:
    directory = sparse(tmp_path)
    (directory / name).symlink_to("/dev/zero")  # reading it would never end
    assert name in (sentence := refused(directory))
    assert "safetensors" in sentence


def test_a_directory_without_a_choice_of_weights_is_refused(tmp_path: Path) -> None:
    assert "no directory" in refused(tmp_path / "absent")
    directory = sparse(tmp_path / "here")
    (directory / MODEL).rename(directory / "a.safetensors")
    assert open_checkpoint(directory).tensors
    (directory / "b.safetensors").write_bytes(b"")
    assert "2 safetensors files" in refused(directory)
    (directory / "config.json").unlink()
    assert "config.json" in refused(directory)


def test_bfloat16_survives_widening_and_rounds_to_even() -> None:
    bits = np.arange(0x3F00, 0x4100, dtype=np.uint16)
    np.testing.assert_array_equal(narrow(widen(bits)), bits)
    halfway = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    np.testing.assert_array_equal(narrow(halfway), np.array([0x3F80, 0x3F82], np.uint16))
