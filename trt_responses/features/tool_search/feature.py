"""Keeps deferred tools out of the beginning of a prompt: their definitions stand behind the search
that finds them, so that the ids before stay the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as replace_slots
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted, Tool
from trt_responses.accept.tools import client_tools
from trt_responses.feature import Step
from trt_responses.features.hosted_tools.hosted_calls import Runner
from trt_responses.features.hosted_tools.loop import ToolLoop
from trt_responses.features.hosted_tools.sessions import holds
from trt_responses.features.hosted_tools.used import NO_CALLS, Both, NewCalls, UsedTool
from trt_responses.features.tool_search.items import (
    DESCRIPTION,
    NAME,
    PARAMETERS,
    ToolSearchOutput,
)
from trt_responses.features.tool_search.search import Search
from trt_responses.features.tool_search.texts import listing
from trt_responses.frozen import replace
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.item_events import Callee
from trt_responses.prompt.history import prior_of
from trt_responses.run.draft import Draft
from trt_responses.run.generation import Generation
from trt_responses.run.turns import Turn
from trt_responses.store import Block
from trt_responses.tools.session import DEFERS
from trt_responses.wire.known_tools import known, made_once
from trt_responses.wire.tools import Placed, flat

OUTPUT = b'"tool_search_output"'
NO_FIELDS: Mapping[str, Any] = {}


class ToolSearch:
    """Serves requests with a `tool_search` tool."""

    reads = ("tools", "built_in")

    def __init__(self, most_shown: int) -> None:
        """`most_shown`: the longest list of an MCP server that is not deferred by itself."""
        self._most_shown = most_shown

    def accept(self, accepted: Accepted) -> Step | None:
        if searches(accepted.tools):
            tool = next((tool for tool in accepted.echo.tools if tool["type"] == NAME), NO_FIELDS)
            is_ours = tool.get("execution") != "client"
            return ToolSearchStep(is_ours=is_ours, most_shown=self._most_shown)
        if any(tool.kind == "mcp" for tool in accepted.built_in):
            return ToolSearchStep(is_ours=True, most_shown=self._most_shown)
        return None


@made_once
def searches(tools: Sequence[Tool]) -> bool:
    """Whether one of the tools is a search for others."""
    return any(tool.callee.action == NAME for tool in tools)


@made_once
def shown(tools: Sequence[Tool]) -> Sequence[Tool]:
    """The tools at the prompt's beginning, the deferred ones as a list in the search's words."""
    listed = listing(tools) if any(tool.deferred for tool in tools) else ""
    return known(
        [
            replace_slots(tool, description=f"{tool.description}\n{listed}".strip())
            if tool.callee.action == NAME
            else tool
            for tool in tools
            if not tool.deferred
        ]
    )


class ToolSearchStep(Step):
    """The tools of one run."""

    order = 35  # behind the servers of tools, which add theirs

    def __init__(self, *, is_ours: bool, most_shown: int) -> None:
        """`is_ours`: the server searches; else the client does."""
        self.moves = not is_ours  # what it has found is no part of what is kept
        self._is_ours = is_ours
        self._most_shown = most_shown
        self._loop: ToolLoop | None = None
        self._used: Mapping[str, UsedTool] = {}
        self._tools: Sequence[Tool] = ()
        self._called: Sequence[Tool] = ()

    async def acquire(self, draft: Draft) -> None:
        """Let MCP servers offer more tools than a model is shown."""
        if self._is_ours:
            tools = [
                replace_slots(one, options={**one.options, DEFERS: True})
                if one.kind == "mcp"
                else one
                for one in draft.accepted.built_in
            ]
            draft.accepted = replace(draft.accepted, built_in=tools)

    async def offer(self, draft: Draft) -> None:
        """Show the tools that are not deferred, and remember what earlier searches have found."""
        accepted = draft.accepted
        if self._is_ours:
            accepted = _deferred(accepted, self._most_shown)
            if not searches(accepted.tools):
                self._is_ours = False  # nothing is to be searched
                return
        if draft.prior is None and accepted.previous_response_id is not None:
            draft.prior = await prior_of(accepted, draft.records, draft.owner)
        blocks = () if draft.prior is None else draft.prior.blocks
        self._tools = self._called = _with_found(accepted, blocks)
        self._called = _with_forms(self._tools)
        draft.accepted = replace(accepted, tools=shown(accepted.tools))

    async def prompted(self, draft: Draft) -> None:
        """Let the model call all tools: the prompt is made."""
        if not self._tools:
            return
        choice, tools = draft.accepted.choice, self._called
        names = [tool.name for tool in tools if tool.name in choice.names]
        choice = replace_slots(choice, names=names)  # each of which is looked at
        # A call that is run here ends a turn.
        parallel = draft.accepted.parallel_calls and not self._is_ours
        draft.accepted = replace(
            draft.accepted, tools=tools, choice=choice, parallel_calls=parallel
        )

    async def planned(self, draft: Draft) -> None:
        if not self._is_ours:
            return
        search = Search(self._tools, draft.accepted.echo.tools)
        self._used = dict.fromkeys(
            (NAME, FUNCTIONS + NAME), UsedTool(search, search, Runner(NAME), NAME, NAME)
        )
        draft.called = {name: c for name, c in draft.called.items() if name not in self._used}
        self._loop = ToolLoop(self._used, draft.turns, draft.parts.clock_ns)
        draft.recipients = Both(draft.recipients, self._used)
        draft.tool_names = Both(draft.tool_names, (NAME,))

    def write(self, draft: Draft) -> None:
        if self._loop is not None:
            options = draft.machine_options
            options["runners"] = NewCalls(self._used, None, options.get("runners", NO_CALLS))

    async def after(self, generation: Generation) -> Turn | None:
        return None if self._loop is None else await self._loop.turn(generation)


def _deferred(accepted: Accepted, most_shown: int) -> Accepted:
    """The request with the tools of long lists deferred, and a search for them."""
    tools = known(accepted.tools)
    deferred = tools.once(("deferred", most_shown), lambda: _with_search(tools, most_shown))
    return accepted if deferred is None else replace(accepted, tools=deferred)


def _with_search(tools: Sequence[Tool], most_shown: int) -> Sequence[Tool] | None:
    """The tools with those of long lists deferred, and a search; None: no list is so long."""
    lengths = Counter(tool.server for tool in tools if tool.server is not None)
    long = {server for server, length in lengths.items() if length > most_shown}
    if not long:
        return None
    changed = [
        replace_slots(tool, deferred=True) if tool.server in long else tool for tool in tools
    ]
    if not searches(tools):
        callee = Callee(NAME, action=NAME)
        changed.append(Tool(NAME, "tools", callee, DESCRIPTION, PARAMETERS))
    return known(changed)


@made_once
def _with_forms(tools: Sequence[Tool]) -> Sequence[Tool]:
    """The tools but for the deferred ones of servers, which check the arguments: no form is made of
    thousands of schemas."""
    kept = [tool for tool in tools if not (tool.server and tool.deferred)]
    return tools if len(kept) == len(tools) else known(kept)


def _with_found(accepted: Accepted, blocks: Sequence[Block]) -> Sequence[Tool]:
    """The request's tools, and those that searches have found and it does not have itself."""
    found = [tool for output in _outputs(accepted, blocks) for tool in client_tools(output)]
    if not found or _names(accepted.tools).issuperset(tool.name for tool in found):
        return accepted.tools
    named = {tool.name: tool for tool in (*found, *accepted.tools)}
    return known(list(named.values()))


@made_once
def _names(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools)


def _outputs(accepted: Accepted, blocks: Sequence[Block]) -> Iterator[list[Placed]]:
    for block in blocks:
        if holds(block, OUTPUT):
            item = orjson.loads(block.item)
            if item.get("type") == "tool_search_output":
                yield list(flat(ToolSearchOutput.model_validate(item).tools))
    for item in () if isinstance(accepted.input, str) else accepted.input:
        if isinstance(item, ToolSearchOutput):
            yield list(flat(item.tools))
