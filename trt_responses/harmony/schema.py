"""JSON schemas that guided output may follow: one table of keywords, and bounds for everything.

A schema is checked here before any token is generated. An engine's own compiler would leave a
keyword out that it does not know, or answer unguided; here each such keyword is an error that names
it and its place. What is left is what the engine is given, and what the answer is checked by.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from trt_responses.harmony.compile import Compiler
from trt_responses.harmony.jsontext import Check
from trt_responses.harmony.jsonvalue import ANY_OBJECT as ANY_OBJECT_NODE
from trt_responses.harmony.keywords import fault
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
    """Compiles schemas, each distinct one once."""

    def __init__(self, kept: int = CACHED) -> None:
        self._kept = kept
        self._known: OrderedDict[bytes, Form] = OrderedDict()

    def form(self, schema: Mapping[str, object], place: str) -> Form:
        """`place` is where the schema stands in the request. Raises `InvalidRequest`."""
        try:
            source = orjson.dumps(schema)
        except orjson.JSONEncodeError as error:
            raise fault(place, f"cannot be written as JSON: {error}") from None
        if len(source) > MAX_BYTES:
            raise fault(place, f"has {len(source)} bytes, more than {MAX_BYTES}")
        form = self._known.get(source)
        if form is None:
            form = self._known[source] = Form(*Compiler(schema, place).compiled())
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
        self._known.move_to_end(source)
        return form
