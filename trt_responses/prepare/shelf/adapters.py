"""The adapters of a prepared engine: files in a folder next to its card, and a list with digests.
Reads and writes the list, and compares it with the files; each kind of engine checks its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import EngineFile, bytes_of, decoded, file_difference

FOLDER = "adapters"
LIST = "adapters.json"
MAX_LIST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter. Its files are in the folder of adapters; the first has the weights."""

    name: str
    source: str
    rank: int
    """The largest rank of its matrices."""
    modules: tuple[str, ...]
    """The matrices that it changes, by llama.cpp's names without the layer."""
    files: tuple[EngineFile, ...]
    added_at: str

    @property
    def sha256(self) -> str:
        """The digest of its weights."""
        return self.files[0].sha256

    @property
    def place(self) -> str:
        """The adapter's file, or its folder if it has one, in the folder of adapters."""
        folder, slash, _ = self.files[0].name.partition("/")
        return folder if slash else self.files[0].name


@dataclass(frozen=True, slots=True)
class AdapterList:
    """All adapters of an engine, by their names."""

    adapters: tuple[Adapter, ...] = ()


def adapters_of(directory: Path) -> tuple[Adapter, ...]:
    """The adapters of a prepared engine, in the order of their names."""
    text = bytes_of(directory / FOLDER / LIST, MAX_LIST_BYTES)
    return () if text is None else decoded(AdapterList, text, f"{FOLDER}/{LIST}").adapters


def write_adapters(directory: Path, adapters: Sequence[Adapter]) -> None:
    """Replace the list of an engine's adapters, in one write."""
    listed = AdapterList(tuple(sorted(adapters, key=lambda adapter: adapter.name)))
    write_whole(directory / FOLDER / LIST, json.dumps(asdict(listed), indent=2) + "\n")


def adapter_difference(directory: Path, *, deep: bool = False) -> str | None:
    """The first difference between the list of adapters and their files; None if there is none."""
    try:
        adapters = adapters_of(directory)
    except PrepareError as error:
        return str(error)
    for adapter in adapters:
        remedy = f"remove the adapter {adapter.name} and add it again."
        for file in adapter.files:
            if found := file_difference(file, directory / FOLDER, deep=deep, remedy=remedy):
                return f"adapter {adapter.name}, {found}"
    return None
