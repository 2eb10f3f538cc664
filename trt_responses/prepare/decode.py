"""Dataclasses from JSON, strictly: the first missing, unknown or wrong field is named.

Knows annotations; knows no file and no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from trt_responses.prepare.faults import refusal

T = TypeVar("T")


def decoded(kind: type[T], value: object, where: str) -> T:
    """A dataclass from JSON, strictly: the first wrong or missing field is named. Only a field
    that may be None and is so by default can be absent: older files do not have it."""
    if not isinstance(value, dict):
        raise refusal(where, type(value).__name__, "an object")
    hints = get_type_hints(kind)
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # only dataclasses come
    later = {f.name for f in fields(kind) if f.default is None}  # type: ignore[arg-type]  # likewise
    for name in [*known - value.keys() - later, *value.keys() - known]:
        found = "no such field" if name in known else "an unknown field"
        raise refusal(f"{where}, {name}", found, "the fields of this schema; prepare it again")
    return kind(**{k: _typed(hints[k], value.get(k), f"{where}, {k}") for k in hints})


def _typed(hint: object, value: object, where: str) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _either(arguments, value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return decoded(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise refusal(where, repr(value), " or ".join(map(repr, arguments)))
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(arguments[0], v, f"{where} {n}") for n, v in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {k: _typed(arguments[1], v, f"{where}, {k}") for k, v in value.items()}
    lawful = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}.get(hint)  # type: ignore[call-overload]  # a plain type by now
    if lawful is None or not isinstance(value, lawful) or isinstance(value, bool) != (hint is bool):
        expected = hint.__name__ if isinstance(hint, type) else str(hint)
        raise refusal(where, repr(value), expected)
    return value


def _either(hints: tuple[object, ...], value: object, where: str) -> object:
    """None, or the one thing beside it; words of several lists are one list."""
    if value is None and NoneType in hints:
        return None
    words = [get_args(hint) for hint in hints if get_origin(hint) is Literal]
    if words:
        return _typed(Literal[tuple(word for list_ in words for word in list_)], value, where)
    (other,) = (hint for hint in hints if hint is not NoneType)
    return _typed(other, value, where)
