"""A GGUF file as people download it: what is checked, and what becomes of it.

About 8 s in all on one core: each file has the whole vocabulary in it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from scripts.gguf_model import planned_bytes
from tests.support.downloads import write_download
from tests.support.sampled import sampled
from tests.support.scripted.engine import Script, ScriptedEngine
from trt_responses.engines.stand_ins import is_whole
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.llamacpp.gguf_checkpoint import open_gguf
from trt_responses.prepare.llamacpp.gguf_file import read_gguf
from trt_responses.prepare.pipeline import BuildTools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.pipeline import Built
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = pytest.mark.xdist_group("written vocabulary")  # 5 s, once per process

SMALL = replace(
    TINY, layers=2, hidden=32, intermediate=64, heads=2, kv_heads=1, head_dim=32, experts=3
)
ANSWER = (200_005, 17_196, 200_002)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source")
    return open_checkpoint(write_checkpoint(folder / "small", Recipe(SMALL, form="mxfp4")))


@pytest.fixture(scope="module")
def download(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Checkpoint, vocabulary: Vocabulary
) -> Path:
    path = tmp_path_factory.mktemp("download") / "Small-MXFP4.gguf"
    write_download(checkpoint, path, vocabulary)
    return path


class Prepared(NamedTuple):
    built: Built
    said: list[str]
    again: Built


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, download: Path, vocabulary: Vocabulary
) -> Prepared:
    """The download as an engine, and what a second run finds."""
    said: list[str] = []
    tools = BuildTools(
        vocabulary,
        engine_for=lambda directory, card: ScriptedEngine([Script((ANSWER,))]),
        say=said.append,
    )
    home = tmp_path_factory.mktemp("engines")
    first, again = (prepare(download, home, "mine", tools) for _ in range(2))
    return Prepared(first, said, again)


def test_a_download_is_checked_and_carded_and_its_weights_stay_byte_for_byte(
    prepared: Prepared, download: Path, checkpoint: Checkpoint
) -> None:
    built = prepared.built
    card = built.card
    assert built.phases == ("validate", "copy", "verify")
    assert (card.kind, card.weight_type, card.status) == ("llamacpp", "gguf", "verified")
    assert (card.source.name, card.source.layout) == ("Small-MXFP4", "gguf")
    assert card.architecture == checkpoint.architecture
    (said,) = prepared.said
    assert re.search(r"Preparing mine \(llamacpp, gguf\) from .* needs .* of disk .* about", said)
    given, made = read_gguf(download), read_gguf(built.directory / "model.gguf")
    assert {tensor.kind.name for tensor in given.tensors.values()} == {"F32", "MXFP4", "Q8_0"}
    assert given.tensors.keys() == made.tensors.keys()
    for name, tensor in given.tensors.items():
        assert made.tensors[name].kind == tensor.kind
        np.testing.assert_array_equal(made.tensors[name].read(), tensor.read())
    assert prepared.again.phases == ()


def test_ids_that_end_inside_a_character_get_names_that_llama_cpp_streams(
    prepared: Prepared, download: Path, vocabulary: Vocabulary
) -> None:
    given, made = (
        read_gguf(path).keys["tokenizer.ggml.tokens"]
        for path in (download, prepared.built.directory / "model.gguf")
    )
    assert isinstance(given, list)
    assert isinstance(made, list)
    split = {n for n, raw in enumerate(vocabulary.token_bytes) if not is_whole(raw)}
    assert {n for n, pair in enumerate(zip(given, made, strict=True)) if len({*pair}) > 1} == split


@pytest.mark.slow  # 3 s: a vocabulary in three files
def test_the_parts_of_a_file_are_one_checkpoint(
    checkpoint: Checkpoint, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    first, second = (tmp_path / f"small-0000{n}-of-00002.gguf" for n in (1, 2))
    write_download(checkpoint, first, vocabulary, tensors=slice(9))
    with pytest.raises(PrepareError, match=r"small-00002-of-00002\.gguf: found no such file"):
        open_gguf(first, vocabulary)
    write_download(checkpoint, second, vocabulary, tensors=slice(9, None))
    found = open_gguf(first, vocabulary)
    assert found.name == "small"
    assert found.files == (first, second)
    assert found.size_bytes == planned_bytes(checkpoint, "q8_0")
    with pytest.raises(PrepareError, match="expected the first part"):
        open_gguf(second, vocabulary)


def changed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return change


def put(place: int, layout: str, value: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        packed = struct.pack(layout, value)
        return data[:place] + packed + data[place + len(packed) :]

    return change


def kind_of(name: bytes, dimensions: int, kind: int) -> Callable[[bytes], bytes]:
    """The type of a tensor, in the table behind its name and its dimensions."""

    def change(data: bytes) -> bytes:
        place = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        return put(place + 4 + 8 * dimensions, "<I", kind)(data)

    return change


REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no GGUF": (changed(b"GGUF", b"GGML"), "begins with b'GGML'"),
    "another version": (put(4, "<I", 1), "GGUF version 1"),
    "big-endian": (put(4, ">I", 3), "GGUF version 50331648"),
    "tensors without end": (put(8, "<Q", 2**60), "tensors, expected at most"),
    "keys without end": (put(16, "<Q", 2**60), "keys, expected at most"),
    "a name without end": (put(24, "<Q", 2**62), "expected a whole head"),
    "cut in the head": (lambda data: data[:5_000], "expected a whole head"),
    "cut in the weights": (lambda data: data[:-200_000], "the download may be incomplete"),
    "another model": (changed(b"gpt-oss", b"gpt-osz"), "general.architecture: found b'gpt-osz'"),
    "no context length": (changed(b"context_length", b"contexT_length"), "context_length"),
    "another vocabulary": (changed("Ġthe".encode(), "Ġtha".encode()), "token 290: found"),
    "another control id": (changed(b"<|channel|>", b"<|chennel|>"), "token 200005"),
    "a missing tensor": (changed(b"output_norm.weight", b"output_norn.weight"), "output_norm"),
    "a norm of another type": (kind_of(b"blk.0.attn_norm.weight", 1, 1), "found F16, expected F32"),
    "a type unknown": (kind_of(b"blk.0.attn_norm.weight", 1, 999), "of type 999"),
}


@sampled("case", REFUSED, every=3)  # 5 s: each reads a whole vocabulary
def test_a_file_that_is_not_whole_or_no_gpt_oss_is_refused_in_a_sentence(
    case: str, download: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    change, reason = REFUSED[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(change(download.read_bytes()))
    with pytest.raises(PrepareError) as caught:
        open_gguf(path, vocabulary)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.slow  # 2 s: each byte of a head
def test_no_change_of_one_byte_in_the_head_does_more_than_be_refused(
    download: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """In the keys and in the table; the words of the vocabulary are compared one by one above."""
    whole, path = download.read_bytes(), tmp_path / "bent.gguf"
    words = whole.index(b"tokenizer.ggml.tokens")
    table = whole.index(b"token_embd.weight")
    rng = np.random.default_rng(4)
    head = [*rng.integers(0, words, 8), *rng.integers(table - 8, table + 1_500, 8)]
    refused = 0
    for place in head:
        bent = bytearray(whole)
        bent[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bent)
        try:
            read_gguf(path)
        except PrepareError:
            refused += 1
    assert refused > 3
