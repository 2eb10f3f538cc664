"""The files of a prepared engine: their names, digests and comparison; and small JSON files.
Independent of cards, checkpoints and engines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError, cut, refusal, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _typeshed import DataclassInstance

MODEL = "model.gguf"
"""The file that llama.cpp serves."""
GGUF, GGUF_PART = ".gguf", re.compile(r"-(\d{5})-of-(\d{5})\.gguf")
"""The ending of a GGUF file's name, and the ending of one part of several."""
DIALECT = "dialect.json"
"""The file with the tokens and the chat template of a model without Harmony."""
GRAPH = "graph"
"""The folder of ONNX files."""
EXPERTS = "experts.safetensors"
"""The file in that folder with the experts' weights of a graph that is not compiled."""
ARGUMENTS, CHECKPOINT = "llm_args.yaml", "checkpoint.json"
"""The file with TensorRT-LLM's arguments, and the file with the path of its weights."""
FINISHED = "finished.json"
"""The file with the finished work of a killed run; the card replaces it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineFile:
    """One file of an engine, by name, size, time and digest."""

    name: str
    size_bytes: int
    mtime_ns: int
    sha256: str


def engine_file(path: Path, sha256: str, folder: str = "") -> EngineFile:
    """One file by its name, with its folder if it is in a folder of the engine's directory."""
    status = path.stat()
    name = f"{folder}/{path.name}" if folder else path.name
    return EngineFile(name, status.st_size, status.st_mtime_ns, sha256)


def file_difference(
    file: EngineFile,
    directory: Path,
    *,
    deep: bool = False,
    remedy: str = "prepare the engine again.",
) -> str | None:
    """The fault of one file, or None. Compares the size and the time, and the digest if the time
    differs or with `deep`."""
    parts = file.name.split("/")
    if "\\" in file.name or len(parts) > 2 or {"", ".", ".."} & {*parts}:
        name = shown(file.name)
        return f"files: the card names {name}, expected a file in the directory; {remedy}"
    path = directory / file.name
    try:
        status = path.stat()
    except (OSError, ValueError):
        name = cut(file.name)
        return f"{name}: found no such file, expected {file.size_bytes} bytes; {remedy}"
    if status.st_size != file.size_bytes:
        return f"{file.name}: found {status.st_size} bytes, expected {file.size_bytes}; {remedy}"
    if status.st_mtime_ns == file.mtime_ns and not deep:
        return None
    try:
        found = sha256_of(path)
    except OSError as error:
        return f"{file.name}: it cannot be read ({error.strerror}); {remedy}"
    if found != file.sha256:
        return f"{file.name}: found SHA-256 {found[:12]}…, expected {file.sha256[:12]}…; {remedy}"
    return None


def sha256_of(path: Path, advance: Callable[[int], object] = lambda size_bytes: None) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def bytes_of(path: Path, most_bytes: int = -1) -> bytes | None:
    """The content of a file, up to a bound; None if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrepareError(f"{path} cannot be read ({error.strerror}).") from None


def json_or_nothing(path: Path) -> dict[str, object]:
    """The JSON object in a file; an empty one if the file is missing or truncated."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_finished(directory: Path, finished: DataclassInstance) -> None:
    """Write a run's finished work, so that the next run continues if this one is killed."""
    write_whole(directory / FINISHED, json.dumps(asdict(finished), indent=2) + "\n")


def read_finished(directory: Path, kind: type[T]) -> T | None:
    """The finished work of a killed run; None without any of this kind."""
    try:
        return decoded(kind, (directory / FINISHED).read_bytes(), FINISHED)
    except (OSError, PrepareError):
        return None


def decoded(kind: type[T], text: bytes | str, where: str) -> T:
    """A dataclass from JSON. Raises a `PrepareError` at the first field that is missing, unknown or
    wrong."""
    try:
        return TypeAdapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    steps = (str(step) for step in first["loc"])
    place = ", ".join([where, *(step for step in steps if "[" not in step)])  # a union's branch
    found, expected = shown(first["input"]), first["msg"].removeprefix("Input should be ")
    match first["type"]:
        case "missing":
            found, expected = "nothing", "a value"
        case "unexpected_keyword_argument":
            expected = "no such field"
        case "json_invalid":
            found, expected = first["msg"], "JSON"
    raise refusal(place, found, f"{expected}; prepare it again")


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk, so that a name in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def nearest(path: Path) -> Path:
    """The path itself, or its nearest parent that exists."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def unwritable(folder: Path) -> str | None:
    """Why no file can be made in a folder, which is made where it is missing; None if one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # no name, for others may look too
            file.write(b" ")
    except OSError as error:
        return error.strerror or str(error)
    return None
