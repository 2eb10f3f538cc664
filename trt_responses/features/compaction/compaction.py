"""Compaction: a conversation made short, in one sealed item that only its owner's model opens.

One run writes the summary. Its prompt begins with the conversation's own, which the engine has
mostly cached, and ends with the instructions. The item holds ids: the summary, and the calls that
the conversation ended in with their results. An extract replaces a summary that is empty, cut, or
only reasoning, and says so. Knows blocks, the renderer and the sealer; knows no store and no HTTP.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted, ThoughtBudget, ToolChoice
from trt_responses.dialect import Dialect
from trt_responses.features.compaction.items import CompactionCompacting, OutputCompaction
from trt_responses.features.listing.listing import whole
from trt_responses.features.references.sealed import SealedCompaction, Sealing
from trt_responses.frozen import replace as replace_frozen
from trt_responses.language.fragments import Closed, Fragment, Opened, Text
from trt_responses.language.messages import Message
from trt_responses.log.machine import OPENS, Machine
from trt_responses.prompt.prompt import Prompt
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation
from trt_responses.store import Block, Kind
from trt_responses.wire import events as e
from trt_responses.wire.output import OutputItem
from trt_responses.wire.response import lasting_json

Json = dict[str, Any]

logger = logging.getLogger(__name__)

ID_BYTES = 4
SUMMARY_TOKENS, THOUGHT_TOKENS = 4096, 512
"""At most, of what is written and of the thought before it."""
REQUEST = """This conversation becomes too long and goes on without its older messages. Write a \
summary that lets you go on with the work as if nothing were missing; its reader sees the \
user's own messages and nothing else of what is above. Do not call tools and do not go on with the \
task now. Write, in this order: the goal and all that the user wants; what is done; files, \
names, commands, numbers and errors that matter, word for word; what was decided, and why; what is \
open, and the next step."""
SUMMARY = "Summary of the conversation so far, written when its older messages were left out:\n\n"
EXTRACT = (
    "The conversation so far was left out, and could not be summarised. An extract of it, cut "
    "short:\n\n"
)
EXTRACT_CHARS, LINE_CHARS = 12_000, 600
"""Of an extract, and of one message or call in it."""
SPOKEN = ("user", "developer")
"""Kinds of messages that are not the model's, nor an answer to it."""


def summarising(accepted: Accepted) -> Accepted:
    """The same request as it is steered: no tool is called, and the answer is plain text."""
    return replace(
        accepted,
        tools=(),
        built_in=(),
        choice=ToolChoice(frozenset(), narrows=True),
        answer=None,
        seals=False,
        sampling=replace_frozen(accepted.sampling, logprobs=None),
        included=frozenset(),
        thought=ThoughtBudget(THOUGHT_TOKENS, "reasoning.effort"),
        max_output_tokens=SUMMARY_TOKENS,
    )


@dataclass
class Compaction:
    """What is compacted, and the owner."""

    blocks: Sequence[Block]
    date: str
    dialect: Dialect
    sealer: Sealing
    owner: str
    model: str
    message_tokens: int | None
    """With a number the item stands for everything before it and holds so many tokens of the
    users' messages; without, their messages stand beside it."""

    def __post_init__(self) -> None:
        alone = self.message_tokens is not None
        self._messages = self._messages_before() if alone else []
        self._ids = b""
        """In the item, once it is made."""

    async def prompt_ids(self, prompt: Prompt) -> array[int]:
        """The conversation's prompt, followed by the instructions."""
        assert prompt.continuation is not None, "a client's own ids are not compacted"
        return await prompt.continuation.behind(prompt.ids, Message("user", REQUEST))

    async def sealed(self, summary: str | None) -> str:
        """The sealed content; without a summary, of an extract."""
        text = SUMMARY + summary if summary else EXTRACT + extract(self.blocks)
        own_ids = (await self.dialect.renderer.message(Message("user", text))).tobytes()
        alone = self.message_tokens is not None
        tail = open_end(self.blocks) if alone else in_progress(self.blocks)
        calls = {block.call_id: block.callee for block in tail if block.call_id and block.callee}
        own: tuple[Kind, bytes] = ("summary", own_ids)
        parts = [*self._messages, own, *((block.kind, block.ids) for block in tail)]
        self._ids, places = self.dialect.renderer.joined(parts)
        spoken = [place for place in places if place[0] in SPOKEN]
        sealed = SealedCompaction(self.date, calls, self._ids, spoken if alone else None)
        return self.sealer.seal_compaction(sealed, self.owner, self.model, self.dialect.vocabulary)

    def block(self, item: OutputItem) -> Block:
        """What the conversation goes on from."""
        kind: Kind = "summary" if self.message_tokens is None else "context"
        return Block(kind, lasting_json(item), self._ids)

    def _messages_before(self) -> list[tuple[Kind, bytes]]:
        """The messages before the open end: all of developers, the newest of users."""
        found: list[tuple[Kind, bytes]] = []
        for block in self.blocks[: len(self.blocks) - len(open_end(self.blocks))]:
            if block.kind == "context":
                found = self._messages_in(block)
            elif block.kind in SPOKEN:
                found.append((block.kind, block.ids))
        left = (self.message_tokens or 0) * ID_BYTES
        kept: list[tuple[Kind, bytes]] = []
        for kind, ids in reversed(found):
            left -= len(ids) if kind == "user" else 0
            if kind != "user" or left >= 0:
                kept.append((kind, ids))
        return kept[::-1]

    def _messages_in(self, block: Block) -> list[tuple[Kind, bytes]]:
        """The messages of users and developers that an older compaction holds."""
        content = orjson.loads(block.item)["encrypted_content"]
        param = "context_management"
        opened = self.sealer.open_compaction(
            content, self.owner, self.model, param, self.dialect.vocabulary
        )
        return [(kind, opened.ids[start:end]) for kind, start, end in opened.messages or ()]

    def user_messages(self) -> list[Json]:
        """The users' messages, unchanged."""
        items = [orjson.loads(block.item) for block in self.blocks if block.kind == "user"]
        return [whole(item) for item in items]


def in_progress(blocks: Sequence[Block]) -> Sequence[Block]:
    """The calls that a conversation ends in, with the thought before them and their results."""
    first = len(blocks)
    while first and blocks[first - 1].kind == "result":
        first -= 1
    while first and blocks[first - 1].kind == "call":
        first -= 1
    if first == len(blocks):
        return ()
    while first and blocks[first - 1].kind in ("reasoning", "preamble"):
        first -= 1
    return blocks[first:]


def open_end(blocks: Sequence[Block]) -> Sequence[Block]:
    """The unanswered tail: the last user message or pending calls."""
    first = len(blocks)
    while first and blocks[first - 1].kind in SPOKEN:
        first -= 1
    return blocks[first:] or in_progress(blocks)


def can_be_shortened(blocks: Sequence[Block]) -> bool:
    """Whether there is anything that a compaction would leave out."""
    before = blocks[: len(blocks) - len(open_end(blocks))]
    for block in reversed(before):
        if block.kind in ("summary", "context"):
            return False
        if block.kind not in SPOKEN:
            return True
    return False


def extract(blocks: Sequence[Block]) -> str:
    """The latest user messages and calls, one truncated line each."""
    lines: list[str] = []
    size = 0
    for block in reversed(blocks):
        line = _line(block)
        size += len(line)
        if size > EXTRACT_CHARS:
            break
        if line:
            lines.append(line)
    return "\n".join(reversed(lines))


def _line(block: Block) -> str:
    item = orjson.loads(block.item)
    match block.kind:
        case "user" | "final":
            content = item.get("content") or ""
            parts = content if isinstance(content, list) else [{"text": content}]
            text = " ".join(part.get("text", "") for part in parts)
            return f"{'User' if block.kind == 'user' else 'Assistant'}: {text}"[:LINE_CHARS]
        case "call":
            keys = ("arguments", "input", "action", "operation")
            argument = next(filter(None, map(item.get, keys)), "")
            return f"Call: {item.get('name', item['type'])} {argument}"[:LINE_CHARS]
        case "result":
            return f"Result: {item.get('output', '')}"[:LINE_CHARS]
        case _:
            return ""


class SummaryMachine(Machine):
    """Gathers the answer, and tells the client nothing of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._answers = False
        self._text: list[bytes] = []
        self.whole = False
        """The answer came to its own end."""

    def item_id(self) -> str:
        return self.mint("cmp")

    @property
    def summary(self) -> str | None:
        """The answer, if there is a whole one that says something."""
        text: str = orjson.loads(b'"%b"' % b"".join(self._text))
        return text.strip() or None if self.whole else None

    def take(self, fragment: Fragment) -> None:
        match fragment:
            case Opened():
                opens = OPENS.get(fragment.channel, "final_answer")
                self._answers = opens == "final_answer" and not fragment.recipient
            case Text() if self._answers:
                self._text += fragment.pieces
            case Closed():
                self.whole = self.whole or (self._answers and fragment.whole)
                self._answers = False


class CompactionGeneration(Generation):
    """Writes a summary; the client gets one compaction item."""

    def __init__(self, *, compaction: Compaction, **parts: Any) -> None:
        super().__init__(**parts)
        self.compaction = compaction

    async def end(self) -> End:
        end = await super().end()
        if end.status in ("failed", "cancelled"):
            return end
        assert isinstance(self.machine, SummaryMachine)
        summary = self.machine.summary if end.status == "completed" else None
        if summary is None:
            logger.warning("compacting %s with an extract: no summary", self.log.response.id)
        content = await self.compaction.sealed(summary)
        item_id = self.machine.item_id()
        item = OutputCompaction(item_id, content, "summary" if summary else "extract")
        self.log.append(e.OutputItemAdded(0, OutputCompaction(item.id, "", item.created_by)))
        self.log.append(CompactionCompacting(item.id, 0))
        self.log.append(e.OutputItemDone(0, item))
        self.log.wake()
        return End("completed")
