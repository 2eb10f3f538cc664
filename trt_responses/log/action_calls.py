"""The seam of calls of tools of which the API says what a call is, and which the client runs.

A folder brings their kinds. The model writes JSON; the client gets commands, or what to do to a
file. It cannot act on half of that, so it gets the call when it is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_responses.errors import unsupported_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trt_responses.wire.events import Event
    from trt_responses.wire.output import Status
    from trt_responses.wire.tools import ActionTool

ActionKind = Literal["shell", "local_shell", "apply_patch", "tool_search"]


class Action(NamedTuple):
    """One kind: how the model is shown the tool, and what its call becomes."""

    prefix: str
    """The beginning of its items' ids."""
    describe: Callable[[ActionTool], str]
    parameters: Mapping[str, object]
    """The schema of its calls."""
    begin: Callable[[ActionCall], Iterable[Event]]
    """The events at the call's beginning."""
    end: Callable[[ActionCall, str, Status], Iterable[Event]]
    """The events at its end, from the text that was written, when the model has ended the call or
    was cut."""


class ActionCall:
    """A call whose item is made of the whole text that the model writes."""

    def __init__(self, item_id: str, index: int, kind: ActionKind, call_id: str) -> None:
        self.id = item_id
        self.index = index
        self.call_id = call_id
        self._action = ACTIONS[kind]

    def begin(self) -> Iterable[Event]:
        return self._action.begin(self)

    def end(self, written: str, status: Status) -> Iterable[Event]:
        return self._action.end(self, written, status)


ACTIONS: dict[ActionKind, Action] = {}
"""The kinds that are installed."""


def action_of(kind: ActionKind, place: str) -> Action:
    """The kind of a tool at a place of a request. Raises an `InvalidRequest` where it is not
    installed."""
    if (action := ACTIONS.get(kind)) is None:
        raise unsupported_value(place, f"tools of the type '{kind}' are not installed here")
    return action
