"""Lists of tools that came before: an agent brings the same ones with each request.

A list is known by the bytes in which it was sent. When they come again they are not parsed, and
what others make of the list is made once, too. Knows no tool's meaning.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import bytes_of
from trt_responses.setup.server import Server
from trt_responses.wire.base import Read
from trt_responses.wire.known_tools import MEMORIES, NAME, Known, Sent
from trt_responses.wire.tools import FolderTool, OtherTool, Tool

KNOWN_BYTES = 2 << 20
"""JSON of all lists that are kept. What is made of a list takes some twelve times as much, and of
one that is made for it sixty times."""
MOST_BYTES = 128 << 10
"""The JSON of the longest list that is kept: to find its end, and to see that it is the request's,
takes some milliseconds."""
SECRETS = b'"domain_secrets"'
"""The key of a container's secrets; a list that has it is not kept."""
LIST = re.compile(rb'"tools"\s*+:\s*+(?=\[)')
"""What stands before a list of tools. It may stand before another one, or end a longer key: what is
found so is always compared with what the parser gives."""
LOOKED_AT = 64
"""Such places of a body at which a list is looked for: namespaces have lists within the list, and
items of the input may have some before it."""
BEGINNING = 64
"""The first bytes of a list, by which it is looked up; a shorter list is not kept."""
MOST_ALIKE = 32
"""Lists that are kept of those that begin alike, which are looked through one by one."""
STANDS_FOR = secrets.token_hex(16).encode()
"""A text that stands where a list stood. No client can know it."""
DECODER = json.JSONDecoder()


class SentTools(Sent):
    """A list of tools as it was parsed, and the bytes in which it was sent."""

    __slots__ = ("memory", "sent")

    def __init__(self, entries: Iterable[Any], sent: bytes, memory: KnownTools) -> None:
        super().__init__(entries)
        self.sent, self.memory = sent, memory

    def kept(self) -> Read[Any]:
        return self.memory.keep(self)


class KnownTools:
    """The lists that came lately, by their bytes. The longest unused go first."""

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lists: OrderedDict[bytes, Known[Tool]] = OrderedDict()
        self._by_beginning: dict[bytes, dict[bytes, None]] = {}

    def parsed(self, body: bytes, parse: Callable[[bytes], Any]) -> Any:
        """The JSON of a body. Its `tools` are a `Known` list if they came before, and `SentTools`
        where `keep` can keep them."""
        places = [*_places(body)]
        known = [(sent, start) for start in places if (sent := self._known_at(body, start))]
        if known:
            # One try, for it parses the whole body.
            sent, start = max(known, key=lambda one: len(one[0]))
            with suppress(InvalidRequest):  # which tells another place than the whole would
                fields = parse(b'%b"%b"%b' % (body[:start], STANDS_FOR, body[start + len(sent) :]))
                if isinstance(fields, dict) and fields.get("tools") == STANDS_FOR.decode():
                    fields["tools"] = self._used(sent)
                    return fields
        fields = parse(body)
        tools = fields.get("tools") if isinstance(fields, dict) else None
        if isinstance(tools, list) and (sent := _sent(tools, body, places, parse)):
            fields["tools"] = SentTools(tools, sent, self)
        return fields

    def keep(self, tools: SentTools) -> Read[Tool]:
        """The list, now that its entries are read; one that is kept from now on, if it may be."""
        sent = tools.sent
        if len(sent) < BEGINNING or SECRETS in sent or not all(map(_may_be_kept, tools)):
            return Read(tools)
        kept: Known[Tool] = Known(tools, len(sent))
        alike = self._by_beginning.setdefault(sent[:BEGINNING], {})
        if sent not in self._lists:
            alike[sent] = None
            self._bytes += len(sent)
        self._lists[sent] = kept
        if len(alike) > MOST_ALIKE:
            self._drop(next(iter(alike)))
        while self._bytes > self._limit_bytes:
            self._drop(next(iter(self._lists)))
        return kept

    def _used(self, sent: bytes) -> Known[Tool]:
        """A list that is used again, and is the last to go from now on."""
        self._lists.move_to_end(sent)
        alike = self._by_beginning[sent[:BEGINNING]]
        alike[sent] = alike.pop(sent)
        return self._lists[sent]

    def _drop(self, sent: bytes) -> None:
        del self._lists[sent]
        self._bytes -= len(sent)
        alike = self._by_beginning[sent[:BEGINNING]]
        del alike[sent]
        if not alike:
            del self._by_beginning[sent[:BEGINNING]]

    def _known_at(self, body: bytes, start: int) -> bytes | None:
        """The known list that stands there. No list begins with another one, so there is one."""
        for sent in self._by_beginning.get(body[start : start + BEGINNING], ()):
            if body.startswith(sent, start):
                return sent
        return None


KNOWN = KnownTools()


def _may_be_kept(tool: Tool) -> bool:
    """Whether a tool is known to hold no secrets."""
    if not isinstance(tool, FolderTool) or not tool.secret_fields:
        return not isinstance(tool, OtherTool)
    return not tool.model_extra and all(getattr(tool, one) is None for one in tool.secret_fields)


def _places(body: bytes) -> Iterator[int]:
    """The places at which lists of tools begin."""
    at = 0
    for _ in range(LOOKED_AT):
        if (at := body.find(NAME, at)) < 0:
            return
        if found := LIST.match(body, at):
            yield found.end()
        at += len(NAME)


def _sent(
    tools: list[Any], body: bytes, places: Iterable[int], parse: Callable[[bytes], Any]
) -> bytes:
    """The bytes of these tools in the body; empty if they are not found or too long."""
    end, left, expected = 0, MOST_BYTES, None
    for start in places:
        if start < end:  # within the list before
            continue
        # JSON's own characters are ASCII: in Latin-1, whose characters are one byte each, a list
        # has the same end as in UTF-8.
        try:
            found, length = DECODER.raw_decode(body[start : start + left].decode("latin-1"))
            end = start + length
            left -= length
            if len(found) == len(tools):
                expected = expected or bytes_of(tools)
                if bytes_of(parse(sent := body[start:end])) == expected:
                    return sent
        except (InvalidRequest, ValueError, RecursionError):
            return b""
    return b""


def install(server: Server) -> None:
    MEMORIES[:] = [KNOWN]
