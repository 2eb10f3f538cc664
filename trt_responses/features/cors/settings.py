"""The settings of `features/cors/`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from trt_responses.settings.values import SettingGroup, Words, is_url


def origins(values: tuple[str, ...]) -> tuple[str, ...]:
    """Origins of web pages, such as https://app.example, in the spelling of browsers."""
    for value in values:
        form = re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+", value, re.IGNORECASE)
        if not form or ("://" in value and not is_url(value)):
            raise ValueError(
                f"{value!r} is no origin: expected scheme://host or scheme://host:port, "
                "without a path and without a slash at the end"
            )
    return tuple(map(str.lower, values))


class CorsSettings(SettingGroup):
    """Pages of other origins."""

    allowed_origins: Annotated[Words, AfterValidator(origins)] = Field(
        (),
        description="Origins whose web pages may call the API, `https://app.example,…`; `*` "
        "accepts any.",
    )
