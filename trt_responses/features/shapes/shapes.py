"""Requests whose like came before: most differ from an earlier one in their input alone.

Such a request is not read again, but for its input. Knows what `accept` reads of the input; knows
no field's meaning.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.frozen import bytes_of, replace
from trt_responses.wire.dialect import Dialect
from trt_responses.wire.known_tools import Known
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.parse import read_lists, request_json, steps_of
from trt_responses.wire.past_calls import Amending
from trt_responses.wire.request import Request

M = TypeVar("M")

KNOWN_BYTES = 32 << 20
MOST_BYTES = 256 << 10
"""Of a request's fields: a digest of more would hold the loop for milliseconds."""
SHORT_BYTES = 1024
"""Of fields that are a key themselves; a digest takes longer."""
ENTRY_BYTES, TIMES_FIELDS, TIMES_TOOLS = 8 << 10, 8, 16
"""The most that an accepted request takes beside its fields, for each byte of what its key is made
of, and for each byte of its tools' JSON."""
OBJECT_BYTES, OPENINGS = 400, (b"{", b"[")
"""The most that a map or a list of its fields takes besides, and the bytes with which each begins
in what a key is made of. A text may have them too: it then counts for more."""


class Shape(NamedTuple, Generic[M]):
    """All that a request asks for, and whether it wants a stream."""

    accepted: Accepted
    stream: bool
    more: M
    """What else the reply depends on; of a response, the request's own tools, which the key of a
    shape names by their identity."""


ResponseShape = Shape[Sequence[Any] | None]


class Kept(Generic[M]):
    """The requests that came lately, by a digest of all but their input: unknown fields are not
    kept. The longest unused go first."""

    def __init__(self, known_bytes: int = KNOWN_BYTES) -> None:
        self._known_bytes = known_bytes
        self._bytes = 0
        self._shapes: OrderedDict[bytes, Shape[M]] = OrderedDict()
        self._sizes: dict[bytes, int] = {}

    def find(self, fields: bytes | None) -> tuple[bytes, Shape[M] | None]:
        """The key of a request with such fields, and its like, if one is kept."""
        if fields is None:
            return b"", None
        key = fields if len(fields) <= SHORT_BYTES else hashlib.sha256(fields).digest()
        if (known := self._shapes.get(key)) is not None:
            self._shapes.move_to_end(key)
        return key, known

    def keep(self, key: bytes, shape: Shape[M], size_bytes: int) -> None:
        if key in self._shapes:
            return
        self._shapes[key], self._sizes[key] = shape, size_bytes
        self._bytes += size_bytes
        while self._bytes > self._known_bytes:
            oldest, _ = self._shapes.popitem(last=False)
            self._bytes -= self._sizes.pop(oldest)


class Shapes:
    """Reads requests of the Responses API."""

    def __init__(
        self,
        limits: RequestLimits,
        built_in: Mapping[str, Sequence[str]],
        known_bytes: int = KNOWN_BYTES,
    ) -> None:
        """`built_in` are the kinds of tools that the server runs, as for `accept`."""
        self._limits = limits
        self._built_in = built_in
        self._kept: Kept[Sequence[Any] | None] = Kept(known_bytes)

    def steps(self, body: bytes, dialect: Dialect) -> Generator[None, None, ResponseShape]:
        """Read a body, pausing after each bounded piece of work. Raises as `parse.steps` and
        `accept` do."""
        sent = request_json(body)
        fields = _fields(sent, dialect)
        key, known = self._kept.find(fields)
        if known is not None:
            if isinstance(sent["input"], list):
                yield from read_lists(sent, len(body), self._limits)
            if isinstance(sent["input"], str) or not _means_more(sent["input"]):
                return _with_input(known, sent)
        request = yield from steps_of(sent, len(body), Request, self._limits)
        accepted = accept(request, dialect, self._built_in)
        tools: Sequence[Any] | None = request.tools
        shape = Shape(accepted, bool(request.stream), tools)
        varies = not isinstance(request.input, str) and _means_more(request.input)
        if fields is not None and not varies:
            without = shape._replace(accepted=replace(accepted, input=""))
            self._kept.keep(key, without, size_of(fields, tools))
        return shape


def size_of(fields: bytes, tools: Sequence[Any] | None) -> int:
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
    known, first = id(tools) if tools else 0, previous is None
    return written_fields(
        {**sent, "input": dialect.name, "previous_response_id": first, "tools": known}
    )


def written_fields(fields: Mapping[str, Any]) -> bytes | None:
    """The bytes of a request's fields; None for what is not to be kept."""
    try:
        written = bytes_of(fields)
    except ValueError:
        return None
    return written if len(written) <= MOST_BYTES else None


def _means_more(items: Sequence[Any]) -> bool:
    return any(isinstance(item, Amending) for item in items)


def _with_input(shape: ResponseShape, sent: Mapping[str, Any]) -> ResponseShape:
    accepted, previous = shape.accepted, sent.get("previous_response_id")
    if previous is None:
        return Shape(replace(accepted, input=sent["input"]), shape.stream, shape.more)
    echo = replace(accepted.echo, previous_response_id=previous)
    accepted = replace(accepted, input=sent["input"], previous_response_id=previous, echo=echo)
    return shape._replace(accepted=accepted)
