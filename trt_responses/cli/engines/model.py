"""`trt-responses serve MODEL`: the engine that MODEL means, prepared first if it is not yet."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from trt_responses.backends.settings import EngineSettings
from trt_responses.cli.building import (
    build_tools,
    kind_for,
    prepare_llamacpp,
    prepare_template,
    prepare_trtllm,
    template_source,
    to_stderr,
)
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.faults import PrepareError, WrongInput
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.hub import NO_WISHES, HubId, Wishes, cached, fetched
from trt_responses.prepare.llamacpp.gguf_file import read_gguf
from trt_responses.prepare.llamacpp.move import movable, moving, undo
from trt_responses.prepare.llamacpp.qwen3 import check_model_type
from trt_responses.prepare.llamacpp.region import region_of, shares_blocks
from trt_responses.prepare.machine import ServingMachine, this_machine
from trt_responses.prepare.memory import memory
from trt_responses.prepare.model import engine_name, meaning, prepared_from
from trt_responses.prepare.pipeline import Built, renewed
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.trtllm.plan import TrtLlmOptions
from trt_responses.settings import Settings


def engine_for(text: str, settings: Settings, *, move: bool = False) -> str:
    """The engine to serve, as `--engine` names it. `move`: a GGUF file is not kept beside it."""
    meant = meaning(text, settings.engines_dir)
    if isinstance(meant, str):
        return meant
    source = meant
    if isinstance(meant, HubId):
        if (kept := cached(meant)) is None and (label := _prepared(settings, meant)):
            return label
        wishes = _wishes(settings)
        source = kept or fetched(meant, to_stderr, wishes)
    assert not isinstance(source, HubId)
    if move and source.suffix.lower() != GGUF:
        raise WrongInput(f"--move: {source} is not one .gguf file; leave out --move.")
    undo(source)
    if label := _prepared(settings, source):
        if move and source.exists():
            _remove(source, label)
        return label
    with moving(source) if move else nullcontext():
        built = _build(settings, source, move=move)
        label = _label(built.directory, built.card)
        if move:
            _remove(source, label)
    return label


def _wishes(settings: Settings) -> Wishes:
    """Checks before a download for the embedded engine; TensorRT-LLM's preparation has its own."""
    try:
        if kind_for(settings) != "llamacpp":
            return NO_WISHES
    except PrepareError:  # which a GGUF file does not meet
        return NO_WISHES
    where = settings.engines_dir
    return Wishes(
        check_model_type,
        lambda size: f" {_room(size)}, and at most {megabytes(size)} more of disk in {where}.",
    )


def _prepared(settings: Settings, source: Path | HubId) -> str | None:
    """An engine that was prepared from this source and can be served; the last one if the source is
    gone."""
    found, machine = None, this_machine(EngineSettings.of(settings).trtllm_python)
    for directory, card in prepared_from(settings.engines_dir, source):
        if shelf.difference(card, directory, machine) is None:
            return _label(directory, card)
        found = found or (directory, card)
    if found is None or (isinstance(source, Path) and source.exists()):
        return None
    return _label(*_renewed(settings, *found, machine))


def _renewed(
    settings: Settings, directory: Path, card: Card, machine: ServingMachine
) -> tuple[Path, Card]:
    """The engine of a source that is gone, checked again if other packages are installed since."""
    here = replace(machine, libraries=card.libraries)
    if card.kind == "llamacpp" and shelf.difference(card, directory, here) is None:
        to_stderr(f"{card.label} was prepared with other packages; checking it again.")
        with build_tools(settings) as tools:
            card = renewed(directory, tools)
    return directory, card


def _label(directory: Path, card: Card) -> str:
    is_promoted = versions.is_promoted(directory.parent, directory.name)
    return card.name if is_promoted else f"{card.name}@{directory.name}"


def _build(settings: Settings, source: Path, *, move: bool) -> Built:
    """Prepare the checkpoint with the options by default."""
    template = template_source(source)
    embedded = template is not None or kind_for(settings, source) == "llamacpp"
    if embedded:
        to_stderr(_needs(settings, source, move=move))
    if template is not None:
        return prepare_template(
            settings, template, engine_name(template.name), wait=True, move=move
        )
    name = engine_name(checkpoint_name(source))
    if embedded:
        return prepare_llamacpp(
            settings, name=name, source=source, weight_type="bf16", wait=True, move=move
        )
    return prepare_trtllm(settings, source, name, TrtLlmOptions(), wait=True)


def _needs(settings: Settings, source: Path, *, move: bool) -> str:
    """What serving the checkpoint takes, and how its weights need no second place on the disk."""
    files = [source] if source.is_file() else [*source.glob("*.safetensors")]
    size_bytes = sum(file.stat().st_size for file in files)
    room = _room(size_bytes)
    region = region_of(read_gguf(source), source) if source.is_file() else None
    if region is None:
        return f"{room}, and {megabytes(size_bytes)} more of disk in {settings.engines_dir}."
    if shares_blocks(source, settings.engines_dir):
        return f"{room}; on the disk its weights are shared with {source}."
    if not move:
        return (
            f"{room}, and {megabytes(size_bytes)} more of disk in {settings.engines_dir}; with "
            f"--move, {source.name} becomes the engine's file instead."
        )
    if movable(source.resolve(), settings.engines_dir):
        return f"{room}; {source} becomes the engine's file."
    return f"{room}, and {megabytes(size_bytes)} more of disk until {source} is removed."


def _room(size_bytes: int) -> str:
    """How much memory weights of this size take. Raises a `PrepareError` if it is too much."""
    total = memory().total_bytes
    if size_bytes > total:
        raise PrepareError(
            f"The weights need {megabytes(size_bytes)} of memory, and this process can use "
            f"{megabytes(total)}; choose a smaller model or file, or use a larger machine."
        )
    return f"Serving takes {megabytes(size_bytes)} of memory for the weights"


def _remove(source: Path, label: str) -> None:
    """Remove the file of an engine that has its card, and its link in the hub's cache."""
    source.resolve().unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        source.unlink()
    to_stderr(f"moved {source} into the engine {label}")
