"""Calls of tools of which the API says what a call is, and which the client runs.

The model writes JSON; the client gets commands, or what to do to a file. It cannot act on half of
that, so it gets the call when it is whole. Knows no tool of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic_core import from_json

from trt_responses.frozen import replace
from trt_responses.wire import events as e
from trt_responses.wire import output as o

ActionKind = Literal["shell", "local_shell", "apply_patch"]
PREFIXES: dict[ActionKind, str] = {"shell": "sh", "local_shell": "lsh", "apply_patch": "apc"}
"""The beginnings of the items' ids."""


class ActionCall:
    """A call of a shell or of a patch, whose item is made of the whole text that the model
    writes."""

    def __init__(self, item_id: str, index: int, kind: ActionKind, call_id: str) -> None:
        self.id = item_id
        self.index = index
        self._kind = kind
        self._call_id = call_id

    def begin(self) -> Iterator[e.Event]:
        """The events at its beginning: none yet for a patch, whose item says from its first event
        what it is about."""
        if self._kind != "apply_patch":
            yield e.OutputItemAdded(self.index, self._item({}))

    def end(self, written: str, status: o.Status) -> Iterator[e.Event]:
        """The events at its end, when the model has ended the call or was cut."""
        item = self._item(_read(written))
        if isinstance(item, o.OutputPatchCall):
            yield e.OutputItemAdded(self.index, _without_diff(item))
            yield e.OutputItemDone(
                self.index, replace(item, status="completed") if status == "completed" else item
            )
            return
        if isinstance(item, o.OutputShellCall):
            for number, command in enumerate(item.action.commands):
                yield e.ShellCommandAdded(self.index, number, "")
                if command:
                    yield e.ShellCommandDelta(self.index, number, command)
                yield e.ShellCommandDone(self.index, number, command)
        yield e.OutputItemDone(self.index, replace(item, status=status))

    def _item(self, written: dict[str, Any]) -> o.OutputActionCall:
        match self._kind:
            case "shell":
                action = o.ShellAction(
                    _texts(written.get("commands")),
                    _number(written.get("timeout_ms")),
                    _number(written.get("max_output_length")),
                )
                return o.OutputShellCall(self.id, self._call_id, action)
            case "local_shell":
                command = o.LocalShellAction(
                    _texts(written.get("command")),
                    timeout_ms=_number(written.get("timeout_ms")),
                    working_directory=_text(written.get("working_directory")) or None,
                )
                return o.OutputLocalShellCall(self.id, self._call_id, command)
            case "apply_patch":
                return o.OutputPatchCall(self.id, self._call_id, _operation(written))


def _read(written: str) -> dict[str, Any]:
    """The JSON object that was written, as far as it goes."""
    try:
        found = from_json(written, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _operation(written: dict[str, Any]) -> o.PatchedFile | o.DeletedFile:
    path, diff = _text(written.get("path")), _text(written.get("diff"))
    if written.get("type") == "delete_file":
        return o.DeletedFile(path)
    return o.PatchedFile(
        path, diff, "create_file" if written.get("type") == "create_file" else "update_file"
    )


def _without_diff(item: o.OutputPatchCall) -> o.OutputPatchCall:
    if isinstance(item.operation, o.DeletedFile):
        return item
    return replace(item, operation=replace(item.operation, diff=""))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def action_text(item: o.OutputActionCall) -> str:
    """The text that the model writes to make this call."""
    action = item.operation if isinstance(item, o.OutputPatchCall) else item.action
    return o.arguments_of(vars(action))
