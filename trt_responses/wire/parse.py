"""A body of JSON to a request, in pieces of work that are short enough for an event loop.

The JSON itself is parsed at once, or twice where known tools stand in another place than the
request's own, which `RequestLimits` keeps short; its lists, whose entries cost ten times as much,
are read a few entries at a time, and the first fault ends the reading. Knows no HTTP and no field's
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, from_json

from trt_responses.errors import InvalidRequest
from trt_responses.wire.base import Lists, Options, Read, few_keys
from trt_responses.wire.items import Part, ReasoningText, SentItem, SummaryText
from trt_responses.wire.known_tools import MEMORIES, NAME, Sent
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.request import Request
from trt_responses.wire.tools import Tool

Steps = Generator[None, None, None]

R = TypeVar("R", bound=Options)

SMALL_BYTES = 64 * 1024
"""Bodies that are parsed and put together without a pause: a few milliseconds of work at most."""

AT_ONCE = 64
"""Entries of a list that are read between two pauses: a third of a millisecond as a rule."""


RESPONSES = Lists(
    {"input": TypeAdapter(SentItem), "tools": TypeAdapter(Tool)},
    lambda item: item.get("type", "message"),
    {
        ("message", "content"): TypeAdapter(Part),
        ("function_call_output", "output"): TypeAdapter(Part),
        ("custom_tool_call_output", "output"): TypeAdapter(Part),
        ("reasoning", "content"): TypeAdapter(ReasoningText),
        ("reasoning", "summary"): TypeAdapter(SummaryText),
    },
)
NOUN = re.compile(r"^[A-Z]\w+ (?=should)| after validation, not (more|\d+)")
"""What pydantic says beside what was expected."""

OWN_WORDS = {"extra_forbidden": "is no key of this object"} | dict.fromkeys(
    ("dict_type", "model_type"), "should be an object"
)
"""Words for a fault where pydantic's own would not fit after the field's name, or are Python's."""


def parse(body: bytes, kind: type[Request] = Request) -> Request:
    """The request, read in one go within the usual limits; raises as `steps` does."""
    reading = steps(body, kind, RequestLimits())
    while True:
        try:
            next(reading)
        except StopIteration as end:
            request: Request = end.value
            return request


def steps(body: bytes, kind: type[R], limits: RequestLimits) -> Generator[None, None, R]:
    """Read a body, pausing after each bounded piece of work, and return the request.

    Raises an `InvalidRequest` that says where the first fault is, what was expected, and what came.
    """
    sent = request_json(body) if issubclass(kind, Request) else json_of(body)
    return (yield from steps_of(sent, len(body), kind, limits))


def steps_of(
    sent: Any, size: int, kind: type[R], limits: RequestLimits
) -> Generator[None, None, R]:
    """The same for JSON that is loaded, and was of so many bytes; what was read takes the place of
    its lists."""
    if isinstance(sent, dict):
        yield from read_lists(sent, size, limits, kind.lists or RESPONSES)
    try:
        request = kind.model_validate(sent)
    except ValidationError as error:
        raise fault_of(error) from None
    if size > SMALL_BYTES:
        yield
    return request


def read_lists(
    sent: dict[str, Any], size: int, limits: RequestLimits, lists: Lists = RESPONSES
) -> Steps:
    """Put what was read in place of the lists of a request's JSON, which was of so many bytes."""
    limits.check(sent)
    if size > SMALL_BYTES:
        yield
    yield from _lists(sent, lists)


def request_json(body: bytes) -> Any:
    """The JSON of a request of the Responses API, in which tools that came before are not parsed
    again."""
    if MEMORIES and NAME in body:
        return MEMORIES[0].parsed(body, json_of)
    return json_of(body)


def json_of(body: bytes) -> Any:
    """The JSON that a body holds, as it is."""
    try:
        return from_json(body)
    except ValueError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.", code="invalid_json") from None


def _lists(sent: dict[str, Any], lists: Lists) -> Steps:
    """Put what was read in place of each entry of the long lists."""
    for name, entry in lists.entries.items():
        entries = sent.get(name)
        if isinstance(entries, list) and not isinstance(entries, Read):
            for start in range(0, len(entries), AT_ONCE):
                if start:
                    yield
                for place in range(start, min(len(entries), start + AT_ONCE)):
                    item = entries[place]
                    if isinstance(item, dict) and list in map(type, item.values()):
                        yield from _parts(item, (name, place), lists)
                    entries[place] = _read(item, entry, (name, place))
            sent[name] = entries.kept() if isinstance(entries, Sent) else Read(entries)


def _parts(item: dict[str, Any], where: tuple[str | int, ...], lists: Lists) -> Steps:
    for name in ("content", "output", "summary", "tool_calls"):
        if not isinstance(parts := item.get(name), list):
            continue
        kind = lists.kind(item)
        part = lists.parts.get((kind, name)) if isinstance(kind, str) else None
        if part is None:
            continue
        for place, value in enumerate(parts, 1):
            if isinstance(value, dict) and "content" in value:  # a tool's result has parts itself
                yield from _parts(value, (*where, name, place - 1), lists)
            parts[place - 1] = _read(value, part, (*where, name, place - 1))
            if place % AT_ONCE == 0:
                yield


def _read(value: Any, kind: TypeAdapter[Any], where: tuple[str | int, ...]) -> Any:
    try:
        return kind.validator.validate_python(few_keys(value), strict=True)
    except ValidationError as error:
        raise fault_of(error, where) from None
    except PydanticCustomError as error:
        raise _wrong(place(where), error.message(), value) from None


def fault_of(error: ValidationError, where: tuple[str | int, ...] = ()) -> InvalidRequest:
    """The first of the faults, which are as many as the fields of one object at most."""
    first = error.errors(include_url=False)[0]
    param = place((*where, *first["loc"]))
    if first["type"] == "missing":
        return InvalidRequest(
            f"Missing required parameter: '{param}'.",
            param=param,
            code="missing_required_parameter",
        )
    expected = OWN_WORDS.get(first["type"]) or NOUN.sub("", first["msg"])
    return _wrong(param, expected, first["input"])


def _wrong(param: str, expected: str, value: Any) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param or 'body'}': it {expected}, got {summary(value)}.",
        param=param or None,
        code="invalid_value",
    )


def place(location: Iterable[int | str]) -> str:
    """`input[3].content[0].text`, as the API writes it."""
    written = ""
    for step in location:
        if isinstance(step, int):
            written += f"[{step}]"
        elif not step.startswith("~") and step != "[key]":
            written += f".{step}" if written else step
    return written


def summary(value: Any) -> str:
    """A value in a few words, however large it is."""
    match value:
        case None | bool():
            return "null" if value is None else str(value).lower()
        case int() | float():
            return f"{value!r}"[:60]
        case str():
            return f"a string of {len(value)} characters" if len(value) > 40 else repr(value)
        case list():
            return f"a list of {len(value)}"
        case dict():
            kind = value.get("type")
            return f"an object of type {kind[:60]!r:.60}" if isinstance(kind, str) else "an object"
        case _:
            return type(value).__name__
