"""The card: what a prepared engine was made from, what it is, and what serving must find.

Knows the card's fields and how to compare them with a directory and a machine; builds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping  # decoded by its annotation
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture  # likewise
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.files import (
    ARGUMENTS,
    CHECKPOINT,
    DIALECT,
    EXPERTS,
    GRAPH,
    MODEL,
    EngineFile,
    decoded,
    file_difference,
)
from trt_responses.prepare.shelf.chain import Chain, Format

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.machine import ServingMachine

CARD = "card.json"
SCHEMA = 1
MAX_CARD_BYTES = 10_000_000

Kind = Literal["llamacpp", "trtllm", "tensorrt", "onnx"]
Status = Literal["planned", "built", "verified"]
StoredWeights = Format | Literal["q8_0", "gguf"]
"""The type of the stored weights. `gguf`: several types, as a downloaded file has them."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a checkpoint, by name, size and digest."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """The checkpoint: its config first, its index if it has one, its shards; or a GGUF file."""

    name: str
    layout: Literal["hf", "original", "gguf"]
    files: tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine can take, and what it takes of the machine."""

    context_tokens: int
    memory_bytes: int
    """Bytes of the weights alone; the cache of a context comes on top."""


@dataclass(frozen=True, slots=True)
class DialectFacts:
    """What is known of a model with a chat template, as it was found when the engine was
    prepared."""

    family: str
    stop_ids: tuple[int, ...]
    """The ids that end a turn; the first is the one that the template writes."""
    probes: Mapping[str, bool | str]
    """The result of each probe of the template, by the probe's name."""

    def sentence(self) -> str:
        """The same in one sentence for a person."""
        told = ", ".join(f"{name} {value}" for name, value in self.probes.items())
        return f"It speaks '{self.family}' ({told or 'text alone: no tools and no thoughts'})."


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a prepared engine."""

    schema: Annotated[int, Field(ge=SCHEMA, le=SCHEMA)]
    kind: Kind
    status: Status
    name: str
    version: str
    source: Source
    architecture: Architecture | None
    """The numbers of a gpt-oss; None for another model."""
    weight_type: StoredWeights
    libraries: Mapping[str, str]
    limits: Limits
    files: tuple[EngineFile, ...]
    built_at: str
    seconds: Mapping[str, float]
    greedy_ids: tuple[int, ...]
    """The engine's answer to the fixed prompt when it was verified."""
    hardware: Mapping[str, str]
    """The hardware on which a GPU engine was prepared, by name; empty for one that runs
    anywhere."""
    dialect: DialectFacts | None = None
    """The facts of the model's dialect; None for Harmony."""
    chain: Chain | None = None
    """The files and compilations of a graph; None for the other kinds."""
    ignores: tuple[str, ...] = ()
    """Options of sampling that the engine took and ignored when it was prepared."""
    number: int | None = None
    """The number of this build among those of its name, from 1 on; None for one made before there
    were numbers, in a directory that nobody could write since."""

    @property
    def label(self) -> str:
        """The engine's name with its version, as the setting ENGINE takes them."""
        return f"{self.name}@{self.number or self.version}"


SERVING_LIBRARIES: Mapping[Kind, tuple[str, ...]] = {
    "llamacpp": ("xllamacpp",),
    "trtllm": ("tensorrt_llm",),
    "tensorrt": (),  # the plans say it themselves
    "onnx": ("onnxruntime",),
}
"""The packages whose version must be the card's own; others only made the files, and are
recorded."""


def write_card(directory: Path, card: Card) -> None:
    """Write the card, last of all, and whole or not at all."""
    write_whole(directory / CARD, json.dumps(asdict(card), indent=2) + "\n")


def read_card(directory: Path) -> Card:
    """The card of an engine directory, every field present and of its kind."""
    path = directory / CARD
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CARD_BYTES)
    except FileNotFoundError:
        raise PrepareError(
            f"{directory} has no {CARD}, so its preparation did not finish; run `make engine` for "
            "it again, only the unfinished phases are redone."
        ) from None
    except OSError as error:
        raise PrepareError(f"{path} cannot be read ({error.strerror}).") from None
    return decoded(Card, text, CARD)


def chain_of(card: Card) -> Chain:
    """The chain of a graph's card. Raises a `PrepareError` for the other kinds."""
    if card.chain is None:
        raise refusal(f"{CARD}, chain", "none", f"one, in a card of kind {card.kind}")
    return card.chain


def architecture_of(card: Card) -> Architecture:
    """The numbers of a gpt-oss. Raises a `PrepareError` for another model."""
    if card.architecture is None:
        raise refusal(f"{CARD}, architecture", "none", "that of gpt-oss")
    return card.architecture


def compare(
    card: Card, directory: Path, machine: ServingMachine | None, *, deep: bool = False
) -> str | None:
    """The first difference between the card and what is there, with its remedy; None if none.
    Without a machine, that of its files alone.

    Files are compared by size, then by time, and only when that differs (or `deep`) by digest. What
    compiled plans say of themselves is compared by `plans.chain_difference`.
    """
    if found := _status(card) or _place(card, directory) or (machine and _machine(card, machine)):
        return found
    for file in card.files:
        if found := file_difference(file, directory, deep=deep):
            return found
    return _unnamed(card)


def _unnamed(card: Card) -> str | None:
    """A file that is served and that the card does not name; it would be served without a check."""
    for name in sorted(_served_files(card) - {file.name for file in card.files}):
        return f"files: the card does not name {name}, which is served; prepare the engine again."
    return None


def _served_files(card: Card) -> set[str]:
    links = [link.name for link in card.chain.links] if card.chain else []
    speech = set() if card.dialect is None else {DIALECT}
    match card.kind:
        case "llamacpp":
            return {MODEL, *speech}
        case "trtllm":
            return {ARGUMENTS, CHECKPOINT, *speech}
        case "onnx":
            graphs = {f"{GRAPH}/{name}.{end}" for name in links for end in ("onnx", "data")}
            return graphs | {f"{GRAPH}/{EXPERTS}"}
        case "tensorrt":
            folders = [family.folder for family in card.chain.compiled] if card.chain else []
            return {f"{folder}/{name}.plan" for folder in folders for name in links}


def _status(card: Card) -> str | None:
    if card.status == "planned":
        return (
            f"status: the card of {card.name} says planned, expected built or verified; "
            "run `make engine` where it can be built."
        )
    return None


def _place(card: Card, directory: Path) -> str | None:
    """The difference of a directory that was renamed by hand, and so is not what its card says."""
    for what, found, expected in (
        ("version", directory.name, card.version),
        ("name", directory.parent.name, card.name),
    ):
        if found != expected:
            return (
                f"{what}: the card says {expected!r}, the directory {found!r}; "
                "rename the directory back, or prepare the engine again."
            )
    return None


def _machine(card: Card, machine: ServingMachine) -> str | None:
    if machine.byte_order != "little":
        return "byte order: the files are little-endian, the machine is not; use another machine."
    if card.kind in ("llamacpp", "onnx") and card.limits.memory_bytes > machine.memory_bytes:
        return (
            f"memory: the weights need {card.limits.memory_bytes / 2**30:.1f} GiB, this process "
            f"may use {machine.memory_bytes / 2**30:.1f} GiB; use a larger machine or container, "
            "or weights in q8_0."
        )
    for name in SERVING_LIBRARIES[card.kind]:
        expected, found = card.libraries.get(name), machine.libraries.get(name)
        if expected != found:
            return (
                f"libraries, {name}: the card says {expected}, installed is {found}; "
                f"prepare the engine again, or install {name}=={expected}."
            )
    for name, expected in card.hardware.items():
        if (found := machine.hardware.get(name)) != expected:
            return (
                f"{name}: the card says {expected}, this machine has {found or 'none'}; prepare "
                "the engine again here, its caches would not fit."
            )
    return None
