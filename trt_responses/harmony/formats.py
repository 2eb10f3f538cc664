"""Formats that a string may be asked to have: what JSON Schema calls them, and whether it has."""

from __future__ import annotations

import re
from datetime import date, time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_date(text: str) -> bool:
    """A day that there is: 31 February has the form and is none."""
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def is_date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text)
    return found is not None and is_date(found[1]) and _parses(time.fromisoformat, found[2])


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date": is_date,
    "date-time": is_date_time,
    "uuid": is_uuid,
}
"""Formats that are honoured."""
