"""What a session of a tool may offer besides answers: a list of its tools, and sources to cite.

Knows no Harmony, no item of the API and no concrete tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import orjson
from orjson import Fragment

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME = 64


def function_name(label: str, name: str) -> str:
    """The model's name for an MCP server's tool, with an underscore for what no function's has."""
    return f"{label}__{NOT_IN_NAMES.sub('_', name)[:MAX_NAME]}"


DEFERS = "defers"
"""The option of a server of tools whose tools may be too many to show at once."""
NO_ITEMS = "no_items"
"""The option of a tool whose client sees all that the model reads, but no item of a failed list."""


NO_JSON = (
    "Error parsing tool arguments as JSON: {}. Please ensure the tool call arguments are valid "
    "JSON and try again."
)
"""An answer for the model to a call that cannot be read."""


def arguments_of(text: str) -> Any:
    """The arguments of a call, of values that an item can hold: no lone surrogate, no huge integer.
    Raises a `ValueError` with an answer for the model."""
    try:
        return orjson.loads(text)
    except ValueError as fault:
        raise ValueError(NO_JSON.format(fault)) from None


class Listing(NamedTuple):
    """What a session has found out that the tool offers; the client gets it first."""

    server_label: str
    tools: tuple[Mapping[str, Any], ...] | Fragment
    """As they are written down; a `Fragment` of JSON where many requests get the same ones."""
    error: str | None = None
    """Why it could not be found out, in words."""


class Source(NamedTuple):
    """The place of something that a tool has shown."""

    url: str
    title: str


class CitedSession(Protocol):
    """A session whose displays can be cited: `【3†L5】` is line 5 of the display with cursor 3."""

    def source(self, cursor: int, line: int) -> Source | None:
        """None for what it has not shown."""
        ...


class Lists(Protocol):
    """A session that had to find out what its tool offers."""

    @property
    def listing(self) -> Listing | None:
        """None when that was known already."""
        ...
