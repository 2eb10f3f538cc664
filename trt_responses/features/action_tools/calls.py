"""The events of calls of shells and of patches, from the JSON that the model wrote."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json

from trt_responses.features.tool_items import events as te
from trt_responses.features.tool_items import output as to
from trt_responses.frozen import replace
from trt_responses.log.item_events import FolderCall
from trt_responses.wire import events as e
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trt_responses.log.item_events import Callee, Mint


class Form(NamedTuple):
    """What a call becomes."""

    prefix: str
    """The beginning of its items' ids."""
    begin: Callable[[ActionCall], Iterable[e.Event]]
    """The events at the call's beginning."""
    end: Callable[[ActionCall, str, o.Status], Iterable[e.Event]]
    """The events at its end, from the text that was written, when the model has ended the call or
    was cut."""


class ActionCall(FolderCall):
    """A call whose item is made of the whole text that the model writes."""

    waits = True

    def __init__(self, form: Form, mint: Mint, index: int, callee: Callee) -> None:
        self.id = mint(form.prefix)
        self.index = index
        self.call_id = mint("call")
        self._form = form

    def begin(self) -> Iterable[e.Event]:
        return self._form.begin(self)

    def at_once(self, written: str, status: o.Status) -> Iterable[e.Event]:
        return self._form.end(self, written, status)


def begin_shell(call: ActionCall) -> Iterator[e.Event]:
    """The event that adds a `shell_call`, still without commands."""
    yield e.OutputItemAdded(call.index, _shell_call(call, {}))


def end_shell(call: ActionCall, written: str, status: o.Status) -> Iterator[e.Event]:
    """The events of a `shell_call`'s commands, and its end."""
    item = _shell_call(call, _read(written))
    for number, command in enumerate(item.action.commands):
        yield te.ShellCommandAdded(call.index, number, "")
        if command:
            yield te.ShellCommandDelta(call.index, number, command)
        yield te.ShellCommandDone(call.index, number, command)
    yield e.OutputItemDone(call.index, replace(item, status=status))


def _shell_call(call: ActionCall, written: dict[str, Any]) -> to.OutputShellCall:
    action = to.ShellAction(
        _texts(written.get("commands")),
        _number(written.get("timeout_ms")),
        _number(written.get("max_output_length")),
    )
    return to.OutputShellCall(call.id, call.call_id, action)


def begin_local_shell(call: ActionCall) -> Iterator[e.Event]:
    """The event that adds a `local_shell_call`, still without its command."""
    yield e.OutputItemAdded(call.index, _local_shell_call(call, {}))


def end_local_shell(call: ActionCall, written: str, status: o.Status) -> Iterator[e.Event]:
    """The event that ends a `local_shell_call`, with its command."""
    item = _local_shell_call(call, _read(written))
    yield e.OutputItemDone(call.index, replace(item, status=status))


def _local_shell_call(call: ActionCall, written: dict[str, Any]) -> to.OutputLocalShellCall:
    command = to.LocalShellAction(
        _texts(written.get("command")),
        timeout_ms=_number(written.get("timeout_ms")),
        working_directory=_text(written.get("working_directory")) or None,
    )
    return to.OutputLocalShellCall(call.id, call.call_id, command)


def begin_patch(call: ActionCall) -> Iterator[e.Event]:
    """No event yet: the item says from its first event what it is about."""
    yield from ()


def end_patch(call: ActionCall, written: str, status: o.Status) -> Iterator[e.Event]:
    """The events of a whole `apply_patch_call`: added without its diff, done with it."""
    item = to.OutputPatchCall(call.id, call.call_id, _operation(_read(written)))
    yield e.OutputItemAdded(call.index, _without_diff(item))
    done = replace(item, status="completed") if status == "completed" else item
    yield e.OutputItemDone(call.index, done)


def _read(written: str) -> dict[str, Any]:
    """The JSON object that was written, as far as it goes."""
    try:
        found = from_json(written, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _operation(written: dict[str, Any]) -> to.PatchedFile | to.DeletedFile:
    path, diff = _text(written.get("path")), _text(written.get("diff"))
    if written.get("type") == "delete_file":
        return to.DeletedFile(path)
    return to.PatchedFile(
        path, diff, "create_file" if written.get("type") == "create_file" else "update_file"
    )


def _without_diff(item: to.OutputPatchCall) -> to.OutputPatchCall:
    if isinstance(item.operation, to.DeletedFile):
        return item
    return replace(item, operation=replace(item.operation, diff=""))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


FORMS = {
    "shell": Form("sh", begin_shell, end_shell),
    "local_shell": Form("lsh", begin_local_shell, end_local_shell),
    "apply_patch": Form("apc", begin_patch, end_patch),
}
CALLS = {kind: partial(ActionCall, form) for kind, form in FORMS.items()}
"""What makes the calls of each kind."""
