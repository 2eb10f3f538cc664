"""What a hostile or broken checkpoint may have: each is refused in a sentence, and at once."""

from __future__ import annotations

import json
import random
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint, write_json
from tests.support.cards import carded
from tests.support.sampled import sampled
from trt_responses.prepare.checkpoint.open import INDEX, open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.shelf.card import CARD, read_card

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = replace(TINY, layers=1, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=32)
DIGITS = 10**3999
SINKS = "model.layers.0.self_attn.sinks"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", Recipe(SMALL, sparse=True))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", Recipe(SMALL, sparse=True, shards=2))


def refused(directory: Path) -> str:
    with pytest.raises(PrepareError) as caught:
        open_checkpoint(directory)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 2000
    return sentence


def headed(directory: Path, header: object) -> Path:
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return directory


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [
        ([DIGITS], [0, 4]),
        ([DIGITS, DIGITS], [0, 4]),
        ([0, DIGITS], [0, 0]),
        ([DIGITS] * 2000, [0, 4]),
        ([1] * 2000, [0, 1]),
        ([4], [DIGITS, DIGITS + 4]),
        ([4], [0, DIGITS]),
    ],
    ids=["one", "two", "times nothing", "two thousand", "dimensions", "far", "long"],
)
def test_sizes_of_thousands_of_digits_are_refused_at_once(
    directory: Path, shape: list[int], offsets: list[int]
) -> None:
    headed(directory, {"a": {"dtype": "U8", "shape": shape, "data_offsets": offsets}})
    began = time.process_time()
    assert "model.safetensors, tensor 'a'" in refused(directory)
    assert time.process_time() - began < 2  # the product of two thousand takes 20


@pytest.mark.parametrize("name", ["x" * 300, "\ud800", "a\nb", "é" * 200, "." * 254 + "."])
def test_a_shard_name_that_no_file_can_have_is_refused(sharded: Path, name: str) -> None:
    index = json.loads((sharded / INDEX).read_text("utf-8"))
    index["weight_map"][SINKS] = f"{name}.safetensors"
    write_json(sharded / INDEX, index)
    assert "found no such file" in refused(sharded)


def test_a_tensor_name_of_a_megabyte_is_not_repeated(directory: Path) -> None:
    name = "n" * 1_000_000
    headed(directory, {name: {"dtype": "U8", "shape": [4], "data_offsets": [0, 5]}})
    assert "nnn…" in refused(directory)


def test_an_index_of_many_names_looks_at_each_shard_once(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text("utf-8"))
    shard = next(iter(index["weight_map"].values()))
    index["weight_map"] |= {f"extra.{n}": shard for n in range(100_000)}
    write_json(sharded / INDEX, index)
    began = time.process_time()
    assert "tensor 'extra.0'" in refused(sharded)
    assert time.process_time() - began < 2


def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / ("x" * 300))


ODD: tuple[object, ...] = (
    *(None, True, -1, 0, 0.5, 1e308, float("inf"), float("nan"), 2**53, 2**64, DIGITS),
    *("", "x" * 300, "\ud800", "\0", "../a", [], {}, [[]], {"a": 1}, [DIGITS] * 3, ["a"] * 2),
)
"""What stands where something else is expected."""


def spots(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Every place within a JSON value."""
    pairs: list[tuple[object, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    return [path, *(spot for key, each in pairs for spot in spots(each, (*path, key)))]


def mutated(value: object, rng: random.Random) -> object:
    """One place of it made odd, removed, or renamed."""
    value = json.loads(json.dumps(value))
    path = rng.choice(spots(value))
    if not path:
        return rng.choice(ODD)
    within = value
    for step in path[:-1]:
        within = within[step]  # type: ignore[index]  # a place of it
    last, kind = path[-1], rng.randrange(4)
    if kind == 0:
        del within[last]  # type: ignore[attr-defined]  # likewise
    elif kind == 1 and isinstance(within, dict):
        within[rng.choice(("x" * 300, "\ud800", "a\nb", ""))] = within.pop(last)
    else:
        within[last] = rng.choice(ODD)  # type: ignore[index]  # likewise
    return value


def refusal_of(read: Callable[[], object]) -> str | None:
    try:
        read()
    except PrepareError as error:
        return str(error)
    return None


def header_of(path: Path) -> object:
    text = path.read_bytes()
    (length,) = struct.unpack("<Q", text[:8])
    return json.loads(text[8 : 8 + length])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("layout", ["hf", "original"])
@pytest.mark.parametrize("which", ["config", "index", "header"])
def test_no_change_of_a_checkpoint_s_files_ends_in_anything_but_a_sentence(
    tmp_path: Path, which: str, layout: str, seed: int
) -> None:
    """Forty changes each, one upon another; what is refused starts anew."""
    recipe = Recipe(SMALL, sparse=True, shards=2, layout=layout)  # type: ignore[arg-type]  # one of both
    directory = write_checkpoint(tmp_path / "source", recipe)
    shard = directory / "model-00001-of-00002.safetensors"
    path = {"config": directory / "config.json", "index": directory / INDEX, "header": shard}[which]
    original = header_of(path) if which == "header" else json.loads(path.read_text("utf-8"))
    size_bytes = shard.stat().st_size
    rng, value, refusals = random.Random(seed), original, 0
    for _ in range(40):
        value = mutated(value, rng)
        text = json.dumps(value).encode()
        if which == "header":
            with path.open("wb") as file:
                file.write(struct.pack("<Q", len(text)) + text)
                file.truncate(size_bytes)
        else:
            path.write_bytes(text)
        if sentence := refusal_of(lambda: open_checkpoint(directory)):
            assert sentence.isprintable()
            value, refusals = original, refusals + 1
    assert refusals


@sampled("seed", range(10), every=5)  # 4 s
def test_no_change_of_a_card_ends_in_anything_but_a_sentence(tmp_path: Path, seed: int) -> None:
    _, directory = carded(tmp_path)
    original = json.loads((directory / CARD).read_text("utf-8"))
    rng = random.Random(seed)
    for _ in range(60):
        (directory / CARD).write_text(json.dumps(mutated(original, rng)), "utf-8")
        assert (refusal_of(lambda: read_card(directory)) or "").isprintable()
