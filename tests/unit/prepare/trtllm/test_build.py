"""Preparing an engine for TensorRT-LLM: planned without a GPU, whole on the stand-in's package.

Budget: 8 s on one core, most of it the digest of a small checkpoint and the warm-up's 127 requests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml  # type: ignore[import-untyped]  # the judge of our YAML; it ships no types

from scripts import build_engine
from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.double import contract as names
from tests.support.double.lab import GIB, GPU_HOST, H100, LAPTOP, Lab, Model, tiny_checkpoint
from tests.support.double.llm import RequestError
from tests.support.double.results import Fail, Script
from trt_responses.errors import StartupError
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.hardware import Gpu, Hardware, gpu_facts, visible_gpus
from trt_responses.prepare.machine import ServingMachine
from trt_responses.prepare.shelf.card import compare, read_card
from trt_responses.prepare.trtllm.arguments import read_arguments, text_of
from trt_responses.prepare.trtllm.caches import caches_of
from trt_responses.prepare.trtllm.plan import EXIT_STATUS, TrtLlmOptions, chosen_arguments, served
from trt_responses.prepare.trtllm.preflight import machine_faults
from trt_responses.prepare.trtllm.profiles import (
    CLASSES,
    PROFILES,
    TABLE,
    arguments_for,
    class_of,
    graph_sizes,
    parallel_fault,
)
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.double.contract import Version
    from tests.support.double.words import SamplingParams
    from trt_responses.prepare.pipeline import Built
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.prepare.trtllm.profiles import GpuClass, ProfileName
    from trt_responses.tokens.vocabulary import Vocabulary

LATENCY = TrtLlmOptions(profile="latency", context_tokens=4096)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("models") / "gpt-oss-tiny")


def kept(prepared: Built) -> set[str]:
    return {path.name for path in prepared.directory.iterdir()}


def machine_of(hardware: Hardware, card: Card) -> ServingMachine:
    return ServingMachine(sys.byteorder, 0, card.libraries, gpu_facts(hardware.gpus))


# --- without a GPU ------------------------------------------------------------------------------


def test_without_a_gpu_it_is_planned_and_says_what_it_would_take(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    lab = Lab(vocabulary, LAPTOP)
    wish = replace(LATENCY, gpu_class="blackwell", gpus=4)
    prepared = lab.prepare(checkpoint, tmp_path, "tiny", wish)
    assert prepared.card.status == "planned"
    assert not lab.starts
    assert kept(prepared) == {"card.json", "checkpoint.json", "env", "llm_args.yaml"}
    arguments = prepared.directory / "llm_args.yaml"
    assert arguments.read_text().startswith("# Profile latency for blackwell GPUs.\n")
    assert read_arguments(arguments)["moe_config"] == {"backend": "TRTLLM"}
    assert EXIT_STATUS[prepared.card.status] == 3
    said = "\n".join(prepared.notes)
    assert "TensorRT-LLM 1.2.1 or newer is not installed" in said
    assert "nvidia-smi was not found" in said


def test_a_plan_is_never_served_and_is_made_once(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    first = Lab(vocabulary, LAPTOP).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    again = Lab(vocabulary, LAPTOP).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert (first.phases, again.phases) == (("validate", "plan"), ())
    difference = compare(first.card, first.directory, machine_of(LAPTOP, first.card))
    assert difference is not None
    assert "planned" in difference


def test_the_script_ends_with_3_where_there_is_no_gpu(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi, whatever this machine has
    asked = ["--checkpoint", str(checkpoint), "--engines-dir", str(tmp_path), "--gpus", "2"]
    assert build_engine.main([*asked, "--set", "stream_interval=7"]) == 3
    (directory,) = (tmp_path / "gpt-oss-tiny").glob("[0-9a-f]*[0-9a-f]")
    arguments = read_arguments(directory / "llm_args.yaml")
    assert (arguments["tensor_parallel_size"], arguments["stream_interval"]) == (2, 7)
    assert build_engine.main(["--checkpoint", str(tmp_path)]) == 2


# --- on a GPU host, with the stand-in -----------------------------------------------------------


def test_on_a_gpu_host_it_is_verified_by_two_starts_with_the_same_ids(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    lab = Lab(vocabulary)
    prepared = lab.prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert prepared.phases == ("validate", "plan", "start", "warm-up", "restart")
    card = prepared.card
    assert (card.kind, card.status, card.weight_type) == ("trtllm", "verified", "mxfp4")
    assert card == read_card(prepared.directory)
    assert card.hardware == {
        "gpu": H100.name,
        "gpus": "1",
        "sm": "90",
        "driver": "575.57.08",
    }
    assert card.libraries["tensorrt_llm"] == "1.2.1"
    assert card.greedy_ids == (100, 101, 102, CONTROL.return_, 100, 101, 102, CONTROL.call)
    assert card.ignores == ("banned_ids",)
    assert (EXIT_STATUS[prepared.card.status], prepared.notes) == (0, ())
    assert lab.double.misuse == []
    assert [llm.is_shut_down for llm in lab.double.llms] == [True, True]


def test_the_report_holds_both_starts_every_graph_size_and_a_plot(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    prepared = Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    report = json.loads((prepared.directory / "warmup_report.json").read_text())
    assert [batch["size"] for batch in report["cold"]["batches"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [batch["tokens"] for batch in report["cold"]["batches"]][-1] == 64 * 4
    assert report["again"]["batches"] == []
    assert report["cold"]["seconds"] > 0
    assert report["again"]["seconds"] > 0
    answers = {answer["prompt"]: answer["ends_with"] for answer in report["cold"]["answers"]}
    assert answers == {"answer": "<|return|>", "call": "<|call|>"}
    assert report["same_answers"] is True
    plot = ET.fromstring((prepared.directory / "warmup.svg").read_text())
    assert len(plot.findall("{http://www.w3.org/2000/svg}circle")) == 7


def test_caches_are_in_the_engines_directory_keyed_by_version_gpu_and_arguments(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    lab = Lab(vocabulary)
    prepared = lab.prepare(checkpoint, tmp_path, "tiny", LATENCY)
    arguments = read_arguments(prepared.directory / "llm_args.yaml")
    caches = caches_of(prepared.directory, "1.2.1", "90", arguments)
    assert [path.name for path in (prepared.directory / "cache").iterdir()] == [
        caches.directory.name
    ]
    variables = caches.variables()
    assert all(value.startswith(str(caches.directory)) for value in variables.values())
    for environment in lab.starts:
        assert environment.items() >= variables.items()
    others = [
        caches_of(prepared.directory, "1.3.0", "90", arguments),
        caches_of(prepared.directory, "1.2.1", "100", arguments),
        caches_of(prepared.directory, "1.2.1", "90", {**arguments, "max_batch_size": 1}),
    ]
    assert len({found.directory for found in (caches, *others)}) == 4


def test_a_prepared_engine_is_found_again_and_rewarmed_only_when_asked(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    first = Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    lab = Lab(vocabulary)
    assert lab.prepare(checkpoint, tmp_path, "tiny", LATENCY).phases == ()
    assert not lab.starts
    (cache,) = (first.directory / "cache").iterdir()
    (cache / "autotuner.json").write_text("old")
    renewed = lab.prepare(checkpoint, tmp_path, "tiny", replace(LATENCY, rewarm=True))
    assert renewed.phases == ("plan", "start", "warm-up", "restart")
    assert not (cache / "autotuner.json").exists()
    assert (cache.with_name(f"stale-{cache.name}") / "autotuner.json").read_text() == "old"


def test_a_stale_cache_is_set_aside_before_anything_is_started(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    prepared = Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    stranger = prepared.directory / "cache" / "1.2.0-sm90-00000000"
    stranger.mkdir()
    (stranger / "autotuner.json").write_text("{}")
    given = served(prepared.directory, prepared.card)
    assert not stranger.exists()
    assert (stranger.parent / f"stale-{stranger.name}").is_dir()
    assert not any("stale-" in value for value in given.variables.values())
    assert given.checkpoint == checkpoint.resolve()
    assert given.arguments == read_arguments(prepared.directory / "llm_args.yaml")


def test_other_ids_at_the_second_start_are_told_and_not_verified(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    lab = Lab(vocabulary, script=Model(vocabulary, drifts=True))
    prepared = lab.prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert prepared.card.status == "built"
    assert EXIT_STATUS[prepared.card.status] == 1
    assert "The greedy ids of the second start differ" in prepared.notes[0]
    again = Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert (again.directory, again.card.status) == (prepared.directory, "verified")


def test_an_engine_that_fails_leaves_no_card(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    def fails(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        return Script((Fail(RequestError("no kernel for this GPU")),))

    with pytest.raises(StartupError, match="no kernel for this GPU"):
        Lab(vocabulary, script=fails).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert not list(tmp_path.rglob("card.json"))


def test_each_phase_says_its_place_and_about_how_much_time_is_left(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    lab = Lab(vocabulary)
    prepared = lab.prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert lab.told == [
        "validate (1 of 5, about 8 min left)",
        "plan (2 of 5, about 8 min left)",
        "start (3 of 5, about 8 min left)",
        "warm-up (4 of 5, about 4 min left)",
        "restart (5 of 5, about 2 min left)",
    ]
    took = prepared.card.seconds
    assert took.keys() == {"validate", "plan", "start", "warm-up", "restart"}
    lab = Lab(vocabulary)
    lab.prepare(checkpoint, tmp_path, "tiny", replace(LATENCY, rewarm=True))
    left = took["start"] + took["warm-up"] + took["restart"]
    assert lab.told[1] == f"start (3 of 5, about {left / 60:.0f} min left)"


# --- the card, before any weight is read --------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "NVIDIA H200"}, "gpu: the card says NVIDIA H100"),
        ({"sm": 100}, "sm: the card says 90, this machine has 100"),
        ({"driver": "580.1"}, "driver: the card says 575.57.08, this machine has 580.1"),
    ],
)
def test_a_machine_with_another_gpu_or_driver_is_refused_by_name(
    checkpoint: Path,
    tmp_path: Path,
    vocabulary: Vocabulary,
    change: dict[str, str],
    sentence: str,
) -> None:
    prepared = Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", LATENCY)
    gpu = replace(H100, **change)  # type: ignore[arg-type]  # each its own field
    other = machine_of(replace(GPU_HOST, gpus=(gpu,)), prepared.card)
    assert sentence in (compare(prepared.card, prepared.directory, other) or "")


def test_what_the_card_names_is_compared_before_weights(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    source = shutil.copytree(checkpoint, tmp_path / "source")
    prepared = Lab(vocabulary).prepare(source, tmp_path, "tiny", LATENCY)
    card, directory = prepared.card, prepared.directory
    here = machine_of(GPU_HOST, card)
    assert compare(card, directory, here) is None
    two = machine_of(replace(GPU_HOST, gpus=(H100, H100)), card)
    assert "gpus: the card says 1, this machine has 2" in (compare(card, directory, two) or "")
    laptop = machine_of(LAPTOP, card)
    assert "this machine has none" in (compare(card, directory, laptop) or "")
    newer = replace(here, libraries={**here.libraries, "tensorrt_llm": "1.3.0"})
    assert "tensorrt_llm: the card says 1.2.1" in (compare(card, directory, newer) or "")
    arguments = directory / "llm_args.yaml"
    arguments.write_text(text_of({**read_arguments(arguments), "max_batch_size": 1}))
    assert "llm_args.yaml" in (compare(card, directory, here) or "")
    shard = next(source.glob("*.safetensors"))
    shard.write_bytes(b"short")
    with pytest.raises(PrepareError, match="found 5 bytes"):
        served(directory, card)
    shard.unlink()
    with pytest.raises(PrepareError, match="found no file"):
        served(directory, card)


# --- preflight ----------------------------------------------------------------------------------

A100 = replace(H100, name="NVIDIA A100-SXM4-80GB", sm=80)
ONE = arguments_for("latency", CLASSES[0], 1, 4096)
TWO = arguments_for("latency", CLASSES[0], 2, 4096)


@pytest.mark.parametrize(
    ("hardware", "arguments", "sentence"),
    [
        (
            replace(GPU_HOST, package=None),
            ONE,
            "TensorRT-LLM 1.2.1 or newer is not installed",
        ),
        (replace(GPU_HOST, package="1.2.0rc8"), ONE, "package: found TensorRT-LLM 1.2.0rc8"),
        (replace(GPU_HOST, gpus=(), no_gpu="nothing here"), ONE, "GPU: found none (nothing here)"),
        (GPU_HOST, TWO, "GPU: found 1, expected 2"),
        (replace(GPU_HOST, gpus=(H100, A100)), TWO, "GPU: found different models"),
        (replace(GPU_HOST, gpus=(A100,)), ONE, "compute capability 8.0"),
        (replace(GPU_HOST, gpus=(replace(H100, driver="550.9"),)), ONE, "driver: found 550.9"),
        (replace(GPU_HOST, gpus=(replace(H100, free_bytes=GIB),)), ONE, "GPU memory: found 1.07"),
        (replace(GPU_HOST, free_disk_bytes=GIB), ONE, "disk: found 1.07 GB free"),
        (replace(GPU_HOST, gpus=(H100, H100), mpi=False), TWO, "MPI: found none"),
    ],
)
def test_each_fault_of_a_machine_is_one_sentence(
    hardware: Hardware, arguments: dict[str, object], sentence: str
) -> None:
    found = machine_faults(hardware, arguments, weights_bytes=13 * GIB)
    assert len(found) == 1
    assert found[0].startswith(sentence) or sentence in found[0]
    assert found[0].endswith(".")


@pytest.mark.parametrize("package", ["1.2.1", "1.3.0rc26", "1.4.0"])
def test_a_machine_that_has_all_it_needs_has_no_fault(package: str) -> None:
    hardware = replace(GPU_HOST, gpus=(H100, H100), package=package)
    assert machine_faults(hardware, TWO, weights_bytes=65 * GIB) == []


@pytest.mark.parametrize("package", ["1.3.0rc24", "1.3.0rc24+cu13"])
def test_a_release_that_answers_wrongly_is_refused_on_several_gpus_without_the_flag(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary, package: str
) -> None:
    lab = Lab(vocabulary, hardware=replace(GPU_HOST, gpus=(H100, H100), package=package))
    with pytest.raises(PrepareError, match=r"1\.3\.0rc24.*accuracy.*--allow-known-harm"):
        lab.prepare(checkpoint, tmp_path, "tiny", LATENCY)
    assert not (tmp_path / "tiny").exists()
    lab.prepare(checkpoint, tmp_path, "tiny", replace(LATENCY, allow_known_harm=True))
    one = Lab(vocabulary, hardware=replace(GPU_HOST, package=package))
    one.prepare(checkpoint, tmp_path, "one", LATENCY)


def test_each_of_several_machines_needs_its_own_share_of_the_gpus() -> None:
    sixteen = arguments_for("balanced", CLASSES[0], 16, 4096)
    eight = replace(GPU_HOST, gpus=(H100,) * 8)
    (alone,) = machine_faults(eight, sixteen, weights_bytes=65 * GIB)
    assert alone.startswith("GPU: found 8, expected 16")
    assert machine_faults(eight, sixteen, weights_bytes=65 * GIB, nodes=2) == []


def test_a_checkpoint_that_the_package_would_not_read_is_refused(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    bare = shutil.copytree(checkpoint, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    lab = Lab(vocabulary)
    with pytest.raises(PrepareError, match=r"tokenizer\.json: found no such file"):
        lab.prepare(bare, tmp_path, "tiny", LATENCY)
    unguided = replace(LATENCY, overrides={"guided_decoding_backend": None})
    assert lab.prepare(bare, tmp_path, "tiny", unguided).card.status == "verified"
    (bare / "rank0.engine").write_bytes(b"")
    with pytest.raises(PrepareError, match="engine of trtllm-build"):
        lab.prepare(bare, tmp_path, "tiny", LATENCY)
    original = write_checkpoint(
        tmp_path / "original", Recipe(replace(TINY, layers=1), layout="original", sparse=True)
    )
    with pytest.raises(PrepareError, match="original layout"):
        lab.prepare(original, tmp_path, "tiny", LATENCY)


@pytest.mark.parametrize(
    ("name", "key", "value", "sentence"),
    [
        ("config.json", "torch_dtype", "float32", "torch_dtype: found 'float32'"),
        (
            "config.json",
            "quantization_config",
            {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
            r"found no model\.layers\.\*\.self_attn, model\.layers",
        ),
        ("tokenizer_config.json", "eos_token", "<|endoftext|>", "eos_token: found"),
        ("tokenizer_config.json", "eos_token", {"content": "</s>"}, "found '</s>'"),
    ],
)
def test_what_the_package_would_misread_is_refused_by_name(
    checkpoint: Path,
    tmp_path: Path,
    vocabulary: Vocabulary,
    name: str,
    key: str,
    value: object,
    sentence: str,
) -> None:
    changed = shutil.copytree(checkpoint, tmp_path / "changed")
    config = json.loads((changed / name).read_text())
    (changed / name).write_text(json.dumps(config | {key: value}))
    with pytest.raises(PrepareError, match=sentence):
        Lab(vocabulary).prepare(changed, tmp_path, "tiny", LATENCY)


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (TrtLlmOptions(context_tokens=200_000), "--context: found 200000, expected at most 131072"),
        (TrtLlmOptions(overrides={"pipeline_parallel_size": 2}), "found 2 pipeline stages"),
        (TrtLlmOptions(gpus=0), "gpus: found 0, expected 1 or more"),
        (TrtLlmOptions(nodes=0), "nodes: found 0"),
        (TrtLlmOptions(context_tokens=-1), "--context: found -1"),
        (
            TrtLlmOptions(overrides={"max_seq_len": 1e9}),
            "max_seq_len: found 1000000000.0, expected a whole",
        ),
        (TrtLlmOptions(overrides={"max_batch_size": "a"}), "max_batch_size: found 'a'"),
        (
            TrtLlmOptions(overrides={"model": "/other"}),
            "expected none beside the checkpoint",
        ),
        (TrtLlmOptions(gpus=3), "4 experts cannot be distributed over 3"),
        (TrtLlmOptions(gpu_class="ampere"), "'ampere', expected hopper or blackwell"),
        (TrtLlmOptions(profile="fast"), "'fast', expected latency or balanced"),  # type: ignore[arg-type]
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(
    checkpoint: Path, tmp_path: Path, vocabulary: Vocabulary, wish: TrtLlmOptions, sentence: str
) -> None:
    with pytest.raises(PrepareError, match=sentence):
        Lab(vocabulary).prepare(checkpoint, tmp_path, "tiny", wish)


def test_an_eagle3_draft_is_an_option_of_one_profile_for_the_model_it_is_published_for(
    checkpoint: Path, tmp_path: Path
) -> None:
    found = open_checkpoint(checkpoint)
    large = replace(found, architecture=replace(found.architecture, layers=36, experts=128))
    wish = TrtLlmOptions("latency", gpus=8, gpu_class="blackwell", draft=tmp_path)
    with pytest.raises(PrepareError, match=r"expected a directory with a config\.json"):
        chosen_arguments(wish, LAPTOP, large)
    (tmp_path / "config.json").write_text("{}")
    arguments = chosen_arguments(wish, LAPTOP, large)
    names.check_all(arguments, names.checked_arguments("1.2.1"))
    assert arguments["speculative_config"] == {
        "decoding_type": "Eagle",
        "max_draft_len": 3,
        "speculative_model_dir": str(tmp_path),
    }
    assert arguments["max_batch_size"] == 10
    for other, sentence in (
        (replace(wish, profile="throughput"), "--draft, profile: found throughput"),
        (replace(wish, gpu_class="hopper"), "--draft, GPU class: found hopper"),
    ):
        with pytest.raises(PrepareError, match=sentence):
            chosen_arguments(other, LAPTOP, large)
    with pytest.raises(PrepareError, match=r"layers and experts: found \(1, 4\)"):
        chosen_arguments(wish, LAPTOP, found)


# --- profiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", names.VERSIONS)
@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("gpu_class", CLASSES, ids=lambda found: found.name)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_argument_of_every_profile_is_one_the_package_takes(
    profile: ProfileName, gpu_class: GpuClass, gpus: int, version: Version
) -> None:
    arguments = arguments_for(profile, gpu_class, gpus, 131_072)
    names.check_all(arguments, names.checked_arguments(version))
    assert arguments["num_postprocess_workers"] == 0
    assert parallel_fault(arguments, experts=32, heads=64, kv_heads=8) is None
    assert yaml.safe_load(text_of(arguments, "a heading\nof two lines")) == arguments


@pytest.mark.parametrize(
    ("sm", "name", "backend"),
    [
        (90, "hopper", "TRITON"),
        (100, "blackwell", "TRTLLM"),
        (103, "blackwell", "TRTLLM"),
        (120, "blackwell-workstation", "CUTLASS"),
        (121, "blackwell-workstation", "CUTLASS"),
    ],
)
def test_the_gpu_decides_the_kernels_of_the_experts(sm: int, name: str, backend: str) -> None:
    found = class_of(sm)
    assert (found.name, found.moe_backend) == (name, backend)
    arguments = arguments_for("latency", found, 4, 4096)
    assert arguments["moe_config"] == {"backend": backend}
    assert arguments["moe_expert_parallel_size"] == (4 if backend == "TRITON" else 1)


@pytest.mark.parametrize("sm", [75, 80, 89, 110])
def test_a_gpu_without_a_documented_way_is_refused(sm: int) -> None:
    with pytest.raises(PrepareError, match="compute capability"):
        class_of(sm)


def test_attention_is_shared_out_by_request_only_where_there_are_several_gpus() -> None:
    one, four = (arguments_for("throughput", CLASSES[1], gpus, 4096) for gpus in (1, 4))
    assert (one["enable_attention_dp"], "attention_dp_config" in one) == (False, False)
    assert (four["enable_attention_dp"], "attention_dp_config" in four) == (True, True)


def test_graph_sizes_end_with_the_batch() -> None:
    assert graph_sizes(1) == [1]
    assert graph_sizes(64) == [1, 2, 4, 8, 16, 32, 64]
    assert graph_sizes(720)[-2:] == [512, 720]


# --- files and machines -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a\n", "A: 1\n", "a: 1\na: 2\n", "a: {'b': 1}\n", "  a: 1\n", "a: b\n"]
)
def test_arguments_that_are_not_ours_to_read_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "llm_args.yaml"
    path.write_text(text)
    with pytest.raises(PrepareError, match=r"llm_args\.yaml"):
        read_arguments(path)


ROW = "NVIDIA H100 80GB HBM3, 9.0, 81559, 81000, 575.57.08"


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, [90, 120]), ("1", [120]), ("1,0", [120, 90]), ("", [])]
)
def test_gpus_are_read_from_the_driver_as_far_as_they_are_visible(
    visible: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    rows = f"{ROW}\nNVIDIA RTX PRO 6000, 12.0, 97887, 90000, 580.95.05\n\n"
    gpus, why = visible_gpus(lambda command: rows, visible=visible)
    assert [gpu.sm for gpu in gpus] == expected
    assert (why is None) == bool(expected)
    if visible is None:
        assert gpus[0] == Gpu("NVIDIA H100 80GB HBM3", 90, 81559 << 20, 81000 << 20, "575.57.08")


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (FileNotFoundError(), "nvidia-smi was not found"),
        (subprocess.CalledProcessError(9, "nvidia-smi", "No devices were found\n"), "No devices"),
        (subprocess.TimeoutExpired("nvidia-smi", 20.0), "timed out"),
        ("", "printed 'nothing'"),
        ("NVIDIA H100, [N/A], 1, 1, 575", "which is not a GPU"),
    ],
)
def test_no_gpu_says_why(outcome: str | Exception, why: str) -> None:
    def run(command: tuple[str, ...]) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    gpus, found = visible_gpus(run)
    assert gpus == ()
    assert why in (found or "")


def test_the_checkpoint_opens_as_every_engine_reads_it(checkpoint: Path) -> None:
    assert open_checkpoint(checkpoint).architecture.packed


def test_the_page_shows_the_profiles_as_they_are() -> None:
    page = (Path(__file__).parents[4] / "docs" / "tensorrt-llm.md").read_text("utf-8")
    for found in CLASSES:
        sms = ", ".join(map(str, found.sms))
        assert f"| `{found.name}` | {sms} |" in page
        row = next(line for line in page.splitlines() if line.startswith(f"| `{found.name}` |"))
        assert f"| {found.moe_backend} |" in row
    for name, profile in TABLE.items():
        numbers = (profile.max_batch_size, profile.max_num_tokens, profile.stream_interval)
        assert f"| `{name}` | {' | '.join(map(str, numbers))} |" in page
    assert "Nothing here has been run on TensorRT-LLM" in page
