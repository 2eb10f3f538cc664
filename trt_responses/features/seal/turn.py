"""The messages that a model wrote in a turn, for a client to carry and to bring back.

A client that stores nothing here sends a turn's items again; ids that are found by an item's own
words render it to what was generated, not to what a tokeniser would make of it. Knows items and
ids; knows no cipher and no owner.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trt_responses.prompt.action_text import action_text, arguments_of
from trt_responses.wire import hosted_items as h
from trt_responses.wire import items as i
from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIGEST_BYTES = 16
MAX_BYTES = 64 * 1024 * 1024
"""The largest turn in bytes, unpacked: more than any context."""
HEAD = struct.Struct(f"<{DIGEST_BYTES}sI")

Texts = tuple[str, ...]


class TurnMessage(NamedTuple):
    """A message of a turn: the digest of its item's content, and its ids."""

    digest: bytes
    ids: bytes
    """The ids, unsigned 32-bit, in this machine's byte order."""


class SealedTurn(NamedTuple):
    """The content of a reasoning item: its own message first, then others of its turn."""

    date: str
    """The date in the system message when it was written, so that a prefix outlives a midnight."""
    messages: tuple[TurnMessage, ...]
    vocabulary: str = ""
    """The vocabulary of the ids, by a dialect's name for it."""


def digest(item: i.InputItem | o.OutputItem) -> bytes | None:
    """The digest of an item's content, whatever its id; None for items that no model writes."""
    said = _said(item)
    if said is None:
        return None
    told = blake2b(digest_size=DIGEST_BYTES)
    for text in said:
        raw = text.encode("utf-8", "surrogatepass")
        told.update(len(raw).to_bytes(8, "little"))
        told.update(raw)
    return told.digest()


def _said(item: i.InputItem | o.OutputItem) -> Texts | None:
    match item:
        case i.Reasoning() | o.OutputReasoning():
            return ("reasoning", *(part.text for part in item.content or item.summary))
        case i.FunctionCall() | o.OutputFunctionCall():
            return ("function_call", item.call_id, item.name, _canonical(item.arguments))
        case i.CustomToolCall() | o.OutputCustomCall():
            return ("custom_tool_call", item.call_id, item.name, item.input)
        case h.CodeInterpreterCall() | o.OutputCodeCall():
            return ("code_interpreter_call", item.id or "", item.code or "")
        case h.WebSearchCall() | o.OutputWebSearchCall():
            return ("web_search_call", item.id or "", _action(item.action or {}))
        case h.McpCall() | o.OutputMcpCall():
            return ("mcp_call", item.id or "", _canonical(item.arguments))
        case h.McpApprovalRequest() | o.OutputMcpApprovalRequest():
            named = (item.id or "", item.server_label, item.name)
            return ("mcp_approval_request", *named, _canonical(item.arguments))
        case h.ShellCall() | h.LocalShellCall():
            return (item.type, item.call_id, _sorted(arguments_of(item.action)))
        case h.ApplyPatchCall():
            return (item.type, item.call_id, _sorted(arguments_of(item.operation)))
        case o.OutputShellCall() | o.OutputLocalShellCall() | o.OutputPatchCall():
            return (item.type, item.call_id, _sorted(action_text(item)))
        case o.OutputContainerShellCall():
            return (item.type, item.call_id, _sorted(arguments_of(vars(item.action))))
        case o.OutputMessage():
            return ("message", item.phase, *(part.text for part in item.content))
        case i.InputMessage(role="assistant"):
            texts = _texts(item)
            return None if texts is None else ("message", item.phase or "final_answer", *texts)
        case _:
            return None


def _sorted(action: str) -> str:
    """The JSON of an action, with its keys in order: clients' libraries reorder them."""
    return json.dumps(json.loads(action), sort_keys=True)


def _action(action: Mapping[str, Any]) -> str:
    """An action without what a client may not have been given, or has left out."""
    told = {key: value for key, value in action.items() if key != "sources" and value is not None}
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()


def _canonical(arguments: str) -> str:
    """Arguments without the spaces that clients put elsewhere when they read and write them
    again."""
    try:
        return orjson.dumps(orjson.loads(arguments)).decode()
    except ValueError:
        return arguments


def _texts(item: i.InputMessage) -> Texts | None:
    if isinstance(item.content, str):
        return (item.content,)
    texts = tuple(part.text for part in item.content if isinstance(part, i.TextPart))
    return texts if len(texts) == len(item.content) else None


def packed(turn: SealedTurn) -> bytes:
    """The bytes of a turn, the same on every machine."""
    head = (f"{turn.date} {turn.vocabulary}" if turn.vocabulary else turn.date).encode()
    parts = [bytes((len(head),)), head]
    for message in turn.messages:
        parts += (HEAD.pack(message.digest, len(message.ids)), swapped(message.ids))
    return zlib.compress(b"".join(parts), 6)


def unpacked(data: bytes) -> SealedTurn:
    """The turn in the bytes, which are authenticated and therefore not checked."""
    raw = zlib.decompressobj().decompress(data, MAX_BYTES)
    at = 1 + raw[0]
    (date, _, vocabulary), messages = raw[1:at].decode().partition(" "), []
    while at < len(raw):
        told, size = HEAD.unpack_from(raw, at)
        at += HEAD.size
        messages.append(TurnMessage(told, swapped(raw[at : at + size])))
        at += size
    return SealedTurn(date, tuple(messages), vocabulary)


def swapped(ids: bytes) -> bytes:
    """The ids turned between this machine's byte order and the one in the bytes."""
    if sys.byteorder == "little":
        return ids
    turned = array("I", ids)
    turned.byteswap()
    return turned.tobytes()


class OpenedTurns:
    """The turns that a request's items carry. Callers ask in the items' order."""

    def __init__(self, turns: Mapping[int, SealedTurn] | None = None) -> None:
        self._turns = turns or {}
        self._known: dict[bytes, TurnMessage] = {}
        # A turn may begin with a message that stands before the item that carries it.
        for place in sorted(self._turns, reverse=True):
            self._learn(self._turns[place].messages)

    @property
    def date(self) -> str | None:
        """The date of the conversation's first turn that is known."""
        return self._turns[min(self._turns)].date if self._turns else None

    def at(self, place: int, item: i.InputItem) -> TurnMessage | None:
        """The message that the model wrote for the item at this place; None if the item's words are
        others now."""
        if not self._turns:
            return None
        turn = self._turns.get(place)
        if turn is not None:
            self._learn(turn.messages)
            if isinstance(item, i.Reasoning) and not item.content and not item.summary:
                return turn.messages[0]
        told = digest(item)
        return self._known.get(told) if told is not None else None

    def _learn(self, messages: Iterable[TurnMessage]) -> None:
        self._known.update((message.digest, message) for message in messages)
