"""Which of a request's tools may be called, and whether one must be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trt_responses.accept.accepted import BuiltInTool, Tool, ToolChoice
from trt_responses.errors import invalid_value
from trt_responses.wire.choice import AllowedTools, FolderChoice, Mode, NamedTool
from trt_responses.wire.choice import ToolChoice as AskedChoice
from trt_responses.wire.tools import kind_of


def choice_among(
    choice: AskedChoice | None, tools: Sequence[Tool], run_here: Sequence[BuiltInTool]
) -> ToolChoice:
    """What `tool_choice` allows. Raises an `InvalidRequest` for a tool that the request does not
    offer."""
    if choice is None or isinstance(choice, str):
        return choice_of(choice, tools, frozenset(tool.kind for tool in run_here))
    if not isinstance(choice, AllowedTools):
        return _chosen([choice], tools, run_here, "tool_choice")
    return _chosen(
        choice.tools, tools, run_here, "tool_choice.tools[{}]", may_answer=choice.mode == "auto"
    )


def _chosen(
    choices: Sequence[NamedTool | FolderChoice],
    tools: Sequence[Tool],
    run_here: Sequence[BuiltInTool],
    place: str,
    *,
    may_answer: bool = False,
) -> ToolChoice:
    """The tools that are chosen. `place` is theirs in the request, with their number for `{}`."""
    kinds, built_in = {tool.callee.kind for tool in tools}, {tool.kind for tool in run_here}
    names, chosen = set(named(choices, tools, place)), set[str]()
    servers: dict[str, Collection[str] | None] = {}
    for number, one in enumerate(choices):
        where = place.format(number)
        if isinstance(one, NamedTool):
            continue
        if (part := one.part(run_here, where)) is not None:
            label, name = part
            before = servers.get(label, ())
            servers[label] = None if name is None or before is None else {*before, name}
        elif one.type in kinds:
            names.add(one.type)
        elif kind_of(one.type) not in built_in:
            what = f"the request offers no '{one.type}', or this server does not run it"
            raise invalid_value(where, what)
        if (kind := kind_of(one.type)) in built_in:
            chosen.add(kind)
    return ToolChoice(
        names, may_answer=may_answer, narrows=True, built_in=chosen, servers=servers or None
    )


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


def named(choices: Sequence[object], tools: Sequence[Tool], place: str) -> frozenset[str]:
    """The names of the client's tools that are chosen by name. Raises for the first that is none of
    the request's."""
    kinds = {(tool.name, tool.callee.kind) for tool in tools}
    names = set()
    for number, one in enumerate(choices):
        if isinstance(one, NamedTool):
            if (one.name, one.type) not in kinds:
                what = f"no {one.type} tool of the request is '{one.name}'"
                raise invalid_value(f"{place.format(number)}.name", what)
            names.add(one.name)
    return frozenset(names)
