"""Safetensors files: a bounded header reader, tensors as memory maps, and a writer.

Works on bytes, shapes and dtypes. Reads the header only; `Tensor.read` reads the values.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError, refusal, shown

Array = NDArray[np.generic]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

MAX_HEADER_BYTES = 100_000_000
"""The largest header: the bound of the format's own library."""
MAX_DIMENSIONS = 8
MAX_SIZE = 1 << 48
"""The largest dimension and offset: a header may have thousands of digits, and products of such
numbers take minutes."""

NUMPY_TYPE: Mapping[str, str] = {
    "F32": "<f4",
    "BF16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U8": "u1",
}
"""The numpy types of the supported dtypes. numpy has no bfloat16: its bits are read as 16-bit
integers."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by name, with a function that gives its values: a memory map, or a view of one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Array]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(NUMPY_TYPE[self.dtype]).itemsize


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file, by name. Checks every field of the header."""
    data_start, size_bytes, header = _header(path)
    regions: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, start, end = _entry(path, name, entry)
        regions.append((start, end, name))
        read = partial(_values, path, dtype, shape, data_start + start)
        tensors[name] = Tensor(name, dtype, shape, read)
    _check_tiling(path, sorted(regions), size_bytes - data_start)
    return tensors


def _header(path: Path) -> tuple[int, int, dict[str, object]]:
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise refusal(path.name, f"{size_bytes} bytes", "a safetensors file with a header")
        (length,) = struct.unpack("<Q", prefix)
        if length > MAX_HEADER_BYTES:
            expected = f"at most {MAX_HEADER_BYTES} bytes"
            raise refusal(f"{path.name} header length", f"{length} bytes", expected)
        if length > size_bytes - 8:
            raise PrepareError(
                f"{path.name} is truncated: found {size_bytes} bytes, expected a header of "
                f"{length} bytes and data after it; copy the file again."
            )
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{path.name} header", f"no JSON ({error})", "a JSON object") from None
    if not isinstance(header, dict):
        raise refusal(f"{path.name} header", type(header).__name__, "a JSON object")
    return 8 + length, size_bytes, header


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _entry(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    label = f"{path.name}, tensor {shown(name)}"
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]}:
            pass
        case _:
            raise refusal(label, "another entry", "dtype, shape and two data_offsets")
    if dtype not in NUMPY_TYPE:
        raise refusal(f"{label}, dtype", dtype, ", ".join(NUMPY_TYPE))
    if len(shape) > MAX_DIMENSIONS:
        raise refusal(label, f"{len(shape)} dimensions", f"at most {MAX_DIMENSIONS}")
    if not all(type(n) is int and 0 <= n < MAX_SIZE for n in (*shape, start, end)):
        most = MAX_SIZE - 1
        raise refusal(label, "a size or offset that is no count", f"numbers from 0 to {most}")
    expected = math.prod(shape) * np.dtype(NUMPY_TYPE[dtype]).itemsize
    if end - start != expected:
        raise refusal(label, f"{end - start} bytes", f"{expected} bytes for {dtype} {shape}")
    return dtype, tuple(shape), start, end


def _check_tiling(path: Path, regions: list[tuple[int, int, str]], data_bytes: int) -> None:
    """Check that the tensors fill the data without a hole or an overlap, as the format requires."""
    position = 0
    for start, end, name in regions:
        if start != position:
            what = "an overlap" if start < position else "a hole"
            raise refusal(
                f"{path.name}, tensor {name!r}", f"{what} at {start}", f"data from {position} on"
            )
        position = end
    if position > data_bytes:
        raise PrepareError(
            f"{path.name} is truncated: found {data_bytes} bytes of data, expected {position}; "
            "copy the file again."
        )
    if position < data_bytes:
        raise refusal(path.name, f"{data_bytes} bytes of data", f"{position}, as its header says")


def _values(path: Path, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    kind = np.dtype(NUMPY_TYPE[dtype])
    if not math.prod(shape):
        return np.empty(shape, kind)
    return np.memmap(path, kind, mode="r", offset=offset, shape=shape)


def write_tensors(path: Path, tensors: Iterable[Tensor], *, sparse: bool = False) -> None:
    """Write a file tensor by tensor. `sparse` writes the header and the size, and leaves zeros."""
    tensors = list(tensors)
    header: dict[str, object] = {}
    position = 0
    for tensor in tensors:
        end = position + tensor.size_bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + position)
            return
        for tensor in tensors:
            np.ascontiguousarray(tensor.read(), NUMPY_TYPE[tensor.dtype]).tofile(file)


def widen(values: Array) -> Floats:
    """The float32 values of bfloat16 bits, or of float32."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def narrow(values: Floats) -> NDArray[np.uint16]:
    """The bfloat16 bits of float32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
