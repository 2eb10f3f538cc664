"""The settings, their defaults and bounds, read from variables named `TRT_RESPONSES_<FIELD>`.

`Settings` has those of the core. What `Settings(…)` makes also has those of each installed folder
and package (`groups.py`), which read their own with `of`.

A value that cannot be used stops the start with the field's name and the reason; a variable with
the prefix that is no setting is named in the log. Defaults are such that a laptop survives them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr, ValidationError, create_model

from trt_responses.errors import UsageError
from trt_responses.settings.core import CoreSettings, Fixed
from trt_responses.settings.groups import check_apart, gone, installed, listed, settable
from trt_responses.settings.values import SECRET

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

logger = logging.getLogger(__name__)

PREFIX = "TRT_RESPONSES_"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


class Settings(Fixed, CoreSettings):
    """All that an operator chooses for one server, and the numbers that are fixed."""

    _flags: Mapping[str, str] = PrivateAttr(default_factory=dict)
    """The flags of a command that has some, by setting; without those that a variable set."""

    def __new__(cls, **values: Any) -> Settings:
        return super().__new__(whole() if cls is Settings else cls)

    def __init__(self, **values: Any) -> None:
        for one in listed():
            if one.folder and one.name in values and one.name not in type(self).model_fields:
                raise UsageError(f"{variable(one.name)}: {one.folder} is not installed.")
        super().__init__(**values)

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        flags: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Settings:
        """Settings from the environment; those in `given` that are not None come before them.
        Errors name a setting by its flag in `flags`, unless a variable set it."""
        for name, instead in gone().items():
            if environment.get(variable(name)):
                raise UsageError(f"{variable(name)} is not a setting any more: {instead}.")
        for sentence in misspelt(environment):
            logger.warning("%s", sentence)
        found = {
            name: environment[variable(name)]
            for name in (*variables(), *(one.name for one in listed()))
            if environment.get(variable(name))
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        unset = found.keys() - chosen.keys()
        named = {name: flag for name, flag in (flags or {}).items() if name not in unset}
        try:
            settings = cls(**{**found, **chosen})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = str(first["loc"][0])
            name = named.get(field, variable(field))
            got = "" if field in secrets() else f" (got {hidden(repr(first['input'])):.100})"
            raise UsageError(f"{name}: {_reason(first)}{got}.") from None
        settings._flags = named
        return settings

    def option(self, name: str) -> str:
        """What sets this setting: the flag of the command that was run, else the variable."""
        return self._flags.get(name, variable(name))

    def hosts(self) -> tuple[str, ...]:
        """Host headers that are answered. If keys are required, `*` allows any host."""
        return (*LOOPBACK, self.host, f"[{self.host}]", *self.allowed_hosts)


EXPECTED = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a whole number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_parsing": "expected 0 or 1",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "literal_error": "expected {expected}",
}
"""Plain words for Pydantic's kinds of errors."""


def _reason(error: ErrorDetails) -> str:
    if (text := EXPECTED.get(error["type"])) is not None:
        return text.format(**error.get("ctx", {}))
    return error["msg"].removeprefix("Value error, ")


def hidden(text: str) -> str:
    """The text without the user and the password of a URL. A password may have any sign, `@` and
    `/` too, also where nothing could use such a URL."""
    return re.sub(r"(?<=://).+@", "…@", text)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


@cache
def whole() -> type[Settings]:
    """The settings of all that is installed."""
    bases: tuple[type[Any], ...] = (Settings, *installed())
    check_apart((CoreSettings, Fixed, *bases))
    return create_model("Settings", __base__=bases, __module__=__name__)


def variables() -> tuple[str, ...]:
    """The settings that the environment may give, in the order of help."""
    return tuple(name for name, _ in settable(whole()))


@cache
def secrets() -> frozenset[str]:
    """The settings that are neither printed nor given to the engine's process."""
    fields = whole().model_fields.items()
    return frozenset(name for name, field in fields if SECRET in field.metadata)


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable with the prefix that is no setting, with the nearest setting."""
    known = [name.upper() for name in variables()]
    sentences = []
    for variable in sorted(environment):
        prefix, name = variable[: len(PREFIX)], variable[len(PREFIX) :]
        if prefix.upper() != PREFIX or (prefix == PREFIX and name in known):
            continue
        near = get_close_matches(name.upper(), known, 1)
        meant = f"did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists them all."
        sentences.append(f"{variable} is not a setting and is ignored: {meant}")
    return sentences
