"""The options of an engine for TensorRT-LLM, and the start parameters of a prepared one.
Reads a plan's files; measures nothing and starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping  # read by dataclasses
from dataclasses import field
from pathlib import Path  # likewise
from typing import NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError, WrongInput, refusal
from trt_responses.prepare.files import ARGUMENTS, CHECKPOINT, json_or_nothing
from trt_responses.prepare.hardware import Hardware
from trt_responses.prepare.shelf.adapters import FOLDER, adapters_of
from trt_responses.prepare.shelf.card import Card, Status
from trt_responses.prepare.trtllm.arguments import read_arguments
from trt_responses.prepare.trtllm.caches import caches_of, set_aside
from trt_responses.prepare.trtllm.lora import lora_arguments
from trt_responses.prepare.trtllm.model import Model, TemplateModel, shape_of
from trt_responses.prepare.trtllm.preflight import gpu_class_of
from trt_responses.prepare.trtllm.profiles import (
    DRAFT_CLASS,
    DRAFT_PROFILE,
    DRAFTED,
    Arguments,
    GpuClass,
    ProfileName,
    arguments_for,
    class_named,
    class_of,
    of_another_model,
    with_draft,
)

VARIABLES = "env"
EXIT_STATUS: Mapping[Status, int] = {"verified": 0, "built": 1, "planned": 3}
"""The exit status of the program for each status of the engine: 0 for a verified one only."""


@dataclass(frozen=True, slots=True)
class TrtLlmOptions:
    """The operator's options. The machine and the checkpoint decide the missing ones."""

    profile: ProfileName = "balanced"
    gpus: int | None = None
    """The number of GPUs on all nodes together."""
    nodes: int = 1
    gpu_class: str | None = None
    context_tokens: int | None = None
    draft: Path | None = None
    """The directory of an Eagle3 draft for gpt-oss-120b."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Arguments that replace the profile's own."""
    rewarm: bool = False
    family: str | None = None
    """The operator's choice of the dialect of a model with a chat template."""
    allow_known_harm: bool = False
    """Whether to allow a release of TensorRT-LLM that is known to answer wrongly."""


class Served(NamedTuple):
    """The start parameters of an engine."""

    checkpoint: Path
    arguments: Mapping[str, object]
    variables: Mapping[str, str]
    end_id: int | None
    """The id that ends a guide; None for gpt-oss."""
    adapters: Mapping[str, Path]
    """The directories of its adapters by name."""


def chosen_arguments(options: TrtLlmOptions, hardware: Hardware, checkpoint: Model) -> Arguments:
    """The arguments for this machine and checkpoint."""
    counts = {"gpus": options.gpus, "nodes": options.nodes, "context": options.context_tokens}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise refusal(f"--{name}", count, "1 or more", WrongInput)
    gpus = options.gpus or max(1, len(hardware.gpus)) * options.nodes
    longest = shape_of(checkpoint).context
    context = options.context_tokens or longest
    if context > longest:
        raise refusal("--context", context, f"at most {longest}", WrongInput)
    gpu_class = chosen_class(options, hardware)
    usual = arguments_for(options.profile, gpu_class, gpus, context)
    if isinstance(checkpoint, TemplateModel):
        usual = of_another_model(usual)
    if options.draft is not None:
        _check_draft(options.draft, options.profile, gpu_class, checkpoint)
        usual = with_draft(usual, str(options.draft.absolute()))
    _check_overrides(options.overrides, usual)
    return {**usual, **options.overrides}


def _check_draft(draft: Path, profile: ProfileName, gpu_class: GpuClass, checkpoint: Model) -> None:
    """Refuse a draft for a model without a published one from NVIDIA."""
    if isinstance(checkpoint, TemplateModel):
        raise refusal(
            "draft", f"one for {checkpoint.name}", "none: it is for gpt-oss-120b", WrongInput
        )
    model = (checkpoint.architecture.layers, checkpoint.architecture.experts)
    for what, found, expected in (
        ("profile", profile, DRAFT_PROFILE),
        ("GPU class", gpu_class.name, DRAFT_CLASS),
        ("layers and experts", model, DRAFTED),
    ):
        if found != expected:
            raise refusal(
                f"--draft, {what}",
                found,
                f"{expected}: an Eagle3 draft is published so",
                WrongInput,
            )
    if not (draft / "config.json").is_file():
        raise refusal("--draft", draft, "a directory with a config.json", WrongInput)


def _check_overrides(overrides: Mapping[str, object], usual: Arguments) -> None:
    """Check overrides: a known number must stay a positive number. The package checks the
    others."""
    if "model" in overrides:
        raise refusal(
            "--set model", repr(overrides["model"]), "none beside the checkpoint", WrongInput
        )
    for name, value in overrides.items():
        if type(usual.get(name)) is int and (type(value) is not int or value < 1):
            raise refusal(f"--set {name}", repr(value), "a whole number above 0", WrongInput)


def chosen_class(options: TrtLlmOptions, hardware: Hardware) -> GpuClass:
    """The GPU class in the options, or the machine's; hopper if there is neither."""
    if options.gpu_class is not None:
        return class_named(options.gpu_class)
    return gpu_class_of(hardware) or class_named("hopper")


def served(directory: Path, card: Card) -> Served:
    """The start parameters of a prepared engine. Refuses a changed checkpoint."""
    facts = json_or_nothing(directory / CHECKPOINT)
    place, end_id = facts.get("path"), facts.get("end_id")
    if not isinstance(place, str) or isinstance(end_id, int) == (card.dialect is None):
        raise PrepareError(f"{directory / CHECKPOINT} is damaged; prepare the engine again.")
    checkpoint = directory / place
    for file in card.source.files:
        path = checkpoint / file.name
        found = path.stat().st_size if path.is_file() else None
        if found != file.size_bytes:
            raise PrepareError(
                f"checkpoint, {file.name}: found {'no file' if found is None else f'{found} bytes'}"
                f" in {checkpoint}, expected {file.size_bytes} bytes; prepare the engine again."
            )
    arguments = read_arguments(directory / ARGUMENTS)
    sm = card.hardware["sm"]
    caches = caches_of(directory, card.libraries["tensorrt_llm"], sm, arguments)
    set_aside(caches)
    variables = {**caches.variables(), **class_of(int(sm)).variables}
    adapters = adapters_of(directory)
    return Served(
        checkpoint,
        {**lora_arguments(adapters), **arguments},
        variables,
        end_id if isinstance(end_id, int) else None,
        {each.name: (directory / FOLDER / each.place).absolute() for each in adapters},
    )
