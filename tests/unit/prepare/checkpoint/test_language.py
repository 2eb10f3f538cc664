"""Where the chat template of a Hugging Face directory is found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.tiny_hf import ROWS, write_tiny_hf
from trt_responses.prepare.checkpoint.language import TEMPLATE, TOKENIZER_CONFIG, language_of
from trt_responses.prepare.faults import PrepareError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_tiny_hf(tmp_path / "m")


def template(directory: Path) -> object:
    keys, _ = language_of(directory, {}, ROWS)
    return keys["tokenizer.chat_template"]


def test_a_file_of_its_own_comes_before_the_tokenisers_file(directory: Path) -> None:
    of_tokeniser, own = directory / TOKENIZER_CONFIG, directory / TEMPLATE
    of_tokeniser.write_text(json.dumps({"chat_template": "old"}))
    own.write_text("new")
    assert template(directory) == "new"
    own.unlink()
    assert template(directory) == "old"
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    of_tokeniser.write_text(json.dumps({"chat_template": named}))
    assert template(directory) == "tools"
    of_tokeniser.write_text(json.dumps({"chat_template": named[:1]}))
    assert template(directory) == "plain"


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[]", b'{"chat_template": []}'])
def test_a_tokenisers_file_that_cannot_be_read_is_refused(directory: Path, data: bytes) -> None:
    (directory / TEMPLATE).unlink()
    (directory / TOKENIZER_CONFIG).write_bytes(data)
    with pytest.raises(PrepareError):
        template(directory)
