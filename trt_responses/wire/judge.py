"""The table of fields, enforced: what of a request is ignored, and what is refused by name.

Silence is a bug: a field that is in no row is unknown, and is ignored and named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trt_responses.errors import InvalidRequest, Unsupported, unsupported_value
from trt_responses.wire.base import ClientObject
from trt_responses.wire.fields import FIELDS as FIELDS
from trt_responses.wire.fields import NESTED as NESTED
from trt_responses.wire.fields import TABLE as TABLE
from trt_responses.wire.fields import Field as Field
from trt_responses.wire.fields import nothing
from trt_responses.wire.known_tools import known
from trt_responses.wire.request import Request
from trt_responses.wire.tools import NamespaceTool, Placed, Tool, kind_of, runs_nowhere

LOGPROBS = "message.output_text.logprobs"


class Column(NamedTuple):
    """What one endpoint does with each field."""

    table: Mapping[str, Field]
    accepted: frozenset[str]
    """Honoured and echoed fields, which need no check. Most requests have only these."""
    nested: frozenset[str]


def column_of(*fields: Field) -> Column:
    """What an endpoint does, from the rows of its table."""
    table = {field.path: field for field in fields}
    accepted = (path for path, f in table.items() if f.treatment in ("honoured", "echoed"))
    nested = (path.partition(".")[0] for path in table if "." in path)
    return Column(table, frozenset(accepted), frozenset(nested))


OVER_HTTP = column_of(*FIELDS)


def judge(
    request: Request,
    offered: Sequence[Placed],
    column: Column = OVER_HTTP,
    built_in: Collection[str] = (),
) -> dict[str, Any]:
    """What is ignored, by its path; raises `Unsupported` for the first that is refused. `offered`
    are the request's tools as `flat` gives them; `built_in` the kinds that the server runs."""
    ignored = judge_fields(request, column)
    ignored |= dict.fromkeys(_ignored_includes(request, built_in))
    if request.tools:
        tools, run_here = known(request.tools), tuple(built_in)

        def judged() -> list[str]:
            _judge_tools(tools, offered, built_in)
            return _ignored_keys(tools, built_in)

        ignored |= dict.fromkeys(tools.once(("judged", run_here), judged))
    if request.background and request.store is False:
        raise InvalidRequest(
            "A background response is read from the store: 'background' needs 'store', which is "
            "true by default.",
            param="background",
            code="invalid_value",
        )
    return ignored


def judge_fields(request: ClientObject, column: Column) -> dict[str, Any]:
    """The same by the request's fields alone, for an API with a table of its own."""
    ignored = {}
    for path, value in _sent(request, column.accepted, column.nested):
        field = column.table.get(path)
        if field is None or (field.treatment == "ignored" and not nothing(value)):
            ignored[path] = value
        elif field.treatment == "refused" and not field.harmless(value):
            raise _refusal(field)
    return ignored


def _sent(
    request: ClientObject, accepted: frozenset[str], nested: frozenset[str]
) -> Iterator[tuple[str, Any]]:
    """What the client wrote down itself, nested options by their path."""
    for name in sorted((request.model_fields_set - accepted).union(request.model_extra or ())):
        value = getattr(request, name)
        if name not in nested:
            yield name, value
        elif value is not None:
            inner = value.model_fields_set | set(value.model_extra or {})
            yield from ((f"{name}.{part}", getattr(value, part)) for part in sorted(inner))


def _refusal(field: Field) -> Unsupported:
    note = f" ({field.note})" if field.note else ""
    return unsupported_value(field.path, f"this server does not do that{note}. Leave the field out")


def _ignored_includes(request: Request, built_in: Collection[str]) -> Iterator[str]:
    included = request.include or ()
    for value in included:
        field = TABLE.get(f"include.{value}")
        tool, of_tool, _ = value.partition("_call.")
        if field is None or field.treatment == "ignored" or (of_tool and tool not in built_in):
            yield f"include.{value}"
    if request.top_logprobs and LOGPROBS not in included:
        yield "top_logprobs"


def _ignored_keys(tools: Sequence[Tool], built_in: Collection[str]) -> list[str]:
    """Keys of tools that mean nothing here, each named once."""
    sent = {
        f"tools[].{key}"
        for tool in _echoed_tools(tools, built_in)
        for key in (tool.model_extra or {})
        if tool.model_extra and tool.model_extra[key] not in (None, False)
    }
    return sorted(p for p in sent if p not in TABLE or TABLE[p].treatment == "ignored")


def _echoed_tools(tools: Sequence[Tool], built_in: Collection[str]) -> Iterator[Tool]:
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            yield tool
            yield from tool.tools
        elif not runs_nowhere(tool, built_in):
            yield tool


def _judge_tools(
    tools: Sequence[Tool], offered: Sequence[Placed], built_in: Collection[str]
) -> None:
    if not offered and not any(kind_of(tool.type) in built_in for tool in tools):
        raise _refused_tool(tools[0].type)
    names = set()
    for placed in offered:
        _check_echo(placed.tool, placed.place)
        if placed.name in names:
            raise named_twice(placed.name, placed.place)
        names.add(placed.name)
    for place, tool in enumerate(tools):
        if isinstance(tool, NamespaceTool):
            _check_echo(tool, f"tools[{place}]")


def named_twice(name: str, place: str) -> Unsupported:
    """The error of a tool whose name another tool of the request has."""
    return Unsupported(
        f"Two tools are named '{name}': give each its own name.",
        param=f"{place}.name",
        code="invalid_value",
    )


def _refused_tool(kind: str) -> Unsupported:
    return Unsupported(
        f"Unsupported tool type '{kind:.100}': this server does not run it, and the request "
        "has no other tool. Send 'function', 'custom' or 'namespace' tools.",
        param="tools[0].type",
        code="unsupported_tool",
    )


def _check_echo(tool: Tool, param: str) -> None:
    """Keys that we do not know are given back too: what our JSON cannot hold is refused."""
    try:
        orjson.dumps(tool.model_extra)
    except orjson.JSONEncodeError as error:
        raise InvalidRequest(
            f"The tool '{getattr(tool, 'name', '')}' cannot be given back as JSON: {error}.",
            param=param,
            code="invalid_value",
        ) from None
