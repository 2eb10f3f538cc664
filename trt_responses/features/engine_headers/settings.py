"""The settings of `features/engine_headers/`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from trt_responses.settings.values import SettingGroup, Words


def headers(values: tuple[str, ...]) -> tuple[str, ...]:
    """Headers as name=value, with names in lower case; a value may hold {session} and {owner}."""
    split = [value.partition("=") for value in values]
    for name, sign, value in split:
        without = re.sub(r"\{(session|owner)\}", "", value)
        if not (sign and value and re.fullmatch(r"[\w-]+", name, re.ASCII)) or (
            re.match(r"(host|connection|content-|transfer-)", name, re.IGNORECASE)
        ):
            raise ValueError(f"{name!r} is no header that can be added: expected name=value")
        if not re.fullmatch(r"[ -z|~]*", without):
            raise ValueError(
                f"the value of {name!r} may hold ASCII, {{session}} and {{owner}}, and no other "
                "braces"
            )
    return tuple(f"{name.lower()}={value}" for name, _, value in split)


class EngineHeaderSettings(SettingGroup):
    """Headers for engines."""

    engine_headers: Annotated[Words, AfterValidator(headers)] = Field(
        (),
        description="Headers for the requests to an engine at a URL, as `name=value,…`; "
        "`{session}` and `{owner}` stand for digests of the conversation and its owner.",
    )
