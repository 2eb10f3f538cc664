"""As much of protobuf's wire format as the mocks of gRPC engines need: fields by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

VARINT, SIXTY_FOUR, BYTES, THIRTY_TWO = 0, 1, 2, 5
FIXED = {SIXTY_FOUR: 8, THIRTY_TWO: 4}


def varint(value: int) -> bytes:
    """A number; a negative one has ten bytes."""
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def message(fields: Mapping[int, Any]) -> bytes:
    """A message. Values are numbers, texts, bytes (messages too) and lists of numbers; None and
    proto3's defaults are left out, but for numbers in a list of one, which is packed."""
    made = bytearray()
    for number, value in fields.items():
        if isinstance(value, (list, tuple)):
            value = b"".join(map(varint, value))
        elif isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            made += varint(number << 3 | BYTES) + varint(len(value)) + value
        elif value:
            made += varint(number << 3 | VARINT) + varint(int(value))
    return bytes(made)


def read(data: bytes) -> dict[int, list[Any]]:
    """Each field's values in order: numbers, or bytes for anything longer."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            fields.setdefault(number, []).append(value)
            continue
        size, at = (FIXED[kind], at) if kind in FIXED else _varint(data, at)
        fields.setdefault(number, []).append(data[at : at + size])
        at += size
    return fields


def numbers(values: Iterable[Any]) -> list[int]:
    """The numbers of a repeated field, packed or not."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
