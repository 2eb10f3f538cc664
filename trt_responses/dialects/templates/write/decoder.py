"""Decodes stored ids into messages for a chat template.

For hosted calls and compactions the ids hold more than the items that clients receive. Works with
readers and blocks; renders nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import orjson

from trt_responses.dialect import Entry
from trt_responses.dialects.templates.families import Family
from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.dialects.templates.tokeniser import Tokeniser
from trt_responses.dialects.templates.write.parts import split_parts
from trt_responses.language.fragments import Fragment, Opened, Text
from trt_responses.language.messages import FunctionTool, Message
from trt_responses.store import Kind

NewReader = Callable[[Sequence[int], Sequence[FunctionTool]], TemplateReader]
"""Creates a reader of the output after these prompt ids, for these tools."""


class Decoder:
    """The decoder of one vocabulary."""

    def __init__(self, tokeniser: Tokeniser, family: Family, new_reader: NewReader) -> None:
        self._tokeniser = tokeniser
        self._new_reader = new_reader
        mark = None if family.thought is None else tokeniser.id_of(family.thought[0])
        self._thought = array("I", [] if mark is None else [mark])

    def decode(self, entries: Sequence[Entry], tools: Sequence[FunctionTool]) -> list[Entry]:
        """The entries, with each block of several messages split into one entry per message."""
        decoded: list[Entry] = []
        for entry in entries:
            calls = any(one.recipient and one.role == "assistant" for one in entry.messages)
            several = calls or entry.kind in ("summary", "context")
            parts = split_parts(self._tokeniser, entry.ids) if several else None
            if parts is None:
                decoded.append(entry)
                continue
            name = None
            for kind, ids in parts:
                part = self._part(kind, ids, entry, tools, name)
                name = next((m.recipient for e in part for m in e.messages if m.recipient), name)
                decoded += part
        return decoded

    def _part(
        self,
        kind: Kind,
        ids: array[int],
        entry: Entry,
        tools: Sequence[FunctionTool],
        callee: str | None,
    ) -> list[Entry]:
        """The entries of one part of a block."""
        text = self._tokeniser.text(ids[:-1])
        match kind:
            case "user" | "summary" | "context":
                return [Entry("user", [Message("user", text)], None, b"")]
            case "developer":
                return [Entry("developer", [Message("developer", text)], None, b"")]
            case "result":
                return [Entry("result", [Message("tool", text, name=callee)], None, b"")]
        begun = kind == "reasoning" and ids[:1] != self._thought
        written = self.messages(ids, self._thought if begun else array("I"), tools)
        if kind == "call" and not any(one.messages[0].recipient for one in written):
            name, _, arguments = text.partition("\n")  # not the model's own ids
            text = entry.messages[0].text if entry.messages else arguments
            message = Message("assistant", text, None, "commentary", name)
            return [Entry("call", [message], None, b"")]
        return written

    def messages(
        self, ids: array[int], before: array[int], tools: Sequence[FunctionTool]
    ) -> list[Entry]:
        """The model's messages in these ids, one entry each."""
        reader = self._new_reader(before, tools)
        found = messages_in((*reader.feed(ids), *reader.finish(stopped=True)))
        return [
            Entry(
                "call"
                if head.recipient
                else "reasoning"
                if head.channel == "analysis"
                else "final",
                [Message("assistant", orjson.loads(b'"%b"' % b"".join(text)), None, *head)],
                None,
                array("I", reader.kept[span.start : span.end]).tobytes(),
            )
            for (head, text), span in zip(found, reader.messages, strict=True)
        ]


def messages_in(fragments: Sequence[Fragment]) -> list[tuple[Opened, list[bytes]]]:
    """The header of each message, and its text as pieces of JSON."""
    found: list[tuple[Opened, list[bytes]]] = []
    for fragment in fragments:
        if isinstance(fragment, Opened):
            found.append((fragment, []))
        elif isinstance(fragment, Text):
            found[-1][1].extend(fragment.pieces)
    return found
