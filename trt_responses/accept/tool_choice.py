"""Which of a request's tools may be called, and whether one must be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trt_responses.accept.accepted import BuiltInTool, Tool, ToolChoice
from trt_responses.errors import invalid_value
from trt_responses.wire import tools as t
from trt_responses.wire.choice import (
    ActionChoice,
    AllowedTools,
    BuiltInChoice,
    McpChoice,
    Mode,
    NamedTool,
)
from trt_responses.wire.choice import ToolChoice as AskedChoice


def choice_among(
    choice: AskedChoice | None, tools: Sequence[Tool], run_here: Sequence[BuiltInTool]
) -> ToolChoice:
    """What `tool_choice` allows. Raises an `InvalidRequest` for a tool that the request does not
    offer."""
    built_in = frozenset(tool.kind for tool in run_here)
    match choice:
        case ActionChoice(type="shell") if "shell" in built_in:
            names = frozenset(tool.name for tool in tools if tool.callee.kind == "shell")
            return ToolChoice(names, may_answer=False, narrows=True, built_in={"shell"})
        case NamedTool() | ActionChoice() as only:
            return ToolChoice(named((only,), tools, "tool_choice"), may_answer=False, narrows=True)
        case BuiltInChoice():
            kind = _offered(choice, built_in, "tool_choice")
            return ToolChoice((), may_answer=False, narrows=True, built_in={kind})
        case McpChoice():
            servers = _servers([("tool_choice", choice)], run_here)
            return ToolChoice((), may_answer=False, narrows=True, built_in={"mcp"}, servers=servers)
        case AllowedTools():
            among = named(choice.tools, tools, "tool_choice.tools[{}]", built_in)
            theirs = [
                (f"tool_choice.tools[{number}]", one)
                for number, one in enumerate(choice.tools)
                if isinstance(one, McpChoice)
            ]
            servers = _servers(theirs, run_here)
            kinds = {
                _offered(one, built_in, f"tool_choice.tools[{number}]")
                for number, one in enumerate(choice.tools)
                if isinstance(one, BuiltInChoice)
            }
            if "shell" in built_in and any(one.type == "shell" for one in choice.tools):
                kinds.add("shell")
            kinds |= {"mcp"} if theirs else set()
            may_answer = choice.mode == "auto"
            return ToolChoice(
                among, may_answer=may_answer, narrows=True, built_in=kinds, servers=servers
            )
        case mode:
            return choice_of(mode, tools, built_in)


def choice_of(
    mode: Mode | None, tools: Sequence[Tool], built_in: Collection[str] = frozenset()
) -> ToolChoice:
    """What a mode alone allows."""
    names = frozenset(tool.name for tool in tools)
    match mode:
        case None | "auto":
            return ToolChoice(names, built_in=built_in)
        case "none":
            return ToolChoice(frozenset(), narrows=bool(names or built_in))
        case "required" if not (names or built_in):
            raise invalid_value("tool_choice", "'required' needs tools to choose from")
        case "required":
            return ToolChoice(names, may_answer=False, narrows=True, built_in=built_in)


def _servers(
    choices: Sequence[tuple[str, McpChoice]], run_here: Sequence[BuiltInTool]
) -> dict[str, Collection[str] | None]:
    """The tools that are chosen of each MCP server; None means all of one."""
    labels = {tool.options["server_label"] for tool in run_here if tool.kind == "mcp"}
    chosen: dict[str, Collection[str] | None] = {}
    for place, one in choices:
        if one.server_label not in labels:
            what = f"no mcp tool of the request has the label '{one.server_label:.64}'"
            raise invalid_value(f"{place}.server_label", f"{what}, or this server does not run it")
        before = chosen.get(one.server_label, ())
        whole = one.name is None or before is None
        chosen[one.server_label] = None if whole else {*(before or ()), one.name or ""}
    return chosen


def _offered(choice: BuiltInChoice, built_in: Collection[str], place: str) -> str:
    kind = t.kind_of(choice.type)
    if kind not in built_in:
        what = f"the request offers no '{choice.type}', or this server does not run it"
        raise invalid_value(place, what)
    return kind


def named(
    choices: Sequence[NamedTool | ActionChoice | BuiltInChoice | McpChoice],
    tools: Sequence[Tool],
    place: str,
    built_in: Collection[str] = (),
) -> frozenset[str]:
    """The names of the chosen tools of the client. Raises for the first that is neither one of the
    request's nor of a kind that the server runs."""
    kinds = {(tool.name, tool.callee.kind) for tool in tools}
    names = set()
    for number, tool in enumerate(choices):
        where = place.format(number)
        if isinstance(tool, NamedTool):
            if (tool.name, tool.type) not in kinds:
                what = f"no {tool.type} tool of the request is '{tool.name}'"
                raise invalid_value(f"{where}.name", what)
            names.add(tool.name)
        elif isinstance(tool, ActionChoice):
            if (tool.type, tool.type) not in kinds:
                if tool.type in built_in:
                    continue
                raise invalid_value(
                    where, f"the request offers no '{tool.type}' that the client runs"
                )
            names.add(tool.type)
    return frozenset(names)
