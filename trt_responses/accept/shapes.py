"""Requests whose like came before: most differ from an earlier one in their input alone.

Such a request is not read again, but for its input. Knows what `accept` reads of the input; knows
no field's meaning.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.frozen import bytes_of, replace
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.items import AdditionalTools, CompactionTrigger, ConfigurationUpdate
from trt_responses.wire.known_tools import Known
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.parse import read_lists, request_json, steps_of
from trt_responses.wire.request import Request

KNOWN_BYTES = 32 << 20
MOST_BYTES = 256 << 10
"""Of a request's fields: a digest of more would hold the loop for milliseconds."""
ENTRY_BYTES, TIMES_FIELDS, TIMES_TOOLS = 8 << 10, 8, 16
"""The most that an accepted request takes beside its fields, for each byte of what its key is made
of, and for each byte of its tools' JSON."""
OBJECT_BYTES, OPENINGS = 400, (b"{", b"[")
"""The most that a map or a list of its fields takes besides, and the bytes with which each begins
in what a key is made of. A text may have them too: it then counts for more."""
MEANS_MORE = (AdditionalTools, ConfigurationUpdate, CompactionTrigger)
"""Kinds of input items that change what a request asks for."""


class Shape(NamedTuple):
    """All that a request asks for, and whether it wants a stream."""

    accepted: Accepted
    stream: bool
    tools: Sequence[Any] | None
    """Those of the request, which the key of a shape names by their identity."""


class Shapes:
    """The requests that came lately, by a digest of all but their input: unknown fields are not
    kept. The longest unused go first."""

    def __init__(
        self,
        limits: RequestLimits,
        built_in: Mapping[str, Sequence[str]],
        known_bytes: int = KNOWN_BYTES,
    ) -> None:
        """`built_in` are the kinds of tools that the server runs, as for `accept`."""
        self._known_bytes = known_bytes
        self._limits = limits
        self._built_in = built_in
        self._bytes = 0
        self._shapes: OrderedDict[bytes, Shape] = OrderedDict()
        self._sizes: dict[bytes, int] = {}

    def steps(self, body: bytes, dialect: Dialect) -> Generator[None, None, Shape]:
        """Read a body, pausing after each bounded piece of work. Raises as `parse.steps` and
        `accept` do."""
        sent = request_json(body)
        fields = _fields(sent, dialect)
        key = None if fields is None else hashlib.sha256(fields).digest()
        if key is not None and (known := self._shapes.get(key)) is not None:
            self._shapes.move_to_end(key)
            if isinstance(sent["input"], list):
                yield from read_lists(sent, len(body), self._limits)
            if isinstance(sent["input"], str) or not _means_more(sent["input"]):
                return _with_input(known, sent)
        request = yield from steps_of(sent, len(body), Request, self._limits)
        accepted = accept(request, dialect, self._built_in)
        shape = Shape(accepted, bool(request.stream), request.tools)
        varies = not isinstance(request.input, str) and _means_more(request.input)
        if fields is not None and key is not None and key not in self._shapes and not varies:
            without = shape._replace(accepted=replace(accepted, input=""))
            self._keep(key, without, _size_of(fields, request.tools))
        return shape

    def _keep(self, key: bytes, shape: Shape, size_bytes: int) -> None:
        self._shapes[key], self._sizes[key] = shape, size_bytes
        self._bytes += size_bytes
        while self._bytes > self._known_bytes:
            oldest, _ = self._shapes.popitem(last=False)
            self._bytes -= self._sizes.pop(oldest)


def _size_of(fields: bytes, tools: Sequence[Any] | None) -> int:
    """The memory that a request takes at most."""
    objects = sum(map(fields.count, OPENINGS))
    size = ENTRY_BYTES + TIMES_FIELDS * len(fields) + OBJECT_BYTES * objects
    return size + TIMES_TOOLS * tools.sent_bytes if isinstance(tools, Known) else size


def _fields(sent: Any, dialect: Dialect) -> bytes | None:
    """All but the input and the response that is continued; None for what is not to be kept, such
    as tools with secrets, and for what is large."""
    if not isinstance(sent, dict) or not isinstance(sent.get("input"), (str, list)):
        return None
    tools, previous = sent.get("tools"), sent.get("previous_response_id")
    if not (tools is None or tools == [] or isinstance(tools, Known)):
        return None
    if previous is not None and not isinstance(previous, str):
        return None
    others = {"input": dialect.name, "previous_response_id": previous is None}
    try:
        fields = bytes_of({**sent, **others, "tools": id(tools) if tools else 0})
    except ValueError:
        return None
    return fields if len(fields) <= MOST_BYTES else None


def _means_more(items: Sequence[Any]) -> bool:
    return any(isinstance(item, MEANS_MORE) for item in items)


def _with_input(shape: Shape, sent: Mapping[str, Any]) -> Shape:
    accepted, previous = shape.accepted, sent.get("previous_response_id")
    if previous is None:
        return shape._replace(accepted=replace(accepted, input=sent["input"]))
    echo = replace(accepted.echo, previous_response_id=previous)
    accepted = replace(accepted, input=sent["input"], previous_response_id=previous, echo=echo)
    return shape._replace(accepted=accepted)
