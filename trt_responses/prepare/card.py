"""The card: what a prepared engine was made from, what it is, and what serving must find.

Knows the card's fields and how to compare them with a directory and a machine; builds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping  # noqa: TC003  # decoded by its annotation
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from trt_responses.prepare.chain import Chain, chain_difference
from trt_responses.prepare.checkpoint.architecture import Architecture  # noqa: TC001  # likewise
from trt_responses.prepare.decode import decoded
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.hardware import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CARD = "card.json"
SCHEMA = 1
MAX_CARD_BYTES = 10_000_000

Kind = Literal["llamacpp", "trtllm", "tensorrt", "onnx"]
Status = Literal["planned", "built", "verified"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """The checkpoint: its config first, its index if it has one, its shards."""

    name: str
    layout: Literal["hf", "original"]
    files: tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True)
class EngineFile:
    name: str
    size_bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Limits:
    context_tokens: int
    memory_bytes: int
    """What the weights alone take; the cache of a context comes on top."""


@dataclass(frozen=True, slots=True)
class Card:
    schema: int
    kind: Kind
    status: Status
    name: str
    version: str
    source: Source
    architecture: Architecture
    weight_type: Literal["f32", "bf16", "q8_0", "mxfp4", "int8", "f16"]
    libraries: Mapping[str, str]
    limits: Limits
    files: tuple[EngineFile, ...]
    built_at: str
    seconds: Mapping[str, float]
    greedy_ids: tuple[int, ...] = ()
    """What the engine answered to the fixed prompt when it was verified."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """What a GPU engine was prepared on, by name; empty for one that runs anywhere."""
    chain: Chain | None = None
    """What a graph, compiled or not, has beside; None for the other kinds."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What serving stands on, as far as a card can disagree with it."""

    byte_order: str
    memory_bytes: int
    libraries: Mapping[str, str]
    hardware: Mapping[str, str] = field(default_factory=dict)


LIBRARIES = (
    *("gguf", "numpy", "onnx", "onnxruntime", "tensorrt_llm", "xllamacpp"),
    *(f"tensorrt_rtx_cu13_{part}" for part in ("bindings", "libs")),
)
SERVING_LIBRARIES: Mapping[Kind, tuple[str, ...]] = {
    "llamacpp": ("xllamacpp",),
    "trtllm": ("tensorrt_llm",),
    "tensorrt": (),  # the plans say it themselves
    "onnx": ("onnxruntime",),
}
"""Those whose version must be the card's own; the rest only made the files, and are recorded."""


def this_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(sys.byteorder, memory, library_versions(), gpu_facts())


def library_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_card(directory: Path, card: Card) -> None:
    """Last of all, and whole or not at all."""
    write_whole(directory / CARD, json.dumps(asdict(card), indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replace a small file so that a crash leaves the old one or the new one."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


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
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(path, f"no JSON ({error})", "a card; prepare the engine again") from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise refusal(f"{path}, schema", repr(schema), f"{SCHEMA}; prepare the engine again")
    return decoded(Card, found, CARD)


def compare(card: Card, directory: Path, machine: Machine, *, deep: bool = False) -> str | None:
    """The first difference between the card and what is there, with its remedy; None if none.

    Files are compared by size, then by time, and only when that differs (or `deep`) by digest.
    """
    for check in (_status, _place, _machine):
        if found := check(card, directory, machine):
            return found
    for file in card.files:
        if found := file_difference(file, directory, deep=deep):
            return found
    return chain_difference(card, directory)


def _status(card: Card, directory: Path, machine: Machine) -> str | None:
    if card.status == "planned":
        return (
            f"status: the card of {card.name} says planned, expected built or verified; "
            "run `make engine` where it can be built."
        )
    return None


def _place(card: Card, directory: Path, machine: Machine) -> str | None:
    """A directory that was renamed by hand no longer says what it is."""
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


def _machine(card: Card, directory: Path, machine: Machine) -> str | None:
    if machine.byte_order != "little":
        return "byte order: the files are little-endian, the machine is not; use another machine."
    if card.kind in ("llamacpp", "onnx") and card.limits.memory_bytes > machine.memory_bytes:
        return (
            f"memory: the weights need {card.limits.memory_bytes / 2**30:.1f} GiB, the machine has "
            f"{machine.memory_bytes / 2**30:.1f} GiB; use a larger machine, or weights in q8_0."
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


def file_difference(file: EngineFile, directory: Path, *, deep: bool = False) -> str | None:
    """What is wrong with one file, by size, then time, then digest."""
    remedy = "prepare the engine again."
    parts = file.name.split("/")
    if "\\" in file.name or len(parts) > 2 or {"", ".", ".."} & {*parts}:
        return f"files: the card names {file.name!r}, expected a file in the directory; {remedy}"
    path = directory / file.name
    if not path.is_file():
        return f"{file.name}: found no such file, expected {file.size_bytes} bytes; {remedy}"
    status = path.stat()
    if status.st_size != file.size_bytes:
        return f"{file.name}: found {status.st_size} bytes, expected {file.size_bytes}; {remedy}"
    if status.st_mtime_ns == file.mtime_ns and not deep:
        return None
    if (found := sha256_of(path)) != file.sha256:
        return f"{file.name}: found SHA-256 {found[:12]}…, expected {file.sha256[:12]}…; {remedy}"
    return None


def sha256_of(path: Path, advance: Callable[[int], object] = lambda size_bytes: None) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def engine_file(path: Path, sha256: str, folder: str = "") -> EngineFile:
    """One file, by its name; by that of its folder too if it stands in one of the engine's."""
    status = path.stat()
    name = f"{folder}/{path.name}" if folder else path.name
    return EngineFile(name, status.st_size, status.st_mtime_ns, sha256)
