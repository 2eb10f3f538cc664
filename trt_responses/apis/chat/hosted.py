"""Tools that the server runs, in APIs that spell them otherwise than the Responses API.

Each is read as the tool of the Responses API that it is, and each call is seen by its item's keys.
Knows no concrete tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from trt_responses.accept.accepted import BuiltInTool
from trt_responses.errors import Unsupported, invalid_value, unsupported_value
from trt_responses.tools.session import NO_ITEMS
from trt_responses.wire.output import OutputHostedCall, OutputItem
from trt_responses.wire.parse import fault_of
from trt_responses.wire.past_calls import KINDS, Installed, object_in
from trt_responses.wire.tools import TOOLS, FolderTool

BuiltIn = Mapping[str, Sequence[str]]
"""The kinds of tools that the server runs, each with the model's names for them."""
NO_TOOLS: BuiltIn = {}
TITLE = re.compile(r"【\d+†([^†】]*)")
"""A result in the display of a search."""


class Offered(NamedTuple):
    """A tool of a request that the server is to run."""

    place: str
    tool: FolderTool
    more: Mapping[str, Any] = {}
    """Options that the Responses API has no word for."""


def offered(place: str, fields: Mapping[str, Any], **more: Any) -> Offered:
    """The tool of the Responses API with these fields. Raises an `InvalidRequest`."""
    kind = TOOLS.get(fields["type"])
    if kind is None:
        raise not_run(fields["type"], place)
    try:
        return Offered(place, kind.model_validate(fields), more)
    except ValidationError as error:
        raise fault_of(error, (place,)) from None


def not_run(kind: str, place: str) -> Unsupported:
    """The fault of a tool that its operator has not switched on."""
    return Unsupported(
        f"Unsupported tool type '{kind:.100}': this server does not run it. Leave the tool out, or "
        "have the operator switch it on.",
        param=f"{place}.type",
        code="unsupported_tool",
    )


def run_here(tools: Iterable[Offered], built_in: BuiltIn) -> tuple[BuiltInTool, ...]:
    """The tools as runs have them: each kind once, each MCP server once."""
    found: dict[str, BuiltInTool] = {}
    for place, tool, more in tools:
        if tool.kind not in built_in:
            tool.refuse(place)
            raise not_run(tool.type, place)
        tool.check(place)
        if tool.label in found:
            raise invalid_value(place, f"'{tool.label}' is offered twice")
        options = {**tool.options(), NO_ITEMS: True, **more}
        found[tool.label] = BuiltInTool(tool.kind, built_in[tool.kind], place, options, True)
    return tuple(found.values())


class Ran(NamedTuple):
    """A call that the server ran."""

    kind: str
    input: Mapping[str, Any]
    output: str | None
    """None where it is not known."""
    failed: bool
    found: Sequence[Mapping[str, Any]] = ()
    """The results of a search, each with its `url` and `title`."""
    facts: Mapping[str, str] = {}
    """Names besides: of an MCP tool and its server."""


def ran(item: OutputItem) -> Ran | None:
    """What was run, and what it gave; None for an item that is no such call."""
    if not isinstance(item, OutputHostedCall):
        return None
    made: Any = item
    failed = made.status != "completed" if hasattr(made, "status") else False
    match item.type:
        case "code_interpreter_call":
            logs = "".join(one.logs for one in made.outputs or () if one.type == "logs")
            return Ran("code_interpreter", {"code": made.code}, logs, failed)
        case "web_search_call":
            action = dict(made.action)
            output, sources = action.pop("output", ""), action.pop("sources", ())
            return Ran("web_search", action, output, failed, _found(output, sources))
        case "mcp_call":
            error = made.error or {}
            texts = [one.get("text", "") for one in error.get("content") or ()]
            output = made.output or error.get("message") or "\n".join(texts)
            facts = {"name": made.name, "server_label": made.server_label}
            return Ran("mcp", arguments_of(made.arguments), output, failed, facts=facts)
        case _:
            return None


def item_of(call: Ran, item_id: str | None = None) -> Installed:
    """Such a call as an item of the conversation, of one that a client sends back."""
    fields: dict[str, Any] = {"type": f"{call.kind}_call", "id": item_id}
    match call.kind:
        case "code_interpreter":
            fields["code"] = str(call.input.get("code", ""))
            if call.output is not None:
                fields["outputs"] = [{"type": "logs", "logs": call.output}]
        case "mcp":
            fields |= {**call.facts, "error" if call.failed else "output": call.output}
            fields["arguments"] = json.dumps(call.input, ensure_ascii=False)
        case _:
            urls = [url for one in call.found if isinstance(url := one.get("url"), str)]
            sources = [{"type": "url", "url": url} for url in urls]
            fields["action"] = {**call.input, "sources": sources, "output": call.output}
            fields["status"] = "failed" if call.failed else "completed"
    return past_call(fields)


def past_call(fields: Mapping[str, Any]) -> Installed:
    """An item of a kind that a folder brings, by its fields."""
    if (kind := KINDS.get(fields["type"])) is None:
        raise unsupported_value("messages", f"'{fields['type']}' items are not installed here")
    return kind.model_validate(fields)


def arguments_of(text: str) -> Mapping[str, Any]:
    """Arguments as an object, whatever the model or a client wrote."""
    read = object_in(text, partial=False)
    return {"arguments": text} if read is None else read


def _found(output: str, sources: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The results of a search. Their titles stand in its display, in their order."""
    urls = [source["url"] for source in sources]
    titles = [*TITLE.findall(output)[: len(urls)], *[""] * len(urls)]
    return [{"url": url, "title": title} for url, title in zip(urls, titles, strict=False)]
