"""Reads the head of a downloaded GGUF file: its keys and its table of tensors, all bounded.
Reads the head only, checks every field, and executes nothing. Independent of the model.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType as Type

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.safetensors import Array
from trt_responses.prepare.faults import PrepareError, refusal, shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEAD_BYTES = 200_000_000
MAX_ENTRIES = 1_000_000
"""The most keys, tensors, and strings or numbers of an array."""
MAX_DIMENSIONS = 4
ALIGNMENT = "general.alignment"
NUMBERS = {
    Type.UINT8: "<B", Type.INT8: "<b", Type.UINT16: "<H", Type.INT16: "<h", Type.UINT32: "<I",
    Type.INT32: "<i", Type.FLOAT32: "<f", Type.BOOL: "<?", Type.UINT64: "<Q", Type.INT64: "<q",
    Type.FLOAT64: "<d",
}  # fmt: skip
LENGTH = struct.Struct("<Q")

Value = int | float | bool | bytes | list[bytes] | list[int | float | bool]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the file: its shape in numpy's order, its stored type, and its place."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    path: Path
    offset: int

    @property
    def size_bytes(self) -> int:
        block, bytes_each = gguf.GGML_QUANT_SIZES[self.kind]
        return math.prod(self.shape) // block * bytes_each

    def read(self) -> Array:
        """The tensor's stored bytes."""
        return np.memmap(self.path, np.uint8, "r", self.offset, (self.size_bytes,))


class GgufHead(NamedTuple):
    """The keys and the tensors of a file."""

    keys: Mapping[str, Value]
    tensors: Mapping[str, StoredTensor]


class _Cursor:
    """A position in a file, which stays inside the file and the bound of a head."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data = path, data
        self.place = 0

    def fault(self, found: str, expected: str) -> PrepareError:
        return refusal(self._path.name, found, expected)

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > min(len(self._data), MAX_HEAD_BYTES):
            raise self.fault(f"a head of more than {self.place} bytes", "a whole head of a GGUF")
        data_read = self._data[self.place : end]
        self.place = end
        return data_read

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def count(self, what: str) -> int:
        if (found := self.number("<Q")) > MAX_ENTRIES:
            raise self.fault(f"{found} {what}", f"at most {MAX_ENTRIES}")
        return found

    def string(self) -> bytes:
        return self.take(self.number("<Q"))

    def name(self) -> str:
        raw = self.string()
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.fault(f"the name {shown(raw)}", "UTF-8") from None

    def kind(self) -> Type:
        number = self.number("<I")
        try:
            return Type(number)
        except ValueError:
            raise self.fault(f"a value of type {number}", "one that GGUF has") from None

    def value(self) -> Value:
        kind = self.kind()
        return self._values() if kind == Type.ARRAY else self._scalar(kind)

    def _scalar(self, kind: Type) -> int | float | bool | bytes:
        if kind == Type.STRING:
            return self.string()
        layout = NUMBERS[kind]
        (found,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        value: int | float | bool = found
        return value

    def _values(self) -> list[bytes] | list[int | float | bool]:
        kind = self.kind()
        if kind == Type.ARRAY:
            raise self.fault("an array of arrays", "none")
        count = self.count("values in an array")
        if kind == Type.STRING:
            return self._strings(count)
        layout = f"<{count}{NUMBERS[kind][1]}"
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))

    def _strings(self, count: int) -> list[bytes]:
        """What `string` reads, at a third of its time: a vocabulary has 200,000."""
        data, end, read = self._data, min(len(self._data), MAX_HEAD_BYTES), LENGTH.unpack_from
        found: list[bytes] = []
        for _ in range(count):
            start = self.place + LENGTH.size
            if start > end or (stop := start + read(data, self.place)[0]) > end:
                self.string()  # raises
            found.append(data[start:stop])
            self.place = stop
        return found


def read_gguf(path: Path) -> GgufHead:
    """The keys and tensors of one file. Refuses tensors that overlap or lie outside the file."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < len(MAGIC):
                raise refusal(path.name, "an empty file", "a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _head(path, data)
    except OSError as error:
        raise PrepareError(f"{path.name} cannot be read ({error.strerror}).") from None


def _head(path: Path, data: mmap.mmap) -> GgufHead:
    cursor = _Cursor(path, data)
    if (magic := cursor.take(len(MAGIC))) != MAGIC:
        raise cursor.fault(f"a file that begins with {magic!r}", f"{MAGIC!r}, as every GGUF does")
    if (version := cursor.number("<I")) not in VERSIONS:
        raise cursor.fault(f"GGUF version {version}", "version 2 or 3, little-endian")
    tensor_count, key_count = cursor.count("tensors"), cursor.count("keys")
    keys: dict[str, Value] = {}
    for _ in range(key_count):
        name = cursor.name()
        if name in keys:
            raise cursor.fault(f"a second {shown(name)}", "one")
        keys[name] = cursor.value()
    listed = [_tensor(cursor, path) for _ in range(tensor_count)]
    alignment = keys.get(ALIGNMENT, gguf.GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= 65_536:
        raise cursor.fault(f"{ALIGNMENT} {shown(alignment)}", "a number from 8 to 65536")
    start = -(-cursor.place // alignment) * alignment
    return GgufHead(keys, _placed(cursor, listed, start, len(data)))


def _tensor(cursor: _Cursor, path: Path) -> StoredTensor:
    """A tensor of the table, which lists the innermost dimension first."""
    name, dimensions = cursor.name(), cursor.number("<I")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.fault(f"{dimensions} dimensions of {shown(name)}", f"1 to {MAX_DIMENSIONS}")
    shape = tuple(reversed([cursor.number("<Q") for _ in range(dimensions)]))
    number, offset = cursor.number("<I"), cursor.number("<Q")
    try:
        kind = Kind(number)
    except ValueError:
        raise cursor.fault(f"{shown(name)} of type {number}", "a type that is known here") from None
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    if 0 in shape or shape[-1] % block:
        raise cursor.fault(f"{shown(name)} of shape {shape}", f"rows of a multiple of {block}")
    return StoredTensor(name, shape, kind, path, offset)


def _placed(
    cursor: _Cursor, listed: list[StoredTensor], start: int, size_bytes: int
) -> dict[str, StoredTensor]:
    placed: dict[str, StoredTensor] = {}
    end = 0
    for tensor in sorted(listed, key=lambda each: each.offset):
        if tensor.name in placed:
            raise cursor.fault(f"a second tensor {shown(tensor.name)}", "one")
        if tensor.offset < end:
            raise cursor.fault(f"{shown(tensor.name)} over another tensor", "a place of its own")
        end = tensor.offset + tensor.size_bytes
        if start + end > size_bytes:
            raise cursor.fault(
                f"{size_bytes} bytes",
                f"{start + end} for {shown(tensor.name)}; the download may be incomplete",
            )
        placed[tensor.name] = replace(tensor, offset=start + tensor.offset)
    return placed
