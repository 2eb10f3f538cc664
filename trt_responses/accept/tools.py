"""The tools of a request: those that its client runs, and those that run here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from trt_responses.accept.accepted import BuiltInTool, Grammar, Tool
from trt_responses.errors import invalid_value, unsupported_value
from trt_responses.log.item_events import CALLS, Callee
from trt_responses.wire import tools as t


def client_tools(placed: Sequence[t.Placed]) -> list[Tool]:
    """The tools that the client runs. A namespace is described with the first of its tools."""
    described: set[str] = set()
    tools = []
    for one in placed:
        tool, space = one.tool, one.namespace
        if isinstance(tool, t.FolderTool):
            callee = Callee(tool.type, action=tool.type)
            tools.append(Tool(one.name, one.place, callee, *tool.shown(), strict=tool.guided))
            continue
        texts = [tool.description]
        if space is not None and space.name not in described:
            described.add(space.name)
            texts.insert(0, space.description)
        description = "\n".join(filter(None, texts))
        custom = isinstance(tool, t.CustomTool)
        if custom and "custom" not in CALLS:
            what = "tools of the type 'custom' are not installed here"
            raise unsupported_value(one.place, what)
        callee = Callee(tool.name, None if space is None else space.name, custom=custom)
        named_so = (one.name, one.place, callee, description)
        later = (tool.model_extra or {}).get("defer_loading") is True
        if isinstance(tool, t.FunctionTool):
            tools.append(Tool(*named_so, tool.parameters, bool(tool.strict), deferred=later))
        else:
            tools.append(Tool(*named_so, grammar=_grammar(tool.format), deferred=later))
    return tools


def _grammar(form: t.PlainInput | t.GrammarInput | None) -> Grammar | None:
    return Grammar(form.syntax, form.definition) if isinstance(form, t.GrammarInput) else None


def tools_run_here(
    lists: Sequence[tuple[str, Sequence[t.Tool]]],
    included: Collection[str],
    built_in: Mapping[str, Sequence[str]],
) -> tuple[BuiltInTool, ...]:
    """The tools that the server runs: each kind once, each MCP server once. `lists` are the lists
    of tools with their places."""
    found: dict[str, BuiltInTool] = {}
    given = ((f"{within}[{n}]", tool) for within, tools in lists for n, tool in enumerate(tools))
    for place, tool in given:
        if not (isinstance(tool, t.FolderTool) and tool.hosted):
            continue
        if tool.kind not in built_in:
            tool.refuse(place)
            continue
        tool.check(place)
        if tool.label in found:
            raise invalid_value(place, f"'{tool.label}' is offered twice")
        shows, names = tool.outputs in included, built_in[tool.kind]
        found[tool.label] = BuiltInTool(tool.kind, names, place, tool.options(), shows)
    return tuple(found.values())
