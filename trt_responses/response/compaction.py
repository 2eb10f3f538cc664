"""Compaction: a conversation made short, in one sealed item that only its owner's model opens.

One run writes the summary. Its prompt begins with the conversation's own, so that the engine has
read nearly all of it, and ends with what is asked of the model. The item holds ids: the summary,
and the calls that the conversation ended in with what they gave. A summary that is empty, cut, or
only thought is not used: an extract stands in its place, and says so. Knows blocks, the renderer
and the sealer; knows no store and no HTTP.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.language.fragments import Closed, Opened, Text
from trt_responses.language.messages import Message
from trt_responses.response.accept.accepted import ThoughtBudget, ToolChoice
from trt_responses.response.log.machine import OPENS, Machine
from trt_responses.response.run.ending import End
from trt_responses.response.run.generation import Generation
from trt_responses.response.seal.compacted import SealedCompaction
from trt_responses.store.base import Block
from trt_responses.wire import events as e
from trt_responses.wire.listing import whole
from trt_responses.wire.output import OutputCompaction

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from trt_responses.language.base import Dialect
    from trt_responses.language.fragments import Fragment
    from trt_responses.response.accept.accepted import Accepted
    from trt_responses.response.prompt.prompt import Prompt
    from trt_responses.response.seal.sealer import Sealer
    from trt_responses.wire.response import Response

    Json = dict[str, Any]

logger = logging.getLogger(__name__)

SUMMARY_TOKENS, THOUGHT_TOKENS = 4096, 512
"""At most, of what is written and of the thought before it."""
ASKED = """This conversation becomes too long and goes on without its older messages. Write a \
summary that lets you go on with the work as if nothing were missing; whoever reads it sees the \
user's own messages and nothing else of what is above. Do not call tools and do not go on with the \
task now. Write, in this order: the goal and all that the user has asked for; what is done; files, \
names, commands, numbers and errors that matter, word for word; what was decided, and why; what is \
open, and the next step."""
SUMMARY = "Summary of the conversation so far, written when its older messages were left out:\n\n"
EXTRACT = (
    "The conversation so far was left out, and could not be summarised. An extract of it, cut "
    "short:\n\n"
)
EXTRACT_CHARS, LINE_CHARS = 12_000, 600
"""Of an extract, and of one message or call in it."""


def summarising(accepted: Accepted) -> Accepted:
    """The same request as it is steered: no tool is called, and the answer is plain text."""
    return replace(
        accepted,
        tools=(),
        built_in=(),
        choice=ToolChoice(frozenset(), narrows=True),
        answer=None,
        seals=False,
        included=frozenset(),
        thought=ThoughtBudget(THOUGHT_TOKENS, "reasoning.effort"),
        max_output_tokens=SUMMARY_TOKENS,
    )


class Compaction:
    """What is made short, and for whom."""

    def __init__(
        self,
        blocks: Sequence[Block],
        date: str,
        dialect: Dialect,
        sealer: Sealer,
        owner: str,
        model: str,
    ) -> None:
        self.blocks = blocks
        self.date = date
        self.renderer = dialect.renderer
        self.vocabulary = dialect.vocabulary
        self.sealer = sealer
        self.owner = owner
        self.model = model
        self._ids = b""
        """In the item, once it is made."""

    async def prompt_ids(self, prompt: Prompt) -> array[int]:
        """The conversation's prompt, and behind it what is asked."""
        return await self.renderer.behind(prompt.ids, Message("user", ASKED))

    async def sealed(self, summary: str | None) -> str:
        """The sealed content; without a summary, of an extract."""
        text = SUMMARY + summary if summary else EXTRACT + extract(self.blocks)
        ids = (await self.renderer.message(Message("user", text))).tobytes()
        tail = in_progress(self.blocks)
        self._ids = ids = ids + b"".join(block.ids for block in tail)
        calls = {block.call_id: block.callee for block in tail if block.call_id and block.callee}
        sealed = SealedCompaction(self.date, calls, ids)
        return self.sealer.seal_compaction(sealed, self.owner, self.model, self.vocabulary)

    def made(self, response: Response) -> list[Block]:
        """What the conversation goes on from."""
        return [Block("summary", orjson.dumps(item), self._ids) for item in response.output]

    def user_messages(self) -> list[Json]:
        """What users said, as it came."""
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


def extract(blocks: Sequence[Block]) -> str:
    """The newest of what users said and of the calls that were made, a line each, cut short."""
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
            said = " ".join(part.get("text", "") for part in parts)
            return f"{'User' if block.kind == 'user' else 'Assistant'}: {said}"[:LINE_CHARS]
        case "call":
            keys = ("arguments", "input", "action", "operation")
            asked = next(filter(None, map(item.get, keys)), "")
            return f"Call: {item.get('name', item['type'])} {asked}"[:LINE_CHARS]
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
        return self._mint("cmp")

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
            logger.warning("%s: no summary was written; an extract is used", self.log.response.id)
        content = await self.compaction.sealed(summary)
        item_id = self.machine.item_id()
        item = OutputCompaction(item_id, content, "summary" if summary else "extract")
        self.log.append(e.OutputItemAdded(0, OutputCompaction(item.id, "", item.created_by)))
        self.log.append(e.CompactionCompacting(item.id, 0))
        self.log.append(e.OutputItemDone(0, item))
        self.log.wake()
        return End("completed")
