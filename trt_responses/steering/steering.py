"""What of a response is steered: nothing, unless a folder brings the guides for it.

What cannot be honoured is refused here, by name and before any token. Knows accepted requests and
what a turn may be; knows no API's words and no concrete engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trt_responses.errors import unsupported_value
from trt_responses.frozen import dataclass
from trt_responses.language.steering import Choice, Turn
from trt_responses.steering.tools import is_raw
from trt_responses.wire.known_tools import made_once

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, Tool
    from trt_responses.dialect import Dialect
    from trt_responses.language.steering import Guides, SteeringPlan
    from trt_responses.schema.normalise import Left


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """The steering of one request."""

    dialect: Dialect
    guides: Guides
    turn: Turn
    left: tuple[Left, ...] = ()
    """The parts of schemas that are not followed."""

    def parallel_plan(self, tokens: int, recipients: Collection[str], most: int) -> SteeringPlan:
        """The plan of a turn that may have calls after the first. Where tools must be chosen from a
        list, only those are called."""
        turn = replace(self.turn, calls=most, recipients=recipients)
        return self.dialect.plan(turn, self.guides, tokens)

    def plan_after_tool(self, tokens: int, written: int, thought: int, spent: bool) -> SteeringPlan:
        """The plan of a turn behind a tool's answer, for so many tokens more behind those that were
        written and thought. `spent`: no tool of the server's may be called any more."""
        later = self.turn_after_tool(thought, spent)
        return self.dialect.plan(later, self.guides, tokens, written=written, after_tool=True)

    def turn_after_tool(self, thought: int, spent: bool) -> Turn:
        """The requirements on such a turn."""
        return replace(self.turn, begun=())

    def plan(self, tokens: int) -> SteeringPlan:
        """The plan of the first turn, for so many tokens."""
        return self.dialect.plan(self.turn, self.guides, tokens)


class Steering:
    """Makes steering requests. A folder brings a subclass that can guide."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def request(self, accepted: Accepted, guides: Guides, owner: str = "") -> SteeringRequest:
        """The steering of a request. Raises an `InvalidRequest` for what this server or its engine
        cannot be guided to."""
        narrows = accepted.choice.narrows or accepted.answer is not None
        narrows = narrows or accepted.thought is not None
        tools = accepted.tools
        if narrows or accepted.built_in or (tools and promising(tools)):
            return await self._guided(accepted, guides, owner)
        offered = tuple(calls_of(tools).values()) if tools else ()  # as most requests
        turn = Turn(offered=offered, begun=tuple(accepted.begun))
        return SteeringRequest(self._dialect, guides, turn)

    async def _guided(self, accepted: Accepted, guides: Guides, owner: str) -> SteeringRequest:
        """The steering of a request that needs guides."""
        place = next(_held(accepted))
        raise unsupported_value(place, "guides of answers and calls are not installed here")


def _held(accepted: Accepted) -> Iterator[str]:
    """The fields of a request that need guides."""
    if accepted.choice.narrows:
        yield accepted.choice.place
    yield from (one.place for one in (accepted.answer, accepted.thought) if one is not None)
    yield from (f"{tool.place}.{tool.promise}" for tool in accepted.tools if tool.promise)
    yield from (tool.place for tool in accepted.built_in)


@made_once
def calls_of(tools: Sequence[Tool]) -> Mapping[str, Choice]:
    """The calls of all tools, by their names, without the forms of their texts."""
    calls = {}
    for tool in tools:
        what = f"the {'format' if tool.callee.custom else 'parameters'} of '{tool.name}'"
        calls[tool.name] = Choice("call", tool.name, None, what, raw=is_raw(tool))
    return calls


@made_once
def promising(tools: Sequence[Tool]) -> Sequence[Tool]:
    """The tools whose calls are held to a form, also where the model may choose freely."""
    return [tool for tool in tools if tool.promise or tool.server or is_raw(tool)]
