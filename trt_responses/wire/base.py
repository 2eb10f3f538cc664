"""The base of every object that a client sends, and the ways to choose among kinds of them.

Knows no field of the API. Imports no other module of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping  # pydantic reads the annotations
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import (
    CoreSchema,
    definitions_schema,
    no_info_plain_validator_function,
    tagged_union_schema,
)

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


def named(value: Any, key: str = "type", unnamed: str | None = None) -> str | None:
    """The `type`, or the like, of an object that is read, or was; `unnamed` when it has none."""
    name = value.get(key, unnamed) if isinstance(value, dict) else getattr(value, key, None)
    return name if isinstance(name, str) else None


class Kinds:
    """Annotates a union: `which` says by a tag which of its kinds reads a value; `tags` has one for
    each kind. Tags begin with `~`, so that a fault's place can leave them out. `forms` are named
    to a client whose value has no tag."""

    def __init__(
        self, which: Callable[[Any], str | None], *tags: str, forms: str | None = None
    ) -> None:
        self.which = which
        self._tags = tags
        self._forms = forms

    def tagged(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        """The kind that reads the values of each tag."""
        return dict(zip(self._tags, kinds, strict=True))

    def fault(self, tags: Collection[str]) -> tuple[str, str] | tuple[None, None]:
        """The type and the message of the fault of a value that is of no kind."""
        return ("form", f"should be {self._forms}") if self._forms else (None, None)

    def __get_pydantic_core_schema__(self, union: Any, read: GetCoreSchemaHandler) -> CoreSchema:
        tagged = self.tagged(get_args(union))
        fault, message = self.fault(tagged)
        return tagged_union_schema(
            {tag: read.generate_schema(kind) for tag, kind in tagged.items()},
            self.which,
            custom_error_type=fault,
            custom_error_message=message,
        )


class ByType(Kinds):
    """Chooses by `type`, or by another key: among all names of each kind, or those that are given.
    A kind that takes any name reads what no other does."""

    def __init__(self, *names: str, untyped: str = "", key: str = "type") -> None:
        super().__init__(self._which)
        self._names = names
        self._untyped = untyped
        self._key = key
        self._known: Collection[str] = ()

    def tagged(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        tagged = {f"~{name}": kind for kind in kinds for name in self._names_of(kind)}
        given = tuple(f"~{name}" for name in self._names)
        self._known = frozenset(given or tagged)
        return {tag: kind for tag, kind in tagged.items() if tag in self._known}

    def fault(self, tags: Collection[str]) -> tuple[str, str]:
        names = ", ".join(repr(name) for name in self._names or [tag[1:] for tag in tags])
        return f"unknown_{self._key}", f"should be an object whose {self._key} is one of {names}"

    def _names_of(self, kind: type[BaseModel]) -> tuple[str, ...]:
        return get_args(kind.model_fields[self._key].annotation) or ("",)

    def _which(self, value: Any) -> str | None:
        tag = f"~{named(value, self._key, self._untyped) or ''}"
        return tag if tag in self._known else "~" if "~" in self._known else None


class InstalledKinds(ByType):
    """Chooses by type among kinds of which folders bring some: those whose names no other kind of
    the union has. `Any` stands for them there."""

    def __init__(
        self, installed: Mapping[str, type[ClientObject]], *names: str, untyped: str = ""
    ) -> None:
        """`installed` has the class of each name, once its folder is installed."""
        super().__init__(*names, untyped=untyped)
        self._installed = installed

    def tagged(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        if Any not in kinds:
            return super().tagged(kinds)
        place = kinds.index(Any)
        before, after = super().tagged(kinds[:place]), super().tagged(kinds[place + 1 :])
        named = (name for name in self._names if f"~{name}" not in {*before, *after})
        theirs = {f"~{n}": Annotated[Any, _InstalledKind(self._installed, n)] for n in named}
        return before | theirs | after


class _InstalledKind:
    """Reads objects of one kind with the class that a folder brings."""

    def __init__(self, installed: Mapping[str, type[ClientObject]], name: str) -> None:
        self._installed = installed
        self._name = name

    def __get_pydantic_core_schema__(self, _: Any, read: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, describe: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if (kind := self._installed.get(self._name)) is None:
            return {"type": "object"}
        return describe(definitions_schema(kind.__pydantic_core_schema__, []))  # by reference

    def _read(self, value: Any) -> ClientObject:
        if isinstance(value, ClientObject):
            return value
        if (kind := self._installed.get(self._name)) is None:
            raise PydanticCustomError("not_installed", "is of a kind that is not installed here")
        found: ClientObject = kind.__pydantic_validator__.validate_python(value)
        return found


T = TypeVar("T")

TEXT_OR_LIST = Kinds(
    lambda v: "~text" if isinstance(v, str) else "~list" if isinstance(v, list) else None,
    *("~text", "~list"),
    forms="a string or a list",
)
"""The fault names the place in the list, not two failed guesses."""
TEXT_OR_OBJECT = Kinds(
    lambda v: "~text" if isinstance(v, str) else "~other" * isinstance(v, dict | BaseModel),
    *("~text", "~other"),
    forms="a string or an object",
)

ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list in which the first fault ends the reading: details of a million would be built."""
TextOrListOf = Annotated[str | ListOf[T], TEXT_OR_LIST]


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
