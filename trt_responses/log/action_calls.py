"""The seam of calls of tools of which the API says what a call is, and which the client runs.

A folder brings their kinds. The model writes JSON; the client gets commands, or what to do to a
file. It cannot act on half of that, so it gets the call when it is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trt_responses.errors import InvalidRequest, unsupported_value
from trt_responses.log.item_events import CALLS, ActionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.wire.tools import ActionTool


class Action(NamedTuple):
    """One kind, as the model is shown the tool; what its call becomes is in `CALLS`."""

    describe: Callable[[ActionTool], str]
    parameters: Callable[[ActionTool], Mapping[str, object]]
    """The schema of its calls."""
    strict: bool = True
    """Whether the model is held to it."""


ACTIONS: dict[ActionKind, Action] = {}
"""The kinds that are installed."""


def action_of(kind: ActionKind, place: str) -> Action:
    """The kind of a tool at a place of a request. Raises an `InvalidRequest` where it is not
    installed."""
    if (action := ACTIONS.get(kind)) is None:
        raise _not_installed(kind, place)
    return action


def check_calls(kind: str, place: str) -> None:
    """Raise an `InvalidRequest` for tools of a kind whose calls no folder makes."""
    if kind not in CALLS:
        raise _not_installed(kind, place)


def _not_installed(kind: str, place: str) -> InvalidRequest:
    return unsupported_value(place, f"tools of the type '{kind}' are not installed here")
