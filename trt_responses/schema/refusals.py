"""What is said of a schema that cannot be taken, and of a text that departs from one."""

from __future__ import annotations

from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.frozen import dataclass

SHOWN = 60
"""Characters of a value that a message shows."""

Path = tuple[str | int, ...]
"""Where in a text a value stands: names and numbers, from the outside in."""


class InvalidSchema(InvalidRequest):
    """The schema is wrong, or asks for what no guide can say. `left` names a keyword that may be
    left to chance where the schema is not strict."""

    code = "invalid_json_schema"


class SlowSchema(InvalidSchema):
    """The schemas of one request have had their time."""


def refused(place: str, what: str, keyword: str | None = None) -> InvalidSchema:
    """The error of a schema that asks for what cannot be followed."""
    param = place if keyword is None else f"{place}.{keyword}"
    return InvalidSchema(f"Invalid schema: '{param}' {what}.", param=param)


def place_of(path: Path) -> str:
    """The place of a path as people write it, such as `$.items[2].price`."""
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in path
    )


@dataclass(frozen=True, slots=True)
class Departure:
    """A value that a schema forbids: where it stands, and why, as the end of a sentence."""

    path: Path
    why: str

    @property
    def place(self) -> str:
        return place_of(self.path)

    def __str__(self) -> str:
        return f"at '{self.place}': {self.why}"


class OutOfSteps(Exception):
    """A value is too much to judge in so many steps."""


class Departed(ApiError):
    """The model's output is not what its schema says."""

    code = "output_departs_from_format"


def shown(value: object) -> str:
    """A value in short."""
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
