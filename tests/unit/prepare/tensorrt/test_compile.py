"""Compiling for real, on a machine without a GPU: what is built, what is listed, what it weighs.

About 16 s on one core: sixteen plans, each in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.graphs import spec_of
from tests.support.tensorrt import named_binding
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import FINISHED, engine_file, sha256_of
from trt_responses.prepare.graph.weights import input_name
from trt_responses.prepare.hardware import visible_gpus
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.pipeline import BuildTools, Built
from trt_responses.prepare.shelf.card import CARD, chain_of, read_card
from trt_responses.prepare.shelf.plans import release_in
from trt_responses.prepare.shelf.shelf import difference
from trt_responses.prepare.tensorrt.build import Compiler, prepare
from trt_responses.prepare.tensorrt.job import CompileResult, compiled
from trt_responses.prepare.tensorrt.options import TensorRtOptions

if TYPE_CHECKING:
    from trt_responses.prepare.tensorrt.job import CompileJob
    from trt_responses.prepare.tensorrt.network import Listing
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = [
    pytest.mark.xdist_group("tensorrt"),  # its fixtures are made once per process
    pytest.mark.slow,  # 16 s: sixteen plans are compiled
]

SMALL = replace(TINY, layers=2, intermediate=1024, experts=16)
"""Experts that weigh enough to see how they are kept: 3.1 million weights a layer."""
EXPERT_WEIGHTS = 3 * SMALL.experts * SMALL.hidden * SMALL.intermediate
WISH = TensorRtOptions(length=512, chunk=128, top=20)
CHAIN = ("embed", "layers_00_00", "layers_01_01", "head")


@dataclass
class Made:
    """An engine, and what the compiling process told of each of its plans."""

    built: Built
    results: dict[str, CompileResult] = field(default_factory=dict)

    def listing(self, name: str) -> Listing:
        return self.results[name].listing


class Watched:
    """The real compiler; remembers results, and stops like a killed run before one of them."""

    def __init__(self, stop_before: int | None = None) -> None:
        self.results: dict[str, CompileResult] = {}
        self._stop_before = stop_before

    def __call__(self, job: CompileJob) -> CompileResult:
        if len(self.results) == self._stop_before:
            raise KeyboardInterrupt
        plan = Path(job.plan)
        result = self.results[f"{plan.parent.name}/{plan.stem}"] = compiled(job)
        return result


def made(engines: Path, checkpoint: Path, vocabulary: Vocabulary, wish: TensorRtOptions) -> Made:
    watched = Watched()
    compiler = Compiler(named_binding, watched, present=lambda: None)
    tools = BuildTools(vocabulary)
    built = prepare(checkpoint, engines, checkpoint.name, tools, wish, compiler=compiler)
    return Made(built, watched.results)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "packed", Recipe(SMALL, "mxfp4"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "plain", Recipe(SMALL, "bf16"))


@pytest.fixture(scope="module")
def two_families(engines: Path, packed: Path, vocabulary: Vocabulary) -> Made:
    """MXFP4 for one GPU, exact INT8 for the other, each as a chain of two groups."""
    return made(engines, packed, vocabulary, replace(WISH, targets=("sm120", "sm86"), group=1))


@pytest.fixture(scope="module")
def turing(engines: Path, packed: Path, vocabulary: Vocabulary) -> Made:
    elsewhere = engines / "turing"  # or it would leave its digests to whoever comes after it
    return made(elsewhere, packed, vocabulary, replace(WISH, targets=("sm75",)))


@pytest.fixture(scope="module")
def stopped(engines: Path, plain: Path, vocabulary: Vocabulary) -> Path:
    """What a run leaves that is stopped after its first plan."""
    compiler = Compiler(named_binding, Watched(stop_before=1), present=lambda: None)
    with pytest.raises(KeyboardInterrupt):
        prepare(plain, engines, plain.name, BuildTools(vocabulary), WISH, compiler=compiler)
    (directory,) = (path for path in (engines / plain.name).iterdir() if path.is_dir())
    assert (directory / FINISHED).exists()
    with pytest.raises(PrepareError, match="did not finish"):
        read_card(directory)
    return directory


@pytest.fixture(scope="module")
def dense(stopped: Path, engines: Path, plain: Path, vocabulary: Vocabulary) -> Made:
    """The same run again: without named targets, for every GPU that has bfloat16."""
    return made(engines, plain, vocabulary, WISH)


def test_one_preparation_compiles_a_chain_for_each_family_and_its_card_holds(
    two_families: Made,
) -> None:
    directory, card, phases, _ = two_families.built
    assert phases == (
        *("validate", "graph"),
        *(f"{family}/{name}.plan" for family in ("sm86", "sm120") for name in CHAIN),
    )
    assert read_card(directory) == card
    assert difference(card, directory, this_machine(), deep=True) is None
    chain = chain_of(card)
    assert [(f.targets, f.weights, f.exact) for f in chain.compiled] == [
        (("sm86",), "int8", True),
        (("sm120",), "mxfp4", True),
    ]
    assert (card.kind, card.status, chain.element) == ("tensorrt", "built", "bfloat16")
    assert (chain.flavour, chain.release) == ("rtx", named_binding().version)
    assert not (directory / FINISHED).exists()
    stored = {file.name for file in card.files}
    on_disk = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    assert on_disk == stored | {CARD}


def test_every_plan_says_which_release_made_it(two_families: Made) -> None:
    plans = sorted(two_families.built.directory.rglob("*.plan"))
    assert len(plans) == 8
    assert {release_in(path) for path in plans} == {named_binding().version}


def test_the_card_gives_back_the_graph_s_own_plan(two_families: Made, packed: Path) -> None:
    plan = spec_of(two_families.built.card)
    assert plan.architecture == open_checkpoint(packed).architecture
    assert (plan.slots, plan.length, plan.chunk, plan.top) == (4, 512, 128, 20)
    assert plan.groups == (range(1), range(1, 2))


def test_a_compiled_layer_asks_for_what_the_graph_does_but_for_its_experts(
    two_families: Made,
) -> None:
    """Names, in the graph's order, with the experts' weights gone inside."""
    for link in chain_of(two_families.built.card).links:
        experts = {input_name(n, p) for n in range(2) for p in ("gate_up", "down")}
        for family in ("sm86", "sm120"):
            listing = two_families.listing(f"{family}/{link.name}")
            assert [p.name for p in listing.inputs] == [n for n in link.inputs if n not in experts]
            assert [p.name for p in listing.outputs] == list(link.outputs)


def test_caches_hidden_states_and_logits_have_the_types_and_shapes_of_the_contract(
    two_families: Made,
) -> None:
    layer = two_families.listing("sm120/layers_01_01")
    ports = {p.name: (p.type, p.shape) for p in (*layer.inputs, *layer.outputs)}
    cache = ("BF16", (-1, SMALL.kv_heads, 513, SMALL.head_dim))
    hidden = ("BF16", (-1, -1, SMALL.hidden))
    assert ports == {
        "hidden": hidden,
        "lens": ("INT64", (-1,)),
        **{f"{when}_{kv}_1": cache for when in ("past", "present") for kv in "kv"},
        "hidden_out": hidden,
        "overflow": ("INT64", (1,)),
    }
    head = {p.name: (p.type, p.shape) for p in two_families.listing("sm120/head").outputs}
    assert head == {
        "values": ("FLOAT", (-1, 20)),
        "ids": ("INT64", (-1, 20)),
        "lse": ("FLOAT", (-1,)),
        "logits": ("FLOAT", (-1, SMALL.vocabulary)),
    }


def test_one_profile_decodes_all_slots_and_the_other_fills_one(two_families: Made) -> None:
    decode, prefill = two_families.listing("sm86/layers_00_00").profiles
    assert decode["hidden"] == ((4, 1, 64),) * 3
    assert prefill["hidden"] == ((1, 1, 64), (1, 128, 64), (1, 128, 64))
    assert decode["past_k_0"] == ((4, 2, 513, 64),) * 3
    assert prefill["past_k_0"] == ((1, 2, 513, 64),) * 3
    assert (decode["lens"], prefill["lens"]) == (((4,),) * 3, ((1,),) * 3)


def test_the_network_updates_its_caches_in_place_and_dequantises_each_expert_matrix_once(
    two_families: Made, dense: Made
) -> None:
    for family in ("sm86", "sm120"):
        kinds = two_families.listing(f"{family}/layers_00_00").layers
        assert (kinds["KV_CACHE_UPDATE"], kinds["ATTENTION_INPUT"]) == (2, 1)
        assert kinds["DEQUANTIZE"] == 2
    folder = chain_of(dense.built.card).compiled[0].folder
    kinds = dense.listing(f"{folder}/layers_00_01").layers
    assert (kinds["KV_CACHE_UPDATE"], kinds["ATTENTION_INPUT"]) == (4, 2)
    assert "DEQUANTIZE" not in kinds


def test_a_plan_s_size_proves_how_many_bits_an_expert_s_weight_takes(
    two_families: Made, dense: Made
) -> None:
    """The rest of two layers alike is alike too, so what differs is the experts: 4.25 or 8.5."""
    four, eight = (
        two_families.results[f"{family}/layers_00_00"].size_bytes for family in ("sm120", "sm86")
    )
    assert (eight - four) * 8 / EXPERT_WEIGHTS == pytest.approx(8.5 - 4.25, rel=0.1)
    folder = chain_of(dense.built.card).compiled[0].folder
    assert dense.results[f"{folder}/layers_00_01"].size_bytes > 2 * EXPERT_WEIGHTS * 2


def test_turing_gets_float16_and_eight_bits(turing: Made) -> None:
    chain = chain_of(turing.built.card)
    (family,) = chain.compiled
    assert (family.targets, family.weights, chain.element) == (("sm75",), "int8", "float16")
    assert family.exact  # every scale of this checkpoint is within float16
    assert {p.type for p in turing.listing("sm75/layers_00_01").inputs} == {"HALF", "INT64"}


def test_one_engine_of_a_checkpoint_without_mxfp4_serves_every_gpu_with_bfloat16(
    dense: Made,
) -> None:
    (family,) = chain_of(dense.built.card).compiled
    assert family.targets == ("sm80", "sm86", "sm89", "sm120", "sm121")
    assert (family.weights, family.exact) == ("bf16", True)
    assert family.folder == "sm80_sm86_sm89_sm120_sm121"
    assert family.size_bytes == sum(p.stat().st_size for p in dense.built.directory.rglob("*.plan"))


def test_a_killed_run_is_no_engine_and_the_next_repeats_nothing_that_is_whole(
    stopped: Path, dense: Made
) -> None:
    assert stopped == dense.built.directory
    folder = chain_of(dense.built.card).compiled[0].folder
    assert dense.built.phases == (f"{folder}/layers_00_01.plan", f"{folder}/head.plan")
    assert difference(dense.built.card, stopped, this_machine(), deep=True) is None


def test_a_second_run_finds_everything_there(
    dense: Made, plain: Path, engines: Path, vocabulary: Vocabulary
) -> None:
    again = made(engines, plain, vocabulary, WISH)
    assert again.built == Built(dense.built.directory, dense.built.card, ())


def test_plans_of_another_release_are_refused_with_the_remedy(tmp_path: Path, turing: Made) -> None:
    card = turing.built.card
    directory = shutil.copytree(turing.built.directory, tmp_path / card.name / card.version)
    head = directory / "sm75" / "head.plan"
    with head.open("r+b") as file:
        file.seek(24)
        file.write(bytes((1, 6, 0, 9)))
    assert "SHA-256" in (difference(card, directory, this_machine(), deep=True) or "")
    changed = engine_file(head, sha256_of(head), "sm75")
    files = tuple(changed if file.name == changed.name else file for file in card.files)
    told = difference(replace(card, files=files), directory, this_machine())
    assert told is not None
    assert told.startswith("sm75/head.plan: compiled by TensorRT 1.6.0.9, installed is 1.7")
    assert "prepare the engine again, or pip install tensorrt_rtx_cu13_libs==1.6.0.9." in told
    (directory / "sm75" / "head.plan").write_bytes(b"no plan at all, and no head of one")
    changed = engine_file(head, sha256_of(head), "sm75")
    files = tuple(changed if file.name == changed.name else file for file in card.files)
    told = difference(replace(card, files=files), directory, this_machine())
    assert "sm75/head.plan: found no plan" in (told or "")


def test_what_the_compiler_cannot_do_is_told_in_its_own_words_and_leaves_no_plan(
    tmp_path: Path, two_families: Made, packed: Path
) -> None:
    """FP4 for a GPU without it, asked past our own table: the library refuses it too. About 1 s."""
    from trt_responses.prepare.tensorrt.job import CompileJob
    from trt_responses.prepare.tensorrt.targets import Family

    graph = two_families.built.directory / "graph" / "layers_00_00.onnx"
    plan = tmp_path / "layers_00_00.plan"
    family = Family(("sm86",), "mxfp4", "bfloat16")
    job = CompileJob(str(packed), str(graph), str(plan), family, 4, 128, 512)
    with pytest.raises(PrepareError, match=r"cannot compile it for sm86: .*fp4_e2m1"):
        compiled(job)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(bool(visible_gpus()[0]), reason="the server would start on this machine's GPU")
def test_serving_plans_without_a_gpu_is_refused_in_one_sentence(dense: Made, engines: Path) -> None:
    """A server that does not start; about 3 s."""
    command = [sys.executable, "-m", "trt_responses", "serve", "--engine", "plain", "--port", "0"]
    done = subprocess.run(
        [*command, "--engines-dir", str(engines)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("trt-responses: TensorRT plans run on an NVIDIA GPU"), done.stderr
    assert last.endswith("prepared with KIND=onnx.")
