"""Keeps deferred tools out of the beginning of a prompt: their definitions stand behind the search
that finds them, so that the ids before stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from trt_responses.accept.tools import client_tools
from trt_responses.feature import Step
from trt_responses.features.hosted_tools.loop import ToolLoop, UsedTool
from trt_responses.features.tool_search.items import NAME, ToolSearchOutput
from trt_responses.features.tool_search.search import Search, Searching
from trt_responses.features.tool_search.texts import listing
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.hosted_calls import Runner
from trt_responses.prompt.history import prior_of
from trt_responses.wire.known_tools import known, made_once
from trt_responses.wire.tools import Placed, flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trt_responses.accept.accepted import Accepted, Tool
    from trt_responses.run.draft import Draft
    from trt_responses.run.generation import Generation
    from trt_responses.run.turns import Turn
    from trt_responses.store import Block

OUTPUT = b'"tool_search_output"'


class ToolSearch:
    """Serves requests with a `tool_search` tool."""

    reads = ("tools",)

    def accept(self, accepted: Accepted) -> Step | None:
        if not searches(accepted.tools):
            return None
        tool = next(tool for tool in accepted.echo.tools if tool["type"] == NAME)
        return ToolSearchStep(None if tool.get("execution") == "client" else Search())


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
            replace(tool, description=f"{tool.description}\n{listed}".strip())
            if tool.callee.action == NAME
            else tool
            for tool in tools
            if not tool.deferred
        ]
    )


class ToolSearchStep(Step):
    """The tools of one run."""

    order = 35  # behind the servers of tools, which add theirs

    def __init__(self, search: Search | None) -> None:
        """`search`: the server's own; None: the client searches."""
        self.moves = search is None  # what it has found is no part of what is kept
        self._search = search
        self._loop: ToolLoop | None = None
        self._tools: Sequence[Tool] = ()

    async def offer(self, draft: Draft) -> None:
        """Show the tools that are not deferred, and remember what earlier searches have found."""
        accepted = draft.accepted
        if draft.prior is None and accepted.previous_response_id is not None:
            draft.prior = await prior_of(accepted, draft.records, draft.owner)
        blocks = () if draft.prior is None else draft.prior.blocks
        self._tools = _with_found(accepted, blocks)
        draft.accepted = replace(accepted, tools=shown(accepted.tools))

    async def prompted(self, draft: Draft) -> None:
        """Let the model call all tools: the prompt is made."""
        draft.accepted = replace(draft.accepted, tools=self._tools)
        if self._search is not None:  # a call that is run here ends a turn
            draft.accepted = replace(draft.accepted, parallel_calls=False)

    async def planned(self, draft: Draft) -> None:
        if (search := self._search) is None:
            return
        session = Searching(self._tools, draft.accepted.echo.tools)
        used = UsedTool(search, session, Runner(NAME), NAME, NAME)
        recipients = (NAME, FUNCTIONS + NAME)
        draft.called = {name: c for name, c in draft.called.items() if name not in recipients}
        loop = ToolLoop(dict.fromkeys(recipients, used), draft.turns, draft.parts.clock_ns)
        self._loop = loop
        draft.recipients = {*draft.recipients, *recipients}
        draft.tool_names = {*draft.tool_names, NAME}

    def write(self, draft: Draft) -> None:
        if self._loop is not None:
            options = draft.machine_options
            options["runners"] = {**options.get("runners", {}), **self._loop.runners}

    async def after(self, generation: Generation) -> Turn | None:
        return None if self._loop is None else await self._loop.turn(generation)


def _with_found(accepted: Accepted, blocks: Sequence[Block]) -> Sequence[Tool]:
    """The request's tools, and those that searches have found and it does not have itself."""
    found = [tool for output in _outputs(accepted, blocks) for tool in client_tools(output)]
    if not found:
        return accepted.tools
    named = {tool.name: tool for tool in (*found, *accepted.tools)}
    return known(list(named.values()))


def _outputs(accepted: Accepted, blocks: Sequence[Block]) -> Iterator[list[Placed]]:
    for block in blocks:
        if OUTPUT in block.item:
            item = orjson.loads(block.item)
            if item.get("type") == "tool_search_output":
                yield list(flat(ToolSearchOutput.model_validate(item).tools))
    for item in () if isinstance(accepted.input, str) else accepted.input:
        if isinstance(item, ToolSearchOutput):
            yield list(flat(item.tools))
