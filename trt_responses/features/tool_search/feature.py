"""Keeps deferred tools out of the beginning of a prompt: their definitions stand behind the search
that finds them, so that the ids before stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from trt_responses.accept.tools import client_tools
from trt_responses.feature import Step
from trt_responses.features.tool_search.items import NAME, ToolSearchOutput
from trt_responses.features.tool_search.texts import listing
from trt_responses.prompt.history import prior_of
from trt_responses.wire.known_tools import known, made_once
from trt_responses.wire.tools import Placed, flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trt_responses.accept.accepted import Accepted, Tool
    from trt_responses.run.draft import Draft
    from trt_responses.store import Block

OUTPUT = b'"tool_search_output"'


class ToolSearch:
    """Serves requests with a `tool_search` tool."""

    reads = ("tools",)

    def accept(self, accepted: Accepted) -> Step | None:
        return ToolSearchStep() if searches(accepted.tools) else None


@made_once
def searches(tools: Sequence[Tool]) -> bool:
    """Whether one of the tools is a search of the client's."""
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

    order = 25

    def __init__(self) -> None:
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
