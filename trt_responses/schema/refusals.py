"""Errors of unsupported schemas, and departures of texts from a schema."""

from __future__ import annotations

from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.frozen import dataclass

SHOWN = 60
"""Maximum characters of a value in a message."""

Path = tuple[str | int, ...]
"""The place of a value: names and indices, outermost first."""


class InvalidSchema(InvalidRequest):
    """The schema is invalid, or requires what no guide supports."""

    code = "invalid_json_schema"


class SlowSchema(InvalidSchema):
    """The schemas of one request exceeded their compile time."""


def refused(place: str, what: str, keyword: str | None = None) -> InvalidSchema:
    """The error for an invalid or unsupported schema."""
    param = place if keyword is None else f"{place}.{keyword}"
    return InvalidSchema(f"Invalid schema: '{param}' {what}.", param=param)


def place_of(path: Path) -> str:
    """The place of a path as text, such as `$.items[2].price`."""
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in path
    )


@dataclass(frozen=True, slots=True)
class Departure:
    """A value that a schema forbids: its path, and the reason, as the end of a sentence."""

    path: Path
    why: str

    @property
    def place(self) -> str:
        return place_of(self.path)

    def __str__(self) -> str:
        return f"at '{self.place}': {self.why}"


class OutOfSteps(Exception):
    """Judging a value takes more steps than allowed."""


class Departed(ApiError):
    """The model's output does not follow its schema."""

    code = "output_departs_from_format"


def shown(value: object) -> str:
    """A value, shortened for a message."""
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
