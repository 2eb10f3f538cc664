"""The events of calls of shells and of patches, from the JSON that the model wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from trt_responses.features.tool_items import events as te
from trt_responses.features.tool_items import output as to
from trt_responses.frozen import replace
from trt_responses.log.item_events import Callee, FolderCall, Mint
from trt_responses.wire import events as e
from trt_responses.wire import output as o
from trt_responses.wire.past_calls import object_in


class ActionCall(FolderCall):
    """A call whose item is made of the whole text that the model writes."""

    waits = True
    prefix: ClassVar[str]
    """The beginning of its items' ids."""

    def __init__(self, mint: Mint, index: int, callee: Callee) -> None:
        self.id = mint(self.prefix)
        self.index = index
        self.call_id = mint("call")


class ShellCall(ActionCall):
    """A `shell_call`."""

    prefix = "sh"

    def begin(self) -> Iterator[e.Event]:
        """The event that adds it, still without commands."""
        yield e.OutputItemAdded(self.index, self._item({}))

    def at_once(self, written: str, status: o.Status) -> Iterator[e.Event]:
        """The events of its commands, and its end."""
        item = self._item(_read(written))
        for number, command in enumerate(item.action.commands):
            yield te.ShellCommandAdded(self.index, number, "")
            if command:
                yield te.ShellCommandDelta(self.index, number, command)
            yield te.ShellCommandDone(self.index, number, command)
        yield e.OutputItemDone(self.index, replace(item, status=status))

    def _item(self, written: dict[str, Any]) -> to.OutputShellCall:
        action = to.ShellAction(
            _texts(written.get("commands")),
            _number(written.get("timeout_ms")),
            _number(written.get("max_output_length")),
        )
        return to.OutputShellCall(self.id, self.call_id, action)


class LocalShellCall(ActionCall):
    """A `local_shell_call`."""

    prefix = "lsh"

    def begin(self) -> Iterator[e.Event]:
        """The event that adds it, still without its command."""
        yield e.OutputItemAdded(self.index, self._item({}))

    def at_once(self, written: str, status: o.Status) -> Iterator[e.Event]:
        """The event that ends it, with its command."""
        yield e.OutputItemDone(self.index, replace(self._item(_read(written)), status=status))

    def _item(self, written: dict[str, Any]) -> to.OutputLocalShellCall:
        command = to.LocalShellAction(
            _texts(written.get("command")),
            timeout_ms=_number(written.get("timeout_ms")),
            working_directory=_text(written.get("working_directory")) or None,
        )
        return to.OutputLocalShellCall(self.id, self.call_id, command)


class PatchCall(ActionCall):
    """An `apply_patch_call`."""

    prefix = "apc"

    def begin(self) -> Sequence[e.Event]:
        """No event yet: the item says from its first event what it is about."""
        return ()

    def at_once(self, written: str, status: o.Status) -> Iterator[e.Event]:
        """The events of the whole item: added without its diff, done with it."""
        item = to.OutputPatchCall(self.id, self.call_id, _operation(_read(written)))
        yield e.OutputItemAdded(self.index, _without_diff(item))
        done = replace(item, status="completed") if status == "completed" else item
        yield e.OutputItemDone(self.index, done)


def _read(written: str) -> dict[str, Any]:
    """The JSON object that was written, as far as it goes."""
    return object_in(written, partial="trailing-strings") or {}


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


CALLS: dict[str, type[ActionCall]] = {
    "shell": ShellCall,
    "local_shell": LocalShellCall,
    "apply_patch": PatchCall,
}
"""What makes the calls of each kind."""
