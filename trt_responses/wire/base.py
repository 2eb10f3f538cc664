"""The base of every object that a client sends, and the ways to choose among kinds of them.

Knows no field of the API. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping  # noqa: TC003  # pydantic reads the annotations
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

MAX_KEYS = 64
"""Keys of one object whose keys this server reads, known and unknown: the request itself has 37.

Each unknown key costs half a microsecond in one unbroken piece of work."""


def few_keys(value: Any) -> Any:
    """The value; raises when it is an object of more keys than any client sends."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise PydanticCustomError("too_many_keys", f"should have at most {MAX_KEYS} keys")
    return value


class ClientObject(BaseModel):
    """An object from a client: strict types, no change after parsing, unknown keys kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)


class Lists(NamedTuple):
    """The long lists of a kind of request, whose entries are read one by one."""

    entries: Mapping[str, TypeAdapter[Any]]
    """Of the request itself, by their names."""
    kind: Callable[[dict[str, Any]], Any]
    """What kind an entry says it is, or a part of one."""
    parts: Mapping[tuple[str, str], TypeAdapter[Any]]
    """Of an entry, or a part of one, by its kind and the list's name."""


class Options(ClientObject):
    """A client's object of which a request has few, so that each counts its own keys.

    Items and their parts may come by the thousand: for those the reader of the list counts.
    """

    lists: ClassVar[Lists | None] = None
    """Of a whole request; without them its lists are those of the Responses API."""
    _few_keys = model_validator(mode="before")(few_keys)


class ClosedObject(Options):
    """A client's object in which an unknown key is a fault."""

    model_config = ConfigDict(extra="forbid")


def type_named(value: Any, untyped: str | None = None) -> str | None:
    """The `type` of an object that is read, or was; `untyped` when it has none."""
    named = value.get("type", untyped) if isinstance(value, dict) else getattr(value, "type", None)
    return named if isinstance(named, str) else None


def by_type(*tags: str, untyped: str = "") -> Discriminator:
    """Choose by `type`; tags begin with `~`, so that a fault's place can leave them out."""
    known = {tag: f"~{tag}" for tag in tags}

    def tag(value: Any) -> str | None:
        return known.get(type_named(value, untyped) or "")

    expected = ", ".join(repr(t) for t in tags)
    return Discriminator(
        tag,
        custom_error_type="unknown_type",
        custom_error_message=f"should be an object whose type is one of {expected}",
    )


T = TypeVar("T")

ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list in which the first fault ends the reading: details of a million would be built."""


class Read(list[T]):
    """A list whose entries are read already."""

    __slots__ = ()


def _unless_read(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, Read) else read(value)


UNLESS_READ = WrapValidator(_unless_read)
"""Takes a list that is read as it is: to look at each entry again takes a tenth of reading it."""

NonEmpty = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(min_length=1, max_length=1024)]
"""A name of somebody else's, of which a header is made."""
