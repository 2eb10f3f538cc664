"""Renders conversations by a checkpoint's template: whole, and in blocks where ids are known.

The template writes all of a conversation anew for each prompt. Within a tool loop the model's own
ids take the place of what it wrote for them, if both read back to the same fragments; so a prompt
begins with the ids that the engine has cached. Pieces between control ids are tokenised once.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.dialect import uncompacted
from trt_responses.dialects.templates.write.continuation import Continuation
from trt_responses.dialects.templates.write.conversation import Conversation, tools_told
from trt_responses.dialects.templates.write.held import joined, parted
from trt_responses.dialects.templates.write.spoken import Spoken
from trt_responses.dialects.templates.write.template import TemplateError
from trt_responses.errors import InvalidRequest, refuse_longer
from trt_responses.language.fragments import Opened, Text
from trt_responses.tasks import give_way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Entries, Entry, Place
    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.tokeniser import Tokeniser
    from trt_responses.dialects.templates.write.render_process import TemplateProcess
    from trt_responses.dialects.templates.write.spoken import NewReader
    from trt_responses.language.messages import Developer, FunctionTool, Message, System
    from trt_responses.language.reader import Span
    from trt_responses.store import Block, Kind

    Json = dict[str, Any]

CACHE_CHARS = 16 << 20
AT_ONCE_CHARS = 4096
"""Texts that are tokenised where they are, in a millisecond or so; longer ones in a thread."""
ASKED: list[Json] = [{"role": "user", "content": "?"}]


class Renderer:
    """One checkpoint's."""

    def __init__(
        self,
        template: TemplateProcess,
        tokeniser: Tokeniser,
        family: Family,
        stop_ids: Sequence[int],
        new_reader: NewReader,
    ) -> None:
        self._template = template
        self._control = {text: token_id for token_id, text in tokeniser.controls.items()}
        self._tokeniser = tokeniser
        self._family = family
        self._ends = frozenset(stop_ids)
        self._end = stop_ids[0]
        self._new_reader = new_reader
        self.spoken: Spoken = Spoken(tokeniser, family, new_reader)
        self._openings: dict[bool, array[int]] = {}
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._chars = 0

    async def pause(self) -> None:
        """Let other tasks run."""
        await give_way()

    async def message(self, message: Message, at_most: int | None = None) -> array[int]:
        """The text and a turn's end: a template writes what stands around it. Never nothing, for a
        block without ids says nothing. Before a call's arguments stands its name."""
        is_call = message.role == "assistant" and message.recipient is not None
        text = f"{message.recipient}\n{message.text}" if is_call else message.text
        ids = await self._plain(text)
        ids.append(self._end)
        refuse_longer(len(ids), at_most)
        return ids

    async def preface(self, system: System, developer: Developer, at_most: int | None) -> int:
        """Tokens of a prompt in which nobody has said anything."""
        told = Conversation(developer, (), self._family).messages
        return len(await self._rendered(told + ASKED, developer, thinks=system.thinks))

    def keeps(self, kinds: Sequence[Kind]) -> list[bool]:
        """All but what a compaction stands for: which thoughts are shown is the template's
        affair."""
        return uncompacted(kinds)

    def own_ids(self, kept: Sequence[int], span: Span) -> array[int]:
        """A message's ids as the model wrote them, marks among them; a call that was answered here
        with its answer."""
        ids = array("I", kept[span.start : span.end])
        if not span.answer_end:
            return ids
        parts: Sequence[tuple[Kind, bytes]]
        parts = (("call", ids.tobytes()), ("result", array("I", span.stored_answer).tobytes()))
        return array("I", self.joined(parts)[0])

    def answer_in(self, block: bytes) -> list[int] | None:
        """The part of a call's block that is a result, without the id that ends it."""
        for kind, ids in parted(self._tokeniser, block) or ():
            if kind == "result":
                return ids[:-1].tolist()
        return None

    def joined(self, parts: Sequence[tuple[Kind, bytes]]) -> tuple[bytes, list[Place]]:
        """Blocks as one that says which is which."""
        return joined(self._tokeniser, parts)

    def continuation(
        self,
        prompt: array[int],
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
    ) -> Continuation:
        """What goes on behind a prompt, which renders the whole of it again."""
        return Continuation(self, prompt, system, developer, blocks, entries)

    async def prompt(
        self,
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
        at_most: int | None,
    ) -> array[int]:
        """A whole prompt, with the model's own ids behind the last user's message."""
        said = self.spoken.told(entries([block for block in blocks if block.ids]), developer.tools)
        return await self.whole(system, developer, said, at_most)

    async def whole(
        self,
        system: System,
        developer: Developer,
        said: Sequence[Entry],
        at_most: int | None = None,
        *,
        prompts: bool = True,
    ) -> array[int]:
        """A conversation, which `prompts` the model to go on."""
        told = Conversation(developer, said, self._family)
        ids = await self._rendered(told.messages, developer, thinks=system.thinks, prompts=prompts)
        refuse_longer(len(ids), at_most)
        last = max((n for n, m in enumerate(told.messages) if m["role"] == "user"), default=-1)
        old = sum(message["role"] == "assistant" for message in told.messages[: last + 1])
        if any(told.own[old:]):
            opening = await self.opening(thinks=system.thinks)
            if len(_places(ids, self._author(opening))) == len(told.own) + prompts:
                ids = self._with_own(ids, told.own, old, opening, developer.tools)
        return ids

    async def asked(self, text: str) -> array[int]:
        """A user's message alone."""
        return await self._rendered([{"role": "user", "content": text}], None, thinks=True)

    # --- the model's own ids ------------------------------------------------------------------

    async def opening(self, *, thinks: bool) -> array[int]:
        """What a prompt ends with: the author of the model's message, and a thought's mark if the
        template writes one."""
        if thinks not in self._openings:
            ending = await self._rendered(ASKED, None, thinks=thinks)
            without = await self._rendered(ASKED, None, thinks=thinks, prompts=False)
            self._openings[thinks] = ending[len(without) :]
        return self._openings[thinks]

    def _with_own(
        self,
        ids: array[int],
        own: Sequence[bytes],
        old: int,
        opening: array[int],
        tools: Sequence[FunctionTool],
    ) -> array[int]:
        """The prompt with the turns from number `old` on as the model wrote them, as far as they
        say the same."""
        author = self._author(opening)
        places = _places(ids, author)
        joined, taken = array("I"), 0
        for number in range(old, len(own)):
            begin = places[number] + len(author)
            end = next((n for n in range(begin, len(ids)) if ids[n] in self._ends), len(ids))
            written = array("I")
            written.frombytes(own[number])
            cut = len(written) and written[-1] in self._tokeniser.controls
            cut = cut and written[-1] not in self._ends
            while len(written) and written[-1] in self._ends:
                written.pop()
            if not len(written) or not self._same(ids[begin:end], opening, author, written, tools):
                continue
            joined += ids[taken : places[number]] + opening + written
            taken = end
            if cut:  # at a call's mark, behind which the template may write white space
                while taken > begin and self._tokeniser.bytes_of(ids[taken - 1]).isspace():
                    taken -= 1
        return joined + ids[taken:]

    def _author(self, opening: array[int]) -> array[int]:
        """The part of what a prompt ends with that stands before each of the model's messages."""
        thought = self._family.thought
        mark = None if thought is None else self._tokeniser.id_of(thought[0])
        closed = None if thought is None else self._tokeniser.id_of(thought[1])
        return opening[: next((n for n, i in enumerate(opening) if i in (mark, closed)), None)]

    def _same(
        self,
        rendered: array[int],
        opening: array[int],
        author: array[int],
        written: array[int],
        tools: Sequence[FunctionTool],
    ) -> bool:
        """Whether the template's ids of a turn and the model's read back to the same."""
        ours = self._said(opening, written, tools)
        return ours is not None and ours == self._said(author, rendered, tools)

    def _said(
        self, before: array[int], ids: array[int], tools: Sequence[FunctionTool]
    ) -> list[object] | None:
        """What a turn's ids say, message by message; None where they had to be mended."""
        reader = self._new_reader(before, tools)
        said: list[object] = []
        text: list[bytes] = []
        for fragment in (*reader.feed(ids), *reader.feed((self._end,))):
            if isinstance(fragment, Opened):
                said.append(fragment)
                text = []
                said.append(text)
            elif isinstance(fragment, Text):
                text += fragment.pieces
        if any(span.repaired for span in reader.messages):
            return None
        return [_value(part) if isinstance(part, list) else part for part in said]

    # --- ids ----------------------------------------------------------------------------------

    async def _rendered(
        self,
        messages: Sequence[Json],
        developer: Developer | None,
        *,
        thinks: bool,
        prompts: bool = True,
    ) -> array[int]:
        switch, marks = self._family.switch, self._tokeniser.marks
        switches = {} if switch is None else {switch.name: switch.on if thinks else switch.off}
        tools = () if developer is None else developer.tools
        try:
            text = await self._template.render(
                marks.shielded_messages(messages),
                marks.shielded_tools(tools_told(tools)) or None,
                add_generation_prompt=prompts,
                **switches,
            )
        except TemplateError as error:
            raise InvalidRequest(
                f"The model's chat template does not take this conversation: {error}",
                param="input",
                code="template_refused",
            ) from None
        ids = array("I")
        for piece, is_control in self._tokeniser.pieces(text):
            if is_control:
                ids.append(self._control[piece])
            else:
                ids += await self._plain(piece)
        return ids

    async def _plain(self, text: str) -> array[int]:
        """A text's ids, none of which is a control id; what was tokenised lately is known."""
        if (known := self._ids.get(text)) is not None:
            self._ids.move_to_end(text)
            return known[:]
        if len(text) > AT_ONCE_CHARS:
            found = await asyncio.to_thread(self._tokeniser.encode_plain, text)
        else:
            found = self._tokeniser.encode_plain(text)
        ids = array("I", found)
        if text not in self._ids:
            self._ids[text] = ids
            self._chars += len(text)
        while self._chars > CACHE_CHARS:
            self._chars -= len(self._ids.popitem(last=False)[0])
        return ids[:]


def _places(ids: array[int], sought: array[int]) -> list[int]:
    """Where a row of ids stands in another."""
    whole, part, size = ids.tobytes(), sought.tobytes(), ids.itemsize
    found, at = [], whole.find(part)
    while at >= 0 and part:
        if at % size == 0:
            found.append(at // size)
        at = whole.find(part, at + 1)
    return found


def _value(pieces: Sequence[bytes]) -> object:
    """A text as it is told, or what it says, if it is JSON."""
    text = orjson.loads(b'"%b"' % b"".join(pieces))
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
