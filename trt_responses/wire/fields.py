"""What this server does with each field of a request, down to the kinds of items and tools.

A field is honoured, echoed (it stands in the answer and changes nothing else), ignored (named in
the header `x-trt-ignored`, or `x-trt-dropped-tools`), or refused by name unless it asks for what
happens anyway. The table only: `judge.py` enforces it, `GET /v1/fields` and docs/api.md tell it.

The rows stand in `fields.txt`. A row's path is a field, `outer.inner`; `include.value`; a key of
each entry, `tools[].key`; or a kind of entry, `tools[].type=kind`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

from trt_responses.frozen import dataclass

KIND = re.compile(r"include\.|tool_choice\.|.*\[\]")
"""The path of a kind that a field may have."""
Treatment = Literal["honoured", "echoed", "ignored", "refused"]


def nothing(value: Any) -> bool:
    """Whether a value asks for nothing: null, false, zero or an empty list."""
    return value in (None, False, 0) or value == []


@dataclass(frozen=True, slots=True)
class Field:
    """One row of the table: what is done with one field."""

    path: str
    treatment: Treatment
    note: str = ""
    ours: bool = False
    """Not one of the OpenAI SDK's."""
    harmless: Callable[[Any], bool] = nothing
    """Of a refused field: the values that ask for what happens anyway."""


def rows(path: str, treatment: Treatment, note: str, *kinds: str) -> list[Field]:
    """A row for each kind, all with the same treatment and note."""
    return [Field(path + kind, treatment, note) for kind in kinds]


def _table() -> Iterator[Field]:
    treatment, note, ours = "", "", False
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        if line.startswith("  "):
            for path in line.split():
                harmless = HARMLESS.get(path, nothing)
                yield Field(path, cast("Treatment", treatment), note, ours, harmless)
        elif not line.startswith("#"):
            kind, _, note = line.partition(": ")
            treatment, _, mark = kind.partition(" ")
            ours = mark == "ours"


HARMLESS: dict[str, Callable[[Any], bool]] = {
    "reasoning.context": lambda value: value in (None, "auto", "current_turn")
}
FIELDS: tuple[Field, ...] = tuple(_table())
OPTIONS = tuple(field for field in FIELDS if not KIND.match(field.path))
KINDS = tuple(field for field in FIELDS if KIND.match(field.path))
TABLE = {field.path: field for field in FIELDS}
NESTED = frozenset(field.path.partition(".")[0] for field in OPTIONS if "." in field.path)


def honoured(prefix: str) -> list[str]:
    """The supported kinds of one field, such as `input[].type=`."""
    return [
        path.removeprefix(prefix)
        for path, field in TABLE.items()
        if path.startswith(prefix) and field.treatment == "honoured"
    ]
