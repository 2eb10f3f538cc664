"""The kinds of values that settings have: lists of words, texts, hosts, numbers within bounds."""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MIB = 1024 * 1024
YEAR_S = 366 * 86_400
LARGEST = 2**53 - 1
"""The largest whole number that every store and every JSON reader keeps exactly."""


def _words(value: Any) -> Any:
    """Split a text at its commas; a tuple stays as it is."""
    return (
        tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
    )


def _text(value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", value):
        raise ValueError("it holds a control character, or bytes that are no UTF-8")
    return value


def _sendable(value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError("it has a character that no header can have: see its line's end")
    return value


def is_url(value: str) -> bool:
    """Whether a URL has a host, and a port that can be one, and no blank or control character."""
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        return False
    return usable and not re.search(r"[\s\x00-\x1f\x7f\ud800-\udfff]", value)


def http_url(value: str) -> str:
    """A URL with http or https."""
    if not (is_url(value) and urlsplit(value).scheme in ("http", "https")):
        raise ValueError("expected a URL such as https://host:port/path")
    return value


def _folder(path: Path) -> Path:
    """A directory, or a path where one can be made."""
    nearest = next(one for one in (path, *path.parents) if os.path.exists(one))
    if not os.path.isdir(nearest):
        raise ValueError(f"{nearest} is not a directory")
    return path


def day(value: str) -> str:
    """A date as the system message has it, such as 2026-01-31."""
    if date.fromisoformat(value).isoformat() != value:
        raise ValueError("expected the form 2026-01-31")
    return value


def hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    """Names and addresses of hosts as a Host header has them, without scheme and port."""
    for value in values:
        if not re.fullmatch(r"\*|[\w.~-]+|\[[0-9a-f:.]+\]", value, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"{value!r} is no host: give its name or address alone, without scheme and port, "
                "an IPv6 address in brackets"
            )
    return values


Text = Annotated[str, AfterValidator(_text)]
Words = Annotated[tuple[Text, ...], BeforeValidator(_words)]
Url = Annotated[str, AfterValidator(http_url)]
Folder = Annotated[Path, AfterValidator(_folder)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0.001, le=YEAR_S, allow_inf_nan=False)]
SECRET = object()
"""Marks a setting that is neither printed nor given to the engine's process."""
SecretText = Annotated[Text | None, SECRET]
HeaderKey = Annotated[Annotated[str, AfterValidator(_sendable)] | None, SECRET]
"""A secret that is sent in a header."""
SecretWords = Annotated[Words, SECRET]


class SettingGroup(BaseModel):
    """Settings that belong together. Where `listed.txt` does not have them, help lists them under
    the docstring's first line."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def of(cls, settings: SettingGroup) -> Self:
        """This group of a server's settings."""
        assert isinstance(settings, cls), f"{cls.__name__} was declared after the settings"
        return settings


class FixedGroup(SettingGroup):
    """Numbers that no operator turns: no variable sets them. Tests do, and each says its reason."""
