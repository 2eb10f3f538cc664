"""Adapters of an engine: what is taken, what is refused, and what the list of them says.

Budget: 3 s on one core.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from scripts.checkpoints import TINY
from scripts.tiny_adapter import write_adapter
from tests.support.cards import VERSION, card_of
from tests.support.tiny_gguf import HEAD, HEADS, HIDDEN, write_tiny
from trt_responses.cli.engines.adapters import KINDS
from trt_responses.prepare.checkpoint.peft import CONFIG, WEIGHTS, open_peft
from trt_responses.prepare.checkpoint.safetensors import Tensor, write_tensors
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.llamacpp.gguf_file import read_gguf
from trt_responses.prepare.shelf import adapter_changes, shelf
from trt_responses.prepare.shelf.adapters import FOLDER, LIST, adapters_of
from trt_responses.prepare.shelf.card import Card, read_card, write_card
from trt_responses.prepare.shelf.locks import mark_served
from trt_responses.prepare.trtllm.lora import lora_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.shelf.adapter_changes import Change

RANK = 2
PLACE = "base_model.model.model.layers.{}.self_attn.{}_proj.lora_{}.weight"
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / MODEL, "qwen3")


@pytest.fixture
def engines_dir(tmp_path: Path, model: Path) -> Path:
    """One engine, "mine"."""
    directory = tmp_path / "engines" / "mine" / VERSION
    directory.mkdir(parents=True)
    (directory / MODEL).hardlink_to(model)
    write_card(directory, card_of(directory))
    return tmp_path / "engines"


def pair(layer: int = 0, rank: int = RANK, outputs: int = HEADS * HEAD) -> Arrays:
    """A LoRA of one layer's queries, as PEFT names it."""
    random = np.random.default_rng(layer)
    return {
        PLACE.format(layer, "q", "A"): random.standard_normal((rank, HIDDEN)).astype(np.float32),
        PLACE.format(layer, "q", "B"): random.standard_normal((outputs, rank)).astype(np.float32),
    }


def peft(directory: Path, arrays: Arrays | None = None, **changes: object) -> Path:
    """An adapter as PEFT saves it."""
    directory.mkdir(exist_ok=True)
    tensors = [
        Tensor(name, "F32", each.shape, partial(np.asarray, each))
        for name, each in (pair() if arrays is None else arrays).items()
    ]
    write_tensors(directory / WEIGHTS, tensors)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none"} | changes
    (directory / CONFIG).write_text(json.dumps(config))
    return directory


def gguf_file(
    path: Path,
    arrays: Arrays | None = None,
    *,
    architecture: str = "qwen3",
    kind: str = "adapter",
    alpha: float = 8.0,
    activated: bool = False,
) -> Path:
    """An adapter as llama.cpp's converter writes it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.type", kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    if activated:
        writer.add_array("adapter.alora.invocation_tokens", [1, 2])
    if arrays is None:
        down, up = pair().values()
        arrays = {"blk.0.attn_q.weight.lora_a": down, "blk.0.attn_q.weight.lora_b": up}
    for name, each in arrays.items():
        writer.add_tensor(name, each)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(engines_dir: Path, source: Path, name: str = "style") -> Change:
    return adapter_changes.add(engines_dir, "mine", name, source, KINDS)


def difference(engines_dir: Path, *, deep: bool = False) -> str | None:
    directory = shelf.find(engines_dir, "mine")
    return shelf.difference(read_card(directory), directory, None, deep=deep)


@pytest.mark.parametrize("place", ["../card.json", "../../x/y", "./x"])
def test_a_list_that_names_what_is_no_adapter_removes_nothing(
    engines_dir: Path, tmp_path: Path, place: str
) -> None:
    add(engines_dir, peft(tmp_path / "peft"))
    listed = shelf.find(engines_dir, "mine") / FOLDER / LIST
    told = json.loads(listed.read_text())
    told["adapters"][0]["files"][0]["name"] = place
    listed.write_text(json.dumps(told))
    before = sorted(engines_dir.rglob("*"))
    with pytest.raises(PrepareError, match="name of the adapter: found"):
        adapter_changes.remove(engines_dir, "mine", "style")
    assert sorted(engines_dir.rglob("*")) == before


def test_an_adapter_is_added_listed_and_removed_in_both_forms(
    engines_dir: Path, tmp_path: Path
) -> None:
    one = add(engines_dir, peft(tmp_path / "peft"))
    two = add(engines_dir, gguf_file(tmp_path / "two.gguf"), "legal")
    directory = shelf.find(engines_dir, "mine")
    assert adapters_of(directory) == (two.adapter, one.adapter)
    assert (one.adapter.rank, one.adapter.modules) == (RANK, ("attn_q",))
    assert one.adapter.source == "peft"
    assert difference(engines_dir, deep=True) is None
    names = ["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"]
    heads = [read_gguf(directory / FOLDER / each.adapter.place) for each in (one, two)]
    for head in heads:
        assert head.keys["adapter.lora.alpha"] == 8.0
        assert sorted(head.tensors) == names
    for name in names:
        first, second = (head.tensors[name] for head in heads)
        assert first.shape == second.shape
        assert (first.read() == second.read()).all()
    assert adapter_changes.remove(engines_dir, "mine", "style").adapter == one.adapter
    assert adapters_of(directory) == (two.adapter,)
    assert sorted(path.name for path in (directory / FOLDER).iterdir()) == [LIST, "legal.gguf"]


def test_a_square_root_in_the_factor_is_kept(tmp_path: Path) -> None:
    assert open_peft(peft(tmp_path / "a", use_rslora=True)).alpha == pytest.approx(8 * RANK**0.5)


def test_what_has_changed_since_is_found_by_size_and_by_digest(
    engines_dir: Path, tmp_path: Path
) -> None:
    add(engines_dir, gguf_file(tmp_path / "a.gguf"))
    path = shelf.find(engines_dir, "mine") / FOLDER / "style.gguf"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    told = difference(engines_dir, deep=True)
    assert told is not None
    assert told.startswith("adapter style, style.gguf: found SHA-256")
    assert told.endswith("remove the adapter style and add it again.")
    path.unlink()
    assert "found no such file" in (difference(engines_dir) or "")
    (path.parent / LIST).write_text('{"adapters": [{"name": "x"}]}')
    assert (difference(engines_dir) or "").startswith(f"{FOLDER}/{LIST}, adapters")


def test_a_name_is_given_once_and_what_is_served_is_not_removed(
    engines_dir: Path, tmp_path: Path
) -> None:
    source = gguf_file(tmp_path / "a.gguf")
    add(engines_dir, source)
    with pytest.raises(PrepareError, match="already has an adapter named style"):
        add(engines_dir, source)
    for name in ("Style", "a:b", "a/b", "..", "", "a@1"):
        with pytest.raises(PrepareError, match="name of the adapter"):
            add(engines_dir, source, name)
    with pytest.raises(PrepareError, match=r"has no adapter named .*; its adapters: style\."):
        adapter_changes.remove(engines_dir, "mine", "other")
    with mark_served(shelf.find(engines_dir, "mine")):
        with pytest.raises(PrepareError, match="is loaded by a server"):
            adapter_changes.remove(engines_dir, "mine", "style")
        add(engines_dir, source, "beside")  # the next server serves it


@pytest.mark.parametrize("kind", ["tensorrt", "onnx"])
def test_a_kind_that_takes_no_adapters_says_so(
    engines_dir: Path, tmp_path: Path, kind: str
) -> None:
    directory = shelf.find(engines_dir, "mine")
    write_card(directory, replace(read_card(directory), kind=kind))  # type: ignore[arg-type]
    with pytest.raises(PrepareError, match=f"of kind {kind}, which does not support adapters"):
        add(engines_dir, gguf_file(tmp_path / "a.gguf"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"peft_type": "IA3"}, "peft_type: found 'IA3'"),
        ({"use_dora": True}, "use_dora: found True"),
        ({"bias": "all"}, "bias: found 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"rank_pattern": {"q_proj": 3}}, "rank_pattern"),
        ({"r": 3}, "rank 3"),
        ({"r": "2"}, "r: found '2'"),
        ({"r": 0}, "r: found 0"),
        ({"lora_alpha": None}, "lora_alpha: found None"),
        ({"lora_alpha": float("inf")}, "lora_alpha: found inf"),
        ({"arrays": {}}, "found no tensors"),
        ({"arrays": dict([*pair().items()][:1])}, "lora_A alone"),
        ({"arrays": {"model.layers.0.lora_A.weight": np.zeros((2, 2), np.float32)}}, "tensor"),
        ({"arrays": pair(layer=7)}, r"blk\.7\.attn_q"),
        ({"arrays": pair(outputs=9)}, "another model's"),
        ({"arrays": {name: each * np.nan for name, each in pair().items()}}, "not finite"),
    ],
)
def test_what_would_be_applied_otherwise_or_fits_no_matrix_is_refused(
    engines_dir: Path, tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    arrays = changes.pop("arrays", None)
    source = peft(tmp_path / "a", arrays, **changes)  # type: ignore[arg-type]  # arrays, or none
    with pytest.raises(PrepareError, match=why):
        add(engines_dir, source)
    directory = shelf.find(engines_dir, "mine")
    assert adapters_of(directory) == ()
    assert [*(directory / FOLDER).iterdir()] == []


def test_what_cannot_be_read_or_written_is_told_in_a_sentence(
    engines_dir: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PrepareError, match=r"adapter style: .*pipe. is a named pipe"):
        add(engines_dir, tmp_path / "pipe")
    directory = shelf.find(engines_dir, "mine")
    (directory / FOLDER).rmdir()
    (directory / FOLDER).write_bytes(b"")
    with pytest.raises(PrepareError, match=rf"{FOLDER}/{LIST} cannot be read"):
        add(engines_dir, gguf_file(tmp_path / "a.gguf"))


def test_a_pickle_is_never_opened(engines_dir: Path, tmp_path: Path) -> None:
    source = peft(tmp_path / "a")
    (source / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(PrepareError, match=r"adapter_model\.bin"):
        add(engines_dir, source)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"architecture": "llama"}, "general.architecture: found b'llama'"),
        ({"kind": "model"}, "general.type: found b'model', expected 'adapter'"),
        ({"alpha": float("nan")}, "adapter.lora.alpha: found nan"),
        ({"activated": True}, "invocation_tokens"),
        ({"arrays": {"blk.0.attn_q.weight": np.zeros((2, 2), np.float32)}}, r"\.lora_a, \.lora_b"),
        ({"arrays": {"x.lora_a": np.zeros((2, 2), np.float32)}}, "lora_a alone"),
        (
            {"arrays": {f"x.lora_{h}": np.zeros((2, 2), np.float32) for h in "ab"}},
            "one for a matrix of the model",
        ),
        ({"arrays": {f"x.lora_{h}": np.zeros((2, 2), np.int8) for h in "ab"}}, "I8"),
    ],
)
def test_a_file_that_is_no_adapter_of_this_model_is_refused(
    engines_dir: Path, tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    source = gguf_file(tmp_path / "a.gguf", **changes)  # type: ignore[arg-type]  # each its own
    with pytest.raises(PrepareError, match=why):
        add(engines_dir, source)
    assert adapters_of(shelf.find(engines_dir, "mine")) == ()


def test_a_file_cut_short_is_refused(engines_dir: Path, tmp_path: Path) -> None:
    source = gguf_file(tmp_path / "a.gguf")
    source.write_bytes(source.read_bytes()[:-64])
    with pytest.raises(PrepareError, match="may be incomplete"):
        add(engines_dir, source)


# --- TensorRT-LLM --------------------------------------------------------------------------------


def test_tensorrt_llm_gets_pefts_files_as_they_are_and_is_started_for_them(
    engines_dir: Path, tmp_path: Path
) -> None:
    directory = shelf.find(engines_dir, "mine")
    write_card(directory, replace(read_card(directory), kind="trtllm"))
    source = write_adapter(tmp_path / "source", TINY, rank=3)
    one = add(engines_dir, source).adapter
    folder = directory / FOLDER / one.place
    assert one.place == "style"
    for name in (CONFIG, WEIGHTS):
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    two = add(engines_dir, write_adapter(tmp_path / "two", TINY, rank=5), "legal").adapter
    assert lora_arguments(()) == {}
    assert lora_arguments((one, two)) == {
        "lora_config": {
            "lora_target_modules": ["attn_q", "attn_k", "attn_v", "attn_dense"],
            "max_lora_rank": 5,
            "max_loras": 2,
            "max_cpu_loras": 2,
        }
    }
    adapter_changes.remove(engines_dir, "mine", "style")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (lambda path: gguf_file(path / "a.gguf"), "is a file; give a directory"),
        (
            lambda path: peft(
                path / "a", {n.replace("self_attn.q", "mlp.up"): e for n, e in pair().items()}
            ),
            "ffn_up",
        ),
        (lambda path: peft(path / "a", pair(layer=70)), "layer 70"),
        (lambda path: peft(path / "a", pair(outputs=9)), "another model's"),
    ],
)
def test_what_tensorrt_llm_would_not_apply_is_refused(
    engines_dir: Path, tmp_path: Path, source: object, why: str
) -> None:
    directory = shelf.find(engines_dir, "mine")
    card: Card = replace(read_card(directory), kind="trtllm")
    write_card(directory, card)
    assert callable(source)
    with pytest.raises(PrepareError, match=why):
        add(engines_dir, source(tmp_path))
    assert [*(directory / FOLDER).iterdir()] == []
