"""The head of a GGUF file whose model does not speak Harmony: what of it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.tiny_gguf import write_tiny
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.gguf_file import read_gguf
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf, write_served

if TYPE_CHECKING:
    from pathlib import Path


def test_a_whole_file_is_taken_and_damaged_ones_are_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = write_tiny(tmp_path / "tiny.gguf", "qwen3", "qwen3")
    found = open_template_gguf(whole)
    assert found is not None
    assert found.model == "qwen3"
    data = whole.read_bytes()
    damaged = tmp_path / "damaged.gguf"
    for bad, reason in (
        (b"", "an empty file"),
        (data[:100], "a whole head"),
        (data[:-64], "may be incomplete"),
        (b"GGML" + data[4:], "begins with b'GGML'"),
        (data.replace(b"gpt2", b"bert", 1), "byte-level BPE"),
        (data.replace(b"<|im_end|>", b"\xff|im_end|>"), "no UTF-8"),
    ):
        damaged.write_bytes(bad)
        with pytest.raises(PrepareError, match=reason) as refused:
            open_template_gguf(damaged)
        assert "\n" not in str(refused.value)


def test_the_served_file_names_the_token_that_ends_a_guide(tmp_path: Path) -> None:
    """Where none was named llama.cpp took any of a few, by the order in a table of all names."""
    found = open_template_gguf(write_tiny(tmp_path / "tiny.gguf", "qwen3_5_think", "llama"))
    assert found is not None
    write_served(found, tmp_path / "served.gguf", lambda _: None)
    keys = read_gguf(tmp_path / "served.gguf").keys
    assert keys["tokenizer.ggml.eot_token_id"] == keys["tokenizer.ggml.eos_token_id"]
    names = keys["tokenizer.ggml.tokens"]
    assert isinstance(names, list)
    assert len(set(names)) == len(names)
