"""The kind `onnx`: the graph alone, with the experts beside it, verified before its card says so.

About 5 s on one core: four graphs of a small model are written.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.graphs import spec_of
from tests.support.scripted.engine import Die, Script, ScriptedEngine
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import EXPERTS, FINISHED, GRAPH
from trt_responses.prepare.graph.weights import dense, open_experts
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.pipeline import BuildTools, Built
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import CARD, architecture_of, chain_of, compare, read_card
from trt_responses.prepare.tensorrt.build import prepare
from trt_responses.prepare.tensorrt.options import TensorRtOptions

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.shelf.card import Card
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = pytest.mark.xdist_group("bare-graph")  # its fixtures are made once per process

SMALL = replace(TINY, layers=2, hidden=32)
WISH = TensorRtOptions("onnx", length=256, chunk=64)
FEWER = replace(WISH, slots=2)
DEAD = Script((Die("no memory"),))
ANSWER = (200_005, 17_196, 200_002)


def answering(directory: Path, card: Card) -> ScriptedEngine:
    """Over the engine's directory, which is whole before it is asked."""
    assert card.status == "built"
    assert compare(card, directory, this_machine(), deep=True) is None
    return ScriptedEngine([Script((ANSWER,))])


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "packed", Recipe(SMALL, "mxfp4"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, packed: Path, vocabulary: Vocabulary) -> Built:
    """One that tests look at and leave alone; no engine has verified it."""
    return prepare(packed, tmp_path_factory.mktemp("engines"), "mine", BuildTools(vocabulary), WISH)


def test_a_bare_graph_is_written_verified_and_found_again(
    tmp_path: Path, packed: Path, vocabulary: Vocabulary
) -> None:
    tools = BuildTools(vocabulary, engine_for=answering)
    built = prepare(packed, tmp_path, "mine", tools, WISH)
    assert built.phases == ("validate", "graph", "verify")
    card = read_card(built.directory)
    assert card == built.card
    assert (card.kind, card.status, card.weight_type) == ("onnx", "verified", "f32")
    assert card.greedy_ids == ANSWER
    chain = chain_of(card)
    assert (chain.flavour, chain.release, chain.compiled) == ("none", "", ())
    assert spec_of(card).groups == (range(2),)
    names = {
        f"{GRAPH}/{n}.{end}" for n in ("embed", "layers_00_01", "head") for end in ("onnx", "data")
    }
    assert {file.name for file in card.files} == names | {f"{GRAPH}/{EXPERTS}"}
    assert compare(card, built.directory, this_machine(), deep=True) is None
    assert not (built.directory / FINISHED).exists()
    assert prepare(packed, tmp_path, "mine", tools, WISH) == Built(built.directory, card, ())
    (entry,) = shelf.entries(tmp_path)
    assert entry.size_bytes > sum(file.size_bytes for file in card.files)
    for wanted in ("mine", f"mine/{card.version}"):
        assert shelf.select(tmp_path, wanted).directory == built.directory


def test_the_experts_beside_the_graph_are_the_checkpoint_s_own(bare: Built, packed: Path) -> None:
    assert (bare.card.status, bare.phases) == ("built", ("validate", "graph"))
    kept = open_experts(bare.directory / GRAPH, architecture_of(bare.card))
    source = open_checkpoint(packed)
    assert set(kept.tensors) < set(source.tensors)
    for layer in range(2):
        for projection in ("gate_up", "down"):
            found, expected = (dense(c, layer, projection, "float32") for c in (kept, source))
            np.testing.assert_array_equal(found, expected)


def test_an_engine_that_does_not_answer_leaves_no_card_and_the_next_run_only_verifies(
    tmp_path: Path, packed: Path, vocabulary: Vocabulary
) -> None:
    dead = BuildTools(vocabulary, engine_for=lambda path, card: ScriptedEngine([DEAD]))
    with pytest.raises(PrepareError, match="no memory"):
        prepare(packed, tmp_path, "mine", dead, WISH)
    assert not list(tmp_path.rglob(CARD))
    with pytest.raises(PrepareError, match="did not finish"):
        shelf.select(tmp_path, "mine")
    again = prepare(packed, tmp_path, "mine", BuildTools(vocabulary, engine_for=answering), WISH)
    assert (again.phases, again.card.status) == (("verify",), "verified")
    (again.directory / GRAPH / "head.data").write_bytes(b"cut short")
    told = compare(again.card, again.directory, this_machine())
    assert told is not None
    assert told.startswith("graph/head.data: found 9 bytes")


def test_what_decides_the_files_decides_the_version(
    tmp_path: Path, bare: Built, packed: Path, vocabulary: Vocabulary
) -> None:
    """The numbers of the wish among it."""
    directory = bare.directory
    other = prepare(packed, tmp_path, directory.parent.name, BuildTools(vocabulary), FEWER)
    assert other.directory.name != directory.name
    again = prepare(
        packed, directory.parents[1], directory.parent.name, BuildTools(vocabulary), WISH
    )
    assert (again.directory, again.phases) == (directory, ())


def test_removing_a_version_takes_what_a_runtime_kept_beside_it(
    tmp_path: Path, packed: Path, vocabulary: Vocabulary
) -> None:
    built = prepare(packed, tmp_path, "mine", BuildTools(vocabulary), WISH)
    kept = built.directory.with_name(f"{built.card.version}.cache")
    (kept / "sm120").mkdir(parents=True)
    (kept / "sm120" / "head.cache").write_bytes(b"compiled here")
    shelf.remove(tmp_path, f"mine/{built.card.version}")
    assert [path.name for path in (tmp_path / "mine").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    "name", ["../x", "graph/../x", "a/b/c", "/etc/passwd", "graph\\x", "graph/"]
)
def test_a_card_that_names_a_file_outside_is_refused(bare: Built, name: str) -> None:
    card = replace(bare.card, files=(replace(bare.card.files[0], name=name),))
    told = compare(card, bare.directory, this_machine())
    assert f"the card names {name!r}" in (told or "")


@pytest.mark.parametrize(
    ("field", "value"), [("element", "float8"), ("slots", "four"), ("links", 3), ("unknown", 1)]
)
def test_a_wrong_field_of_the_chain_is_named(
    tmp_path: Path, bare: Built, field: str, value: object
) -> None:
    card = json.loads((bare.directory / CARD).read_text("utf-8"))
    card["chain"][field] = value
    (tmp_path / CARD).write_text(json.dumps(card), "utf-8")
    with pytest.raises(PrepareError, match=rf"card\.json, chain, {field}"):
        read_card(tmp_path)
