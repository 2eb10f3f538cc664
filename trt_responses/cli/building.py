"""Prepares models for `serve` and `engine build`, and prints the lines about it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trt_responses.backends.installed import needed
from trt_responses.backends.settings import EngineSettings
from trt_responses.prepare import demo
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.llamacpp import build, template_gguf
from trt_responses.prepare.llamacpp.qwen3 import open_qwen3
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.progress import megabytes, shown_on
from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.promotion import promote
from trt_responses.prepare.shelf.shelf import DEMO, Selection
from trt_responses.prepare.trtllm.preflight import IMAGE, gpu_class_of
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.prepare.llamacpp.template_gguf import TemplateSource
    from trt_responses.prepare.pipeline import Built
    from trt_responses.prepare.shelf.card import Kind
    from trt_responses.prepare.trtllm.plan import TrtLlmOptions
    from trt_responses.settings import Settings


def to_stderr(sentence: str) -> None:
    """Print a sentence to standard error."""
    print(sentence, file=sys.stderr)


@contextmanager
def build_tools(settings: Settings, *, move: bool = False) -> Iterator[BuildTools]:
    """The real vocabulary and engines; progress goes to standard error."""
    from trt_responses.backends.dialects import (
        dialect_facts,
        prompts_of,
        question_of,
        vocabulary,
    )
    from trt_responses.backends.engines import engine_of

    with shown_on(sys.stderr) as progress:
        yield BuildTools(
            vocabulary(),
            progress,
            lambda directory, card: engine_of(Selection(directory, card, "to verify it"), settings),
            dialect_for=dialect_facts,
            prompts_for=prompts_of,
            question=question_of,
            say=to_stderr,
            move=move,
        )


def print_built(built: Built) -> None:
    """Print a line about a new engine, and one for each family of plans. An engine that already
    existed prints nothing."""
    card = built.card
    if built.phases:
        took = f"prepared in {sum(card.seconds.values()):.1f} s"
        print(f"engine {card.label}: {card.status}, {took}", file=sys.stderr)
        for family in card.chain.compiled if card.chain else ():
            how = "exact" if family.exact else "rounded"
            print(
                f"  {', '.join(family.targets)}: {family.weights} experts ({how}), "
                f"{megabytes(family.size_bytes)} of plans, at most {megabytes(family.peak_bytes)} "
                "of memory to compile one",
                file=sys.stderr,
            )
    for note in built.notes:
        print(note, file=sys.stderr)
    served = versions.promoted(built.directory.parent)
    if built.phases and served is not None and served.version != card.version:
        print(
            f"{card.name}@{served.number or served.version} is still promoted; to serve the new "
            f"version: trt-responses engine promote {card.name} {card.number or card.version}",
            file=sys.stderr,
        )


def template_source(path: Path) -> TemplateSource | None:
    """The model with a chat template at this path; None for gpt-oss."""
    is_file = path.suffix.lower() == GGUF
    return template_gguf.open_template_gguf(path) if is_file else open_qwen3(path)


def prepare_template(
    settings: Settings,
    source: TemplateSource,
    name: str,
    *,
    family: str | None = None,
    wait: bool,
    move: bool = False,
) -> Built:
    """Prepare a model with a chat template for the embedded engine."""
    with build_tools(settings, move=move) as tools:
        built = template_gguf.prepare(
            source, settings.engines_dir, name, tools, family=family, wait=wait
        )
    print_built(built)
    return built


def prepare_llamacpp(
    settings: Settings,
    *,
    name: str,
    source: Path,
    weight_type: WeightType,
    wait: bool,
    move: bool = False,
) -> Built:
    """Prepare a checkpoint of gpt-oss for the embedded engine."""
    with build_tools(settings, move=move) as tools:
        built = build.prepare(
            source, settings.engines_dir, name, tools, weight_type=weight_type, wait=wait
        )
    print_built(built)
    return built


def prepare_demo(settings: Settings) -> Path:
    """Prepare the demo engine of this checkout; returns at once if it already exists."""
    source = demo.demo_checkpoint(settings.engines_dir)
    built = prepare_llamacpp(settings, name=DEMO, source=source, weight_type="q8_0", wait=True)
    pointer = versions.promoted(built.directory.parent)
    if built.phases and pointer is not None and pointer.version != built.card.version:
        label = f"{DEMO}@{built.card.version}"
        promote(settings.engines_dir, label, "the demo of this release")
    return built.directory


def kind_for(settings: Settings, checkpoint: Path | None = None) -> Kind:
    """The kind of engine for this machine: TensorRT-LLM on a GPU host, else the embedded one, which
    alone reads GGUF files. Raises a `PrepareError` on a GPU host without the package, where the CPU
    would take hours."""
    if checkpoint is not None and checkpoint.suffix.lower() == GGUF:
        return "llamacpp"
    hardware = this_hardware(settings.engines_dir, EngineSettings.of(settings).trtllm_python)
    if gpu_class_of(hardware) is None:
        return "llamacpp"
    if hardware.package is None:
        raise PrepareError(
            f"This machine has a GPU for TensorRT-LLM ({hardware.gpus[0].name}), but TensorRT-LLM "
            f"was not found: run in the container {IMAGE}, or set {PREFIX}TRTLLM_PYTHON to the "
            "Python that has it. For an engine on the CPU pass `--kind llamacpp` "
            "(`make engine KIND=llamacpp`)."
        )
    return "trtllm"


def prepare_trtllm(
    settings: Settings, checkpoint: Path, name: str, chosen: TrtLlmOptions, *, wait: bool
) -> Built:
    """Prepare an engine for TensorRT-LLM."""
    with needed("--kind trtllm: the fleet, which runs TensorRT-LLM in its own process,"):
        from trt_responses.fleet.engine_process import trtllm_starter
    from trt_responses.prepare.trtllm.build import GpuHost, prepare

    host = GpuHost(
        lambda: this_hardware(settings.engines_dir, EngineSettings.of(settings).trtllm_python),
        trtllm_starter(settings),
    )
    with build_tools(settings) as tools:
        built = prepare(checkpoint, settings.engines_dir, name, tools, chosen, host, wait=wait)
    print_built(built)
    return built
