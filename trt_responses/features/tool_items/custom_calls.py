"""Calls of the client's custom tools."""

from __future__ import annotations

from trt_responses.features.tool_items.custom_input import Unwrapper
from trt_responses.features.tool_items.events import CustomInputDelta, CustomInputDone
from trt_responses.features.tool_items.output import OutputCustomCall, OutputNamespacedCustomCall
from trt_responses.log.item_events import Callee, FolderCall, Mint
from trt_responses.wire import events as e
from trt_responses.wire import output as o


class CustomCall(FolderCall):
    """A call of one of the client's custom tools, whose text the model wraps in JSON."""

    def __init__(self, mint: Mint, index: int, callee: Callee) -> None:
        self.id = mint("ctc")
        self.index = index
        self._callee = callee
        self._call_id = mint("call")

    def new_filter(self) -> Unwrapper:
        return Unwrapper()

    def begin(self) -> tuple[e.Event, ...]:
        return (e.OutputItemAdded(self.index, self._item("", "in_progress")),)

    def delta(self) -> e.Delta:
        return CustomInputDelta(self.id, self.index, "")

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        assert isinstance(item, OutputCustomCall)
        return (
            CustomInputDone(self.id, self.index, item.input),
            e.OutputItemDone(self.index, self._item(item.input, status)),
        )

    def _item(self, written: str, status: o.Status) -> OutputCustomCall:
        name, namespace, *_ = self._callee
        if namespace is None:
            return OutputCustomCall(self.id, self._call_id, name, written, status)
        return OutputNamespacedCustomCall(
            self.id, self._call_id, name, written, status, namespace=namespace
        )
