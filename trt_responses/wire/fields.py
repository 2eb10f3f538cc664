"""What this server does with each field of a request: one table, and the code that enforces it.

A field is honoured, echoed (it stands in the answer and changes nothing else), ignored (named in
the header `x-trt-ignored`), or refused by name unless it asks for what happens anyway. Silence is
a bug: a field that is in no row is unknown, and is ignored and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.wire.request import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trt_responses.wire.request import Request

Treatment = Literal["honoured", "echoed", "ignored", "refused"]


def _nothing(value: Any) -> bool:
    return value in (None, False, 0) or value == []


@dataclass(frozen=True, slots=True)
class Field:
    path: str
    treatment: Treatment
    note: str = ""
    ours: bool = False
    harmless: Callable[[Any], bool] = _nothing
    """Of a refused field: the values that ask for what happens anyway."""


FIELDS: tuple[Field, ...] = (
    Field("model", "honoured"),
    Field("input", "honoured", "text only"),
    Field("instructions", "honoured", "not inherited from a previous response"),
    Field("stream", "honoured"),
    Field("store", "honoured"),
    Field("previous_response_id", "honoured"),
    Field("max_output_tokens", "honoured"),
    Field("temperature", "honoured"),
    Field("top_p", "honoured"),
    Field("frequency_penalty", "honoured"),
    Field("presence_penalty", "honoured"),
    Field("tools", "honoured", "function tools"),
    Field("reasoning.effort", "honoured", "low, medium, high; others go to the nearest of them"),
    Field("top_k", "honoured", ours=True),
    Field("min_p", "honoured", ours=True),
    Field("seed", "honoured", ours=True),
    Field("metadata", "echoed"),
    Field("safety_identifier", "echoed"),
    Field("prompt_cache_key", "echoed", "prefixes are cached without it"),
    Field("service_tier", "echoed", "always answered as `default`"),
    Field("max_tool_calls", "echoed", "counts built-in tools, and there are none"),
    Field("parallel_tool_calls", "echoed", "one call in a turn: always answered as false"),
    Field("reasoning.summary", "echoed", "the chain of thought itself is given"),
    Field("text.verbosity", "echoed"),
    Field("include", "ignored"),
    Field("reasoning.generate_summary", "ignored"),
    Field("stream_options.include_obfuscation", "ignored", "nothing is obfuscated"),
    Field("prompt_cache_retention", "ignored"),
    Field("user", "ignored"),
    Field("background", "refused"),
    Field("conversation", "refused"),
    Field("prompt", "refused", "there is no template store"),
    Field("context_management", "refused"),
    Field("top_logprobs", "refused"),
    Field("tool_choice", "refused", "`auto` only", harmless=lambda v: v in (None, "auto")),
    Field(
        "text.format", "refused", "`text` only", harmless=lambda v: v is None or v.type == "text"
    ),
    Field("truncation", "refused", "`disabled` only", harmless=lambda v: v in (None, "disabled")),
)

TABLE = {field.path: field for field in FIELDS}
NESTED = frozenset(path.partition(".")[0] for path in TABLE if "." in path)


def judge(request: Request) -> list[str]:
    """The paths that are ignored; raises `Unsupported` for the first that is refused."""
    ignored = []
    for path, value in _sent(request):
        field = TABLE.get(path)
        if field is None or (field.treatment == "ignored" and not _nothing(value)):
            ignored.append(path)
        elif field.treatment == "refused" and not field.harmless(value):
            raise _refusal(field)
    _judge_tools(request)
    return ignored


def _sent(request: Request) -> Iterator[tuple[str, Any]]:
    """What the client wrote down itself, nested options by their path."""
    for name in sorted(request.model_fields_set | set(request.model_extra or {})):
        value = getattr(request, name)
        if name not in NESTED:
            yield name, value
        elif value is not None:
            inner = value.model_fields_set | set(value.model_extra or {})
            yield from ((f"{name}.{part}", getattr(value, part)) for part in sorted(inner))


def _refusal(field: Field) -> Unsupported:
    note = f" ({field.note})" if field.note else ""
    return Unsupported(
        f"Unsupported value for '{field.path}': this server does not do that{note}. "
        "Leave the field out.",
        param=field.path,
    )


def _judge_tools(request: Request) -> None:
    names = set()
    for place, tool in enumerate(request.tools or ()):
        if not isinstance(tool, FunctionTool):
            raise Unsupported(
                f"Unsupported tool type '{tool.type}': this server offers 'function' tools.",
                param=f"tools[{place}].type",
                code="unsupported_tool",
            )
        if tool.strict:
            raise Unsupported(
                "Unsupported value for 'strict': arguments are not constrained by the schema yet. "
                "Send false or leave the field out.",
                param=f"tools[{place}].strict",
            )
        _check_echo(tool, f"tools[{place}]")
        if tool.name in names:
            raise Unsupported(
                f"Two tools are named '{tool.name}': give each its own name.",
                param=f"tools[{place}].name",
                code="invalid_value",
            )
        names.add(tool.name)


def _check_echo(tool: FunctionTool, param: str) -> None:
    """A tool is given back as it came: what our JSON cannot hold is refused before any token."""
    try:
        orjson.dumps(tool.model_dump())
    except orjson.JSONEncodeError as error:
        raise InvalidRequest(
            f"The tool '{tool.name}' cannot be given back as JSON: {error}.",
            param=param,
            code="invalid_value",
        ) from None
