"""Requests with messages whose like came before: they differ from an earlier one in these alone."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from trt_responses.accept.accepted import Accepted
from trt_responses.features.shapes.shapes import Kept, Shape, size_of, written_fields
from trt_responses.wire.base import Options
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.parse import SMALL_BYTES, json_of, read_lists, steps_of

R = TypeVar("R", bound=Options)
M = TypeVar("M")


class MessageShapes(Generic[R, M]):
    """Reads requests of an API whose input is a list of messages."""

    def __init__(
        self,
        kind: type[R],
        limits: RequestLimits,
        read: Callable[[R], Shape[M]],
        with_messages: Callable[[Accepted, Sequence[Any]], Generator[None, None, Accepted]],
        besides: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda sent: sent,
    ) -> None:
        """`read` reads all but the messages, and `with_messages` adds them. `besides` gives a
        request's fields as far as they mean something."""
        assert kind.lists is not None, "messages are one"
        entries = {"messages": kind.lists.entries["messages"]}
        self._kind, self._messages = kind, kind.lists._replace(entries=entries)
        self._limits = limits
        self._read, self._with_messages, self._besides = read, with_messages, besides
        self._kept: Kept[M] = Kept()

    def steps(self, body: bytes) -> Generator[None, None, Shape[M]]:
        """Read a body, pausing after each bounded piece of work. Raises as `parse.steps` and
        `read` do."""
        sent = json_of(body)
        messages = sent.get("messages") if isinstance(sent, dict) else None
        fields = None
        if isinstance(messages, list) and messages and not _may_hold_secrets(sent):
            fields = written_fields({**self._besides(sent), "messages": None})
        key, shape = self._kept.find(fields)
        if shape is None:
            request = yield from steps_of(sent, len(body), self._kind, self._limits)
            shape = self._read(request)
            if fields is not None:
                self._kept.keep(key, shape, size_of(fields, None))
        else:
            sent = {"messages": messages}
            yield from read_lists(sent, len(body), self._limits, self._messages)
        accepted = yield from self._with_messages(shape.accepted, sent["messages"])
        if len(body) > SMALL_BYTES:  # one message may have thousands of parts
            yield
        return Shape(accepted, shape.stream, shape.more)


def _may_hold_secrets(sent: Mapping[str, Any]) -> bool:
    """Whether a request names a server of tools, which may need a key: such a one is not kept."""
    tools = sent.get("tools")
    named = tools if isinstance(tools, list) else ()
    of_servers = (isinstance(tool, dict) and tool.get("type") == "mcp" for tool in named)
    return bool(sent.get("mcp_servers")) or any(of_servers)
