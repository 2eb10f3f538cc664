"""The card of a prepared engine: its source, its properties, and its requirements.
Defines the fields, and compares them with a directory and a machine; builds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping  # decoded by its annotation
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

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
    bytes_of,
    decoded,
    file_difference,
)
from trt_responses.prepare.machine import ServingMachine
from trt_responses.prepare.shelf.chain import Chain, Format

CARD = "card.json"
SCHEMA = 1
MAX_CARD_BYTES = 10_000_000

Kind = Literal["llamacpp", "trtllm", "tensorrt", "onnx"]
Status = Literal["planned", "built", "verified"]
StoredWeights = Format | Literal["q8_0", "gguf"]
"""The type of the stored weights. `gguf`: several types, as in a downloaded file."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a checkpoint, by name, size and digest."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """The checkpoint: its config, its index if any, and its shards; or a GGUF file."""

    name: str
    layout: Literal["hf", "original", "gguf"]
    files: tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's longest context, and the memory that it needs."""

    context_tokens: int
    memory_bytes: int
    """Bytes of the weights alone, without the cache of a context."""


@dataclass(frozen=True, slots=True)
class DialectFacts:
    """The facts about a model with a chat template, from the time of its preparation."""

    family: str
    stop_ids: tuple[int, ...]
    """The ids that end a turn. The template writes the first one."""
    probes: Mapping[str, bool | str]
    """The result of each probe of the template, by the probe's name."""
    form: Mapping[str, Any] | None = None
    """How the model writes, read out of its template; None: as the family says."""

    def sentence(self) -> str:
        """The facts in one sentence."""
        facts = ", ".join(f"{name} {value}" for name, value in self.probes.items())
        why = (self.form or {}).get("no_calls")
        spoken = f"It speaks '{self.family}' ({facts or 'text only: no tools and no thoughts'})."
        return f"{spoken} It has no tools: {why}." if why else spoken


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
    """The hardware that prepared a GPU engine, by name; empty for an engine of any hardware."""
    dialect: DialectFacts | None = None
    """The facts about the model's dialect; None for Harmony."""
    chain: Chain | None = None
    """The files and compilations of a graph; None for the other kinds."""
    ignores: tuple[str, ...] = ()
    """Sampling options that the engine accepted and ignored when it was prepared."""
    note: str | None = None
    """What users of the model are to know before they try it."""
    temperature: float | None = None
    """The temperature of requests that set none; None: the API's default."""
    strict_tools: bool = False
    """Arguments of functions that are not strict are guided as well."""
    number: int | None = None
    """The number of this build among those of its name, from 1 on; None for a build of a release
    without numbers, in a read-only directory."""

    @property
    def label(self) -> str:
        """The engine's name with its version, in the form of the setting ENGINE."""
        return f"{self.name}@{self.number or self.version}"


SERVING_LIBRARIES: Mapping[Kind, tuple[str, ...]] = {
    "llamacpp": ("xllamacpp",),
    "trtllm": ("tensorrt_llm",),
    "tensorrt": (),  # each plan has its own release
    "onnx": ("onnxruntime",),
}
"""The packages whose version must match the card. The others only wrote files: their versions are
recorded."""


def write_card(directory: Path, card: Card) -> None:
    """Write the card, in one write. The last step of a build."""
    write_whole(directory / CARD, json.dumps(asdict(card), indent=2) + "\n")


def read_card(directory: Path) -> Card:
    """The card of an engine directory. Raises a `PrepareError` for a missing or a wrong field."""
    if (text := bytes_of(directory / CARD, MAX_CARD_BYTES)) is None:
        raise PrepareError(
            f"{directory} has no {CARD}: its preparation did not finish; run `make engine` for "
            "it again, which repeats the unfinished phases only."
        )
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
    """The first difference of the card from the directory and the machine, with its remedy; None if
    they match. Without a machine it compares the files alone.

    Files are compared by size, then by time, and only if that differs (or `deep`) by digest.
    `plans.chain_difference` compares compiled plans.
    """
    if found := _status(card) or _place(card, directory) or (machine and _machine(card, machine)):
        return found
    for file in card.files:
        if found := file_difference(file, directory, deep=deep):
            return found
    return _unnamed(card)


def _unnamed(card: Card) -> str | None:
    """The fault of a served file that the card does not list: it would be served without a
    check."""
    for name in sorted(_served_files(card) - {file.name for file in card.files}):
        return f"files: the card does not list {name}, which is served; prepare the engine again."
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
    """The difference of a renamed directory from its card."""
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
            f"can use {machine.memory_bytes / 2**30:.1f} GiB; use a larger machine or container, "
            "or q8_0 weights."
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
                "the engine again on this machine."
            )
    return None
