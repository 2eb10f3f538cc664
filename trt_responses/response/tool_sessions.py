"""Opens the tools that a request offers and the server runs, in the containers that are asked for.

Knows the seam of tools, and blocks by their items; knows no run and no concrete tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.harmony.write.conversation import FUNCTIONS
from trt_responses.response.tool_loop import UsedTool

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.response.accepted import BuiltInTool
    from trt_responses.store.base import Block
    from trt_responses.tools.base import Tool


async def open_tools(
    asked: Sequence[BuiltInTool],
    tools: Mapping[str, Tool],
    functions: Collection[str],
    blocks: Sequence[Block],
    owner: str,
) -> dict[str, UsedTool]:
    """The tools of a request that the server runs, by the recipients of their calls: each by its
    name, and among the functions too, when none of them has it. Nothing begins before a call."""
    used: dict[str, UsedTool] = {}
    for one in asked:
        tool = tools[one.kind]
        try:
            session = await tool.open(owner, one.container_id, _containers(blocks))
        except InvalidRequest as error:
            error.param = f"{one.place}.container"
            raise
        used[tool.name] = UsedTool(tool, session, one.shows_outputs)
        if FUNCTIONS + tool.name not in functions:
            used[FUNCTIONS + tool.name] = used[tool.name]
    return used


def _containers(blocks: Sequence[Block]) -> list[str]:
    """Those in which the conversation has run code, the latest last."""
    items = [orjson.loads(b.item) for b in blocks if b'"code_interpreter_call"' in b.item]
    found = (item.get("container_id") for item in items if isinstance(item, dict))
    return [each for each in found if isinstance(each, str)]
