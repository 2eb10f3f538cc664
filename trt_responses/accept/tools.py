"""The tools of a request: those that its client runs, and those that run here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from trt_responses.accept.accepted import BuiltInTool, Grammar, Tool
from trt_responses.errors import InvalidRequest, invalid_value, unsupported_value
from trt_responses.log.action_calls import action_of, check_calls
from trt_responses.log.item_events import Callee
from trt_responses.wire import tools as t

OUTPUTS = {
    "code_interpreter": "code_interpreter_call.outputs",
    "web_search": "web_search_call.action.sources",
}
"""The value of `include` that asks for the outputs of each kind of call."""


class ContainerOptions(Protocol):
    """What a request may ask of a new container."""

    @property
    def file_ids(self) -> Sequence[str] | None: ...

    @property
    def memory_limit(self) -> str | None: ...

    @property
    def network_policy(self) -> t.NetworkPolicy | None: ...


def client_tools(placed: Sequence[t.Placed]) -> list[Tool]:
    """The tools that the client runs. A namespace is described with the first of its tools."""
    described: set[str] = set()
    tools = []
    for one in placed:
        tool, space = one.tool, one.namespace
        if isinstance(tool, t.ActionTool):
            callee, action = Callee(tool.type, action=tool.type), action_of(tool.type, one.place)
            shown = (action.describe(tool), action.parameters(tool))
            tools.append(Tool(one.name, one.place, callee, *shown, strict=action.strict))
            continue
        texts = [tool.description]
        if space is not None and space.name not in described:
            described.add(space.name)
            texts.insert(0, space.description)
        description = "\n".join(filter(None, texts))
        custom = isinstance(tool, t.CustomTool)
        if custom:
            check_calls("custom", one.place)
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
        kind = name = t.kind_of(tool.type)
        if isinstance(tool, t.McpTool) and tool.server_url is not None and kind not in built_in:
            what = "the operator of this server lets requests name no MCP server of their own"
            raise invalid_value(f"{place}.server_url", what)
        if not t.hosted(tool) or kind not in built_in:
            continue
        options = tool.model_dump(exclude_none=True)
        if isinstance(tool, t.McpTool):
            _check_server(tool, f"{place}.")
            name = f"mcp server {tool.server_label}"
            options |= tool.secrets
        if name in found:
            raise invalid_value(place, f"'{name}' is offered twice")
        if isinstance(tool, t.CodeInterpreterTool):
            _check_container(tool.container, f"{place}.container")
        if isinstance(tool, t.ShellTool) and isinstance(tool.environment, t.NewContainer):
            _check_new_container(tool.environment, f"{place}.environment.")
        shows = OUTPUTS.get(kind) in included
        found[name] = BuiltInTool(kind, built_in[kind], place, options, shows)
    return tuple(found.values())


def _check_server(tool: t.McpTool, place: str) -> None:
    """Refuse by name the ways to a server that are not built."""
    for name in ("connector_id", "tunnel_id"):
        if getattr(tool, name) is not None:
            raise unsupported_value(
                f"{place}{name}",
                "this server reaches MCP servers by their 'server_url', or by the 'server_label' "
                "of one that the operator has configured",
            )


def _check_container(container: str | t.AutoContainer | None, place: str) -> None:
    if container is None:
        raise InvalidRequest(
            f"Missing required parameter: '{place}'.",
            param=place,
            code="missing_required_parameter",
        )
    if isinstance(container, str):
        return
    check_container_options(container, f"{place}.")


def _check_new_container(container: t.NewContainer, place: str) -> None:
    check_container_options(container, place)
    if container.skills:
        raise unsupported_value(f"{place}skills", "there are none here. Leave the field out")


def check_container_options(options: ContainerOptions, place: str) -> None:
    """Refuse, by name, options of containers that are not built."""
    policy = options.network_policy
    for name, wanted, why in (
        ("file_ids", options.file_ids, "there are no files to put into a container"),
        ("memory_limit", options.memory_limit, "the operator sets the memory of all containers"),
        (
            "network_policy",
            policy if policy is not None and policy.type != "disabled" else None,
            "code in a container has no network",
        ),
    ):
        if wanted:
            raise unsupported_value(f"{place}{name}", f"{why}. Leave the field out")
