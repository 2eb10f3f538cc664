"""A number in the settings that the server may choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import WrapValidator


class Auto(int):
    """A number that the server chooses; 0 until then."""

    def __str__(self) -> str:
        return "auto"


def _or_auto(value: Any, number: Callable[[Any], int]) -> int:
    return Auto() if value == "auto" else number(value)


NumberOrAuto = Annotated[int, WrapValidator(_or_auto)]
