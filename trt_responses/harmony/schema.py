"""JSON schemas that guided output may follow: one table of keywords, and bounds for everything.

A schema is checked here before any token is generated. An engine's own compiler would leave a
keyword out that it does not know, or answer unguided; here each such keyword is an error that names
it and its place. What is left is what the engine is given, and what the answer is checked by.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.harmony.compile import Compiler
from trt_responses.harmony.jsontext import Check
from trt_responses.harmony.jsonvalue import ANY_OBJECT as ANY_OBJECT_NODE
from trt_responses.harmony.keywords import Allowance, fault
from trt_responses.harmony.whitelist import CACHED, MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.harmony.jsontext import Node


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A schema that is honoured: the text that guides an engine, and what a check follows."""

    source: str
    node: Node

    def check(self) -> Check:
        return Check(self.node)


ANY_OBJECT = Form('{"type":"object"}', ANY_OBJECT_NODE)


class Forms:
    """Compiles schemas, each distinct one once. May be used by several threads."""

    def __init__(self, kept: int = CACHED) -> None:
        self._kept = kept
        self._known: OrderedDict[bytes, Form] = OrderedDict()
        self._lock = Lock()

    def form(
        self, schema: Mapping[str, object], place: str, allowance: Allowance | None = None
    ) -> Form:
        """`place` is where the schema stands in the request. Raises `InvalidRequest`."""
        source = _source(schema, place)
        form = self._found(source)
        if form is None:
            form = Form(*Compiler(schema, place, allowance or Allowance()).compiled())
            self._keep(source, form)
        return form

    def unknown_bytes(self, schema: Mapping[str, object], place: str) -> int:
        """How much there is to compile; 0 for what is known, and for what is refused at once."""
        try:
            source = _source(schema, place)
        except InvalidRequest:
            return 0
        return 0 if self._found(source) else len(source)

    def _found(self, source: bytes) -> Form | None:
        with self._lock:
            if (form := self._known.get(source)) is not None:
                self._known.move_to_end(source)
        return form

    def _keep(self, source: bytes, form: Form) -> None:
        with self._lock:
            self._known[source] = form
            if len(self._known) > self._kept:
                self._known.popitem(last=False)


def _source(schema: Mapping[str, object], place: str) -> bytes:
    try:
        source = orjson.dumps(schema)
    except orjson.JSONEncodeError as error:
        raise fault(place, f"cannot be written as JSON: {error}") from None
    if len(source) > MAX_BYTES:
        raise fault(place, f"has {len(source)} bytes, more than {MAX_BYTES}")
    return source
