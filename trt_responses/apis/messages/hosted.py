"""Tools that the server runs, as Anthropic spells them: in requests, in history, and as blocks.

A search and the pages that are opened are one browser. Knows the Responses API's words for all of
them, and no concrete tool.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trt_responses.accept.accepted import ToolChoice
from trt_responses.apis.chat.hosted import Offered, Ran, item_of, offered, ran, run_here
from trt_responses.apis.messages import request as m
from trt_responses.errors import invalid_value, unsupported_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trt_responses.accept.accepted import BuiltInTool
    from trt_responses.apis.chat.hosted import BuiltIn
    from trt_responses.wire.output import OutputItem, UrlCitation
    from trt_responses.wire.past_calls import Installed
    from trt_responses.wire.response import Response

    Object = dict[str, Any]

USE, MCP_USE = "srvtoolu_", "mcptoolu_"
"""The beginnings of the ids of calls, before those of their items."""
KINDS_OF = {"web_search": "web_search", "code_execution": "code_interpreter"}
"""The kinds of tools by the names that a choice has."""
SHARED = "web_search and web_fetch are one browser here"
IDLE_S = 1200
"""Seconds after which an idle container ends, at the latest."""
TRACEBACK = "Traceback (most recent call last):"


# --- in a request --------------------------------------------------------------------------------


class HostedTools:
    """The tools of a request that the server runs."""

    def __init__(self, request: m.CountRequest, built_in: BuiltIn) -> None:
        numbered = list(enumerate(request.tools or ()))
        self._tools = [(n, tool) for n, tool in numbered if isinstance(tool, m.ServerTool)]
        self._sets = [(n, tool) for n, tool in numbered if isinstance(tool, m.McpToolset)]
        self._request = request
        used = [one for one in self._offered() if self._runs(one, built_in)]
        self.built_in: Sequence[BuiltInTool] = run_here(used, built_in)
        bounds = [tool.max_uses for _, tool in self._tools if tool.max_uses is not None]
        self.max_calls = min(bounds, default=None)
        if request.container is not None and "code_interpreter" not in self.kinds:
            what = "no tool of the request runs code here. Leave the field out"
            raise unsupported_value("container", what)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(tool.kind for tool in self.built_in)

    @property
    def dropped(self) -> list[str]:
        """The types of the tools that are not run at all."""
        kinds = self.kinds
        others = [t.type for t in self._request.tools or () if isinstance(t, m.OtherTool)]
        others += [t.type for _, t in self._tools if t.kind not in kinds]
        return others + [t.type for _, t in self._sets if "mcp" not in kinds]

    def chosen(self, name: str) -> ToolChoice | None:
        """The choice of one of these by its name; None where it is none of them."""
        kind = KINDS_OF.get(name, "")
        if kind not in self.kinds:
            return None
        return ToolChoice(frozenset(), may_answer=False, narrows=True, built_in={kind})

    @staticmethod
    def _runs(one: Offered, built_in: BuiltIn) -> bool:
        """Whether it is run here. Raises for a server of the client's that may not be named."""
        if one.tool.kind in built_in:
            return True
        one.tool.refuse(one.place)
        return False

    def _offered(self) -> Iterator[Offered]:
        yield from self._browser()
        for number, tool in self._tools:
            if tool.kind == "code_interpreter":
                fields = {"type": tool.kind, "container": self._container()}
                yield offered(f"tools[{number}]", fields)
        yield from self._servers()

    def _container(self) -> object:
        given = self._request.container
        if isinstance(given, m.Container):
            if given.skills:
                raise unsupported_value("container.skills", "this server has no skills")
            given = given.id
        return given or {"type": "auto"}

    def _browser(self) -> Iterator[Offered]:
        """The browser, if a search is offered. A page alone cannot be: the model could search."""
        tools = [(n, tool) for n, tool in self._tools if tool.kind == "web_search"]
        if not any(tool.type.startswith("web_search") for _, tool in tools):
            return
        fields: Object = {"type": "web_search"}
        for number, tool in tools:
            place = f"tools[{number}]"
            if tool.blocked_domains:
                what = "this server can only allow domains. Use 'allowed_domains'"
                raise unsupported_value(f"{place}.blocked_domains", what)
            if tool.allowed_domains:
                filters = {"allowed_domains": tool.allowed_domains}
                if fields.setdefault("filters", filters) != filters:
                    what = f"{SHARED}. Give both the same domains"
                    raise unsupported_value(f"{place}.allowed_domains", what)
            if tool.user_location is not None:
                fields["user_location"] = tool.user_location
        yield offered(f"tools[{tools[0][0]}]", fields)

    def _servers(self) -> Iterator[Offered]:
        """The MCP servers: of the request, and those that the operator has under the name."""
        servers: dict[str, tuple[str, m.McpServer | None]] = {}
        for number, server in enumerate(self._request.mcp_servers or ()):
            place = f"mcp_servers[{number}]"
            if server.name in servers:
                raise invalid_value(f"{place}.name", "another server has this name")
            servers[server.name] = (place, server)
        sets: dict[str, m.McpToolset] = {}
        for number, toolset in self._sets:
            place, name = f"tools[{number}]", toolset.mcp_server_name
            if name in sets:
                raise invalid_value(f"{place}.mcp_server_name", "another toolset names this server")
            if toolset.tools is not None:
                what = "this server lists the tools itself. Leave the field out"
                raise unsupported_value(f"{place}.tools", what)
            sets[name] = toolset
            servers.setdefault(name, (place, None))
        for name, (place, named) in servers.items():
            yield _mcp_tool(name, place, named, sets.get(name))


def _mcp_tool(
    name: str, place: str, server: m.McpServer | None, toolset: m.McpToolset | None
) -> Offered:
    fields: Object = {"type": "mcp", "server_label": name, "require_approval": "never"}
    allowed, excluded = None, list[str]()
    if server is not None:
        fields |= {"server_url": server.url, "authorization": server.authorization_token}
        if (older := server.tool_configuration) is not None:
            allowed = [] if older.enabled is False else older.allowed_tools
    if toolset is not None:
        of_each = {n: one.enabled for n, one in (toolset.configs or {}).items()}
        if toolset.default_config is not None and toolset.default_config.enabled is False:
            allowed = [n for n, enabled in of_each.items() if enabled]
        excluded = [n for n, enabled in of_each.items() if enabled is False]
    return offered(place, fields | {"allowed_tools": allowed}, excluded_tools=excluded)


# --- in its history ------------------------------------------------------------------------------


def past_call(block: m.ServerToolUse | m.McpToolUse, result: m.ServerResult | None) -> Installed:
    """A call that a server ran, with what it gave, as the item of it."""
    content = None if result is None else result.content
    item_id = block.id.removeprefix(USE).removeprefix(MCP_USE)
    text = None if content is None else _text(content)
    if isinstance(block, m.McpToolUse):
        failed = result is not None and result.is_error is True
        facts = {"name": block.name, "server_label": block.server_name}
        return item_of(Ran("mcp", block.input, text, failed, facts=facts), item_id)
    if block.name == "code_execution":
        return item_of(Ran("code_interpreter", block.input, text, failed=False), item_id)
    found = content if isinstance(content, list) else [content]
    found = [one for one in found if isinstance(one, dict)]
    failed = any("error_code" in one for one in found)
    shown = "".join(map(_shown, found))
    return item_of(Ran("web_search", _action(block), shown, failed, found), item_id)


def _shown(found: Mapping[str, Any]) -> str:
    """The text of a search's result or of a page."""
    of_page = found.get("content")
    source = of_page.get("source") if isinstance(of_page, dict) else None
    text = source.get("data") if isinstance(source, dict) else found.get("encrypted_content")
    return text if isinstance(text, str) else ""


def _action(block: m.ServerToolUse) -> Object:
    given, url = block.input, str(block.input.get("url") or "")
    if block.name == "web_search":
        query = str(given.get("query", ""))
        return {"type": "search", "query": query, "queries": [query]}
    if "pattern" in given:
        return {"type": "find_in_page", "pattern": str(given["pattern"]), "url": url}
    return {"type": "open_page", "url": url or None}


def _text(content: Any) -> str:
    """What a result says, whichever its form is."""
    if isinstance(content, list):
        return "\n".join(_text(one) for one in content)
    if not isinstance(content, dict):
        return str(content)
    keys = ("text", "stdout", "stderr", "error_code")
    return "\n".join(str(content[key]) for key in keys if content.get(key))


# --- as blocks -----------------------------------------------------------------------------------


def use_of(item: OutputItem) -> Object | None:
    """The block of a call that the server runs; None for what is none."""
    if (call := ran(item)) is None:
        return None
    if call.kind == "mcp":
        block = {"type": "mcp_tool_use", "id": MCP_USE + item.id, "name": call.facts["name"]}
        return block | {"server_name": call.facts["server_label"], "input": dict(call.input)}
    name, given = _named(call)
    return {"type": "server_tool_use", "id": USE + item.id, "name": name, "input": given}


def result_of(item: OutputItem) -> Object:
    """The block of what such a call gave."""
    call = ran(item)
    assert call is not None, "another item has no result"
    if call.kind == "mcp":
        content = [{"type": "text", "text": call.output or ""}]
        about = {"tool_use_id": MCP_USE + item.id, "is_error": call.failed, "content": content}
        return {"type": "mcp_tool_result", **about}
    name = f"{_named(call)[0]}_tool_result"
    return {"type": name, "tool_use_id": USE + item.id, "content": _content(call, name)}


def _named(call: Ran) -> tuple[str, Object]:
    """The name of a tool as Anthropic has it, and its input."""
    given = call.input
    if call.kind == "code_interpreter":
        return "code_execution", dict(given)
    if given["type"] == "search":
        return "web_search", {"query": given["query"]}
    pattern = {"pattern": given["pattern"]} if given["type"] == "find_in_page" else {}
    return "web_fetch", {"url": given["url"] or "", **pattern}


def _content(call: Ran, name: str) -> Object | list[Object]:
    text = call.output or ""
    if call.failed:
        return {"type": f"{name}_error", "error_code": "unavailable"}
    if call.kind == "code_interpreter":
        code = int(any(line == TRACEBACK for line in text.splitlines()))
        about = {"stdout": text, "stderr": "", "return_code": code, "content": list[Any]()}
        return {"type": "code_execution_result", **about}
    if call.input["type"] == "search":
        texts = [text, *[""] * len(call.found)]  # with the first, the text of them all
        return [
            {**one, "type": "web_search_result", "encrypted_content": text_of_it, "page_age": None}
            for one, text_of_it in zip(call.found, texts, strict=False)
        ]
    source = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "source": source, "title": None, "citations": None}
    url = call.input["url"] or ""
    return {"type": "web_fetch_result", "url": url, "content": document, "retrieved_at": None}


def citation_of(note: UrlCitation) -> Object:
    """A citation in a text."""
    about = {"url": note.url, "title": note.title, "cited_text": "", "encrypted_index": ""}
    return {"type": "web_search_result_location", **about}


def container_of(response: Response) -> Object | None:
    """The container of the last code that ran; None where none did."""
    used = [item for item in response.output if item.type == "code_interpreter_call"]
    if not used:
        return None
    made: Any = used[-1]
    ends = datetime.fromtimestamp((response.completed_at or response.created_at) + IDLE_S, UTC)
    return {"id": made.container_id, "expires_at": ends.isoformat(), "skills": None}


def requests_of(output: Sequence[OutputItem]) -> Mapping[str, int] | None:
    """The numbers of searches and of pages; None where no tool of the server ran."""
    calls = [call for item in output if (call := ran(item)) is not None]
    names = [_named(call)[0] for call in calls if call.kind != "mcp"]
    if not names:
        return None
    return {f"{name}_requests": names.count(name) for name in ("web_search", "web_fetch")}
