"""A Hugging Face directory of Qwen3 as a GGUF file: every weight in its place, and what is
refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from tests.support.cards import carded
from tests.support.tiny_hf import CONFIG, ROWS, write_tiny_hf
from trt_responses.backends.dialects import dialect_facts, dialect_of
from trt_responses.dialects.templates.checkpoint import speech_of
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.errors import StartupError
from trt_responses.prepare.checkpoint.safetensors import read_tensors, widen
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import DIALECT
from trt_responses.prepare.llamacpp.qwen3 import open_qwen3
from trt_responses.prepare.llamacpp.template_gguf import write_served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.dialect import Dialect

CALLS = {
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json"},
        "content": {"close": "<|im_end|>"},
    }
}


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_every_weight_is_written_as_it_was_stored(tmp_path: Path, dtype: str, tied: bool) -> None:
    directory = write_tiny_hf(tmp_path / "m", {"tie_word_embeddings": tied}, dtype=dtype)
    source = open_qwen3(directory)
    assert source is not None
    advanced: list[int] = []
    write_served(source, tmp_path / "model.gguf", advanced.append)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    stored = read_tensors(directory / "model.safetensors")
    assert len(reader.tensors) == len(stored) == len(advanced)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 2)
    written = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in stored.items():
        theirs = written[names.get_name(name, try_suffixes=(".weight",)) or ""]
        kind = "F32" if len(tensor.shape) == 1 else dtype
        assert theirs.tensor_type.name == kind
        raw = theirs.data.view(np.uint16) if kind == "BF16" else theirs.data
        assert tuple(reversed([int(n) for n in theirs.shape])) == tensor.shape
        assert np.array_equal(widen(raw).reshape(tensor.shape), widen(tensor.read()))
    keys = {name: field.contents() for name, field in reader.fields.items()}
    assert keys["qwen3.rope.freq_base"] == CONFIG["rope_theta"]
    assert keys["qwen3.attention.head_count_kv"] == 1
    assert len(keys["tokenizer.ggml.tokens"]) == ROWS


def test_its_language_is_read_from_its_own_files(tmp_path: Path) -> None:
    source = open_qwen3(write_tiny_hf(tmp_path / "m"))
    assert source is not None
    told = tmp_path / DIALECT
    told.write_text(json.dumps(source.vocabulary))
    speech = speech_of(told)
    spelled = [speech.tokeniser.controls[n] for n in speech.stop_ids]
    assert spelled == ["<|im_end|>", "<|endoftext|>"]
    assert speech.family.name == "qwen3"
    assert speech.tokeniser.text(speech.tokeniser.encode("Olá, 日本 1234")) == "Olá, 日本 1234"
    with pytest.raises(StartupError, match="no response_template"):
        speech_of(told, "response_template")


def test_a_checkpoint_that_says_how_it_is_read_is_read_so(tmp_path: Path) -> None:
    source = open_qwen3(write_tiny_hf(tmp_path / "m", response_template=CALLS))
    assert source is not None
    told = tmp_path / DIALECT
    told.write_text(json.dumps(source.vocabulary))
    found = speech_of(told).family
    assert (found.name, found.thought) == ("response_template", ("<think>", "</think>"))
    assert found.calls is not None
    assert found.calls.body == "json"
    assert speech_of(told, "response_template").family == found, "as its card names it"
    assert speech_of(told, "qwen3-xml").family.name == "qwen3-xml", "the operator's word is first"


@pytest.mark.parametrize("form", [None, {}, {"name": "qwen3", "gone": True}])
def test_a_card_of_another_release_is_read_again(tmp_path: Path, form: Any) -> None:
    source = open_qwen3(write_tiny_hf(tmp_path / "m"))
    assert source is not None
    card, place = carded(tmp_path)
    (place / DIALECT).write_text(json.dumps(source.vocabulary))
    facts = dialect_facts(place / DIALECT, None)
    assert facts.form is not None
    same = dialect_of(place, replace(card, dialect=facts))
    older = replace(card, dialect=replace(facts, form=form))

    async def serving() -> Dialect:
        return dialect_of(place, older)

    again = asyncio.run(serving())  # a version may be loaded while others serve
    assert isinstance(again, TemplateDialect)
    assert isinstance(same, TemplateDialect)
    assert again.form() == same.form() == facts.form
    assert again.takes == same.takes


def _config(**changed: object) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps(CONFIG | changed))

    return write


def _renamed(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "model.bin")


def _damaged(name: str, old: str, new: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        path = directory / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    return write


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (_config(model_type="qwen3_moe"), "'qwen3_moe', expected gpt_oss or qwen3"),
        (_config(model_type=["x"] * 9999), "convert_hf_to_gguf"),
        (_config(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "rope_scaling"),
        (_config(rope_parameters={"rope_type": "yarn"}), "rope_parameters"),
        (_config(rope_parameters=[1]), "rope_parameters"),
        (_config(use_sliding_window=True), "use_sliding_window"),
        (_config(attention_bias=True), "attention_bias"),
        (_config(quantization_config={"quant_method": "fp8"}), "quantization_config"),
        (_config(num_hidden_layers=10**6), "at most 1000"),
        (_config(num_hidden_layers=3), "layers.2"),
        (_config(hidden_size=32), "shape"),
        (_config(head_dim=None), "head_dim"),
        (_config(rms_norm_eps=float("inf")), "rms_norm_eps"),
        (_damaged("tokenizer.json", '{"id": ', '{"id": 9'), "expected one below 512"),
        (_config(tie_word_embeddings=False), "lm_head"),
        (_renamed, "pickle"),
        (_damaged("tokenizer.json", '"merges"', '"merge"'), "byte-level BPE"),
        (_damaged("tokenizer.json", '"vocab"', '"vocap"'), "byte-level BPE"),
        (lambda d: (d / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda d: (d / "chat_template.jinja").unlink(), "no chat template"),
        (lambda d: (d / "chat_template.jinja").write_bytes(b"\xff"), "UTF-8"),
    ],
)
def test_another_model_or_a_damaged_one_is_refused_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], Any], word: str
) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    damage(directory)
    with pytest.raises(PrepareError, match=word) as refused:
        open_qwen3(directory)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_directory_of_gpt_oss_is_left_to_its_own_converter(tmp_path: Path) -> None:
    for config in ({"model_type": "gpt_oss"}, {"num_experts": 32}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert open_qwen3(tmp_path) is None
    assert open_qwen3(tmp_path / "config.json") is None
