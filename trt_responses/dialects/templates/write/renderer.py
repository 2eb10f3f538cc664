"""Renders conversations with a checkpoint's template, and keeps known ids of blocks.

The template renders the whole conversation for each prompt. In a tool loop the model's own ids
replace the rendered ones if both read back to the same fragments, so that a prompt begins with the
engine's cached prefix. Pieces between control ids are cached after they are tokenised.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.dialect import Answered, Entry, uncompacted
from trt_responses.dialects.templates.write.conversation import (
    EXAMPLE,
    Conversation,
    call_example,
    tool_specs,
)
from trt_responses.dialects.templates.write.decoder import Decoder, messages_in
from trt_responses.dialects.templates.write.parts import join_parts, split_parts
from trt_responses.dialects.templates.write.template import TemplateError
from trt_responses.errors import InvalidRequest, refuse_longer
from trt_responses.tasks import give_way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Entries, Place
    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.tokeniser import Tokeniser
    from trt_responses.dialects.templates.write.decoder import NewReader
    from trt_responses.dialects.templates.write.render_process import TemplateProcess
    from trt_responses.language.messages import Developer, FunctionTool, Message, System
    from trt_responses.language.reader import Reader, Span
    from trt_responses.store import Block, Kind

    Json = dict[str, Any]

CACHE_CHARS = 16 << 20
AT_ONCE_CHARS = 4096
"""Longest text tokenised on the event loop, in about a millisecond; longer ones use a thread."""
CLOSING_IDS = 32
"""Maximum ids of the mark behind a thought and the white space there."""
QUESTION: list[Json] = [{"role": "user", "content": "?"}]


class Renderer:
    """The renderer of one checkpoint."""

    def __init__(
        self,
        template: TemplateProcess,
        tokeniser: Tokeniser,
        family: Family,
        stop_ids: Sequence[int],
        new_reader: NewReader,
    ) -> None:
        self._template = template
        self._tokeniser = tokeniser
        self._family = family
        self._ends = frozenset(stop_ids)
        self._end = stop_ids[0]
        self._new_reader = new_reader
        self.decoder: Decoder = Decoder(tokeniser, family, new_reader)
        self._openings: dict[bool, array[int]] = {}
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._chars = 0

    async def pause(self) -> None:
        """Let other tasks run."""
        await give_way()

    async def message(self, message: Message, at_most: int | None = None) -> array[int]:
        """The ids of the text and a turn's end; a template renders the marks around it. Never
        empty, since blocks without ids are ignored. A call's name precedes its arguments."""
        is_call = message.role == "assistant" and message.recipient is not None
        text = f"{message.recipient}\n{message.text}" if is_call else message.text
        ids = await self._plain(text)
        ids.append(self._end)
        refuse_longer(len(ids), at_most)
        return ids

    async def preface(self, system: System, developer: Developer, at_most: int | None) -> int:
        """The number of tokens of a prompt without a conversation."""
        messages = Conversation(developer, (), self._family).messages
        return len(await self._rendered(messages + QUESTION, developer, thinks=system.thinks))

    def keeps(self, kinds: Sequence[Kind]) -> list[bool]:
        """All messages that no compaction replaces; the template selects the thoughts itself."""
        return uncompacted(kinds)

    def own_ids(self, kept: Sequence[int], span: Span) -> array[int]:
        """A message's ids as the model wrote them, with marks; for a hosted call, with its
        result."""
        ids = array("I", kept[span.start : span.end])
        if not span.answer_end:
            return ids
        parts: Sequence[tuple[Kind, bytes]]
        parts = (("call", ids.tobytes()), ("result", array("I", span.stored_answer).tobytes()))
        return array("I", self.joined(parts)[0])

    def answer_in(self, block: bytes) -> list[int] | None:
        """The result in a call's block, without the id that ends it."""
        for kind, ids in split_parts(self._tokeniser, block) or ():
            if kind == "result":
                return ids[:-1].tolist()
        return None

    def joined(self, parts: Sequence[tuple[Kind, bytes]]) -> tuple[bytes, list[Place]]:
        """The blocks joined with their heads, and the place of each."""
        return join_parts(self._tokeniser, parts)

    def continuation(
        self,
        prompt: array[int],
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
    ) -> Continuation:
        """The continuation of a prompt, which renders the whole conversation again."""
        return Continuation(self, prompt, system, developer, blocks, entries)

    async def prompt(
        self,
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
        at_most: int | None,
    ) -> array[int]:
        """A whole prompt, with the model's own ids after the last user message."""
        stored = entries([block for block in blocks if block.ids])
        history = self.decoder.decode(stored, developer.tools)
        return await self.whole(system, developer, history, at_most)

    async def whole(
        self,
        system: System,
        developer: Developer,
        history: Sequence[Entry],
        at_most: int | None = None,
        *,
        prompts: bool = True,
    ) -> array[int]:
        """The ids of a conversation; with `prompts`, they end where the model continues."""
        shown = Conversation(developer, history, self._family)
        ids = await self._rendered(shown.messages, developer, thinks=system.thinks, prompts=prompts)
        refuse_longer(len(ids), at_most)
        last = max((n for n, m in enumerate(shown.messages) if m["role"] == "user"), default=-1)
        old = sum(message["role"] == "assistant" for message in shown.messages[: last + 1])
        if any(shown.own[old:]):
            opening = await self.opening(thinks=system.thinks)
            if len(_places(ids, self._author(opening))) == len(shown.own) + prompts:
                ids = self._with_own(ids, shown.own, old, opening, developer.tools)
        return ids

    async def user_prompt(self, text: str) -> array[int]:
        """The prompt for a single user message."""
        return await self._rendered([{"role": "user", "content": text}], None, thinks=True)

    def reopened(self, kept: Sequence[int]) -> array[int]:
        """The ids of a turn without its end, with its thought closed."""
        ids = array("I", kept)
        while ids and ids[-1] in self._ends:
            ids.pop()
        closing = "" if self._family.thought is None else self._family.thought[1]
        if not self._tokeniser.text(ids[-CLOSING_IDS:].tolist()).rstrip().endswith(closing):
            ids.extend(self._tokeniser.encode(f"{closing}\n\n"))
        return ids

    # --- the model's own ids ------------------------------------------------------------------

    async def opening(self, *, thinks: bool) -> array[int]:
        """The end of a prompt: the author of the model's message, and a thought's mark if the
        template writes one."""
        if thinks not in self._openings:
            ending = await self._rendered(QUESTION, None, thinks=thinks)
            without = await self._rendered(QUESTION, None, thinks=thinks, prompts=False)
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
        """The prompt with the turns from number `old` on in the model's own ids, where those read
        back the same."""
        author = self._author(opening)
        places = _places(ids, author)
        joined, done = array("I"), 0
        for number in range(old, len(own)):
            begin = places[number] + len(author)
            end = next((n for n in range(begin, len(ids)) if ids[n] in self._ends), len(ids))
            written = array("I")
            written.frombytes(own[number])
            cut = len(written) and written[-1] in self._tokeniser.controls
            cut = cut and written[-1] not in self._ends
            while len(written) and written[-1] in self._ends:
                written.pop()
            if not len(written):
                continue
            read = self._read_back(opening, written, tools)
            if read is None or read != self._read_back(author, ids[begin:end], tools):
                continue
            joined += ids[done : places[number]] + opening + written
            done = end
            if cut:  # at a call's mark, after which the template may write white space
                while done > begin and self._tokeniser.bytes_of(ids[done - 1]).isspace():
                    done -= 1
        return joined + ids[done:]

    def _author(self, opening: array[int]) -> array[int]:
        """The part of a prompt's end that precedes each of the model's messages."""
        thought = self._family.thought
        mark = None if thought is None else self._tokeniser.id_of(thought[0])
        closed = None if thought is None else self._tokeniser.id_of(thought[1])
        return opening[: next((n for n, i in enumerate(opening) if i in (mark, closed)), None)]

    def _read_back(
        self, before: array[int], ids: array[int], tools: Sequence[FunctionTool]
    ) -> list[object] | None:
        """The headers and texts of a turn's ids, in order; None if the reader repaired them."""
        reader = self._new_reader(before, tools)
        found = messages_in((*reader.feed(ids), *reader.feed((self._end,))))
        if any(span.repaired for span in reader.messages):
            return None
        return [(head, _value(text)) for head, text in found]

    # --- ids ----------------------------------------------------------------------------------

    async def _rendered(
        self,
        messages: Sequence[Json],
        developer: Developer | None,
        *,
        thinks: bool,
        prompts: bool = True,
    ) -> array[int]:
        family, marks = self._family, self._tokeniser.marks
        tools = () if developer is None or family.describes_tools else developer.tools
        shown = marks.shielded_messages(messages)
        if family.describes_tools and family.calls is not None and shown:
            content = shown[0]["content"].replace(EXAMPLE, call_example(family.calls))
            shown[0] = shown[0] | {"content": content}
        try:
            text = await self._template.render(
                shown,
                marks.shielded_tools(tool_specs(tools)) or None,
                add_generation_prompt=prompts,
                **family.variables(thinks=thinks),
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
                ids.append(self._tokeniser.control_id(piece))
            else:
                ids += await self._plain(piece)
        return ids

    async def _plain(self, text: str) -> array[int]:
        """A text's ids, with a cache; never a control id."""
        if (cached := self._ids.get(text)) is not None:
            self._ids.move_to_end(text)
            return cached[:]
        if len(text) > AT_ONCE_CHARS:
            encoded = await asyncio.to_thread(self._tokeniser.encode_plain, text)
        else:
            encoded = self._tokeniser.encode_plain(text)
        ids = array("I", encoded)
        if text not in self._ids:
            self._ids[text] = ids
            self._chars += len(text)
        while self._chars > CACHE_CHARS:
            self._chars -= len(self._ids.popitem(last=False)[0])
        return ids[:]


@dataclass(eq=False)
class Continuation:
    """The continuation of one response.

    The conversation is rendered again with each tool result; the model's own ids stay in it where
    they read back the same. Usually the result begins with the ids so far, and the rest is the tool
    result. Otherwise the next turn continues from the whole new prompt.
    """

    _renderer: Renderer
    _prompt: array[int]
    """The prompt of the current turn."""
    _system: System
    _developer: Developer
    _blocks: Sequence[Block]
    _entries: Entries
    _history: list[Entry] | None = None
    _read: int = 0
    """The number of counted ids in that prompt."""

    async def answer(
        self, message: Message, reader: Reader, at_most: int | None = None
    ) -> Answered:
        """The ids of a tool result, as the template renders it after the call."""
        renderer = self._renderer
        stored = await renderer.message(message, at_most)
        opening = await renderer.opening(thinks=self._system.thinks)
        turn = array("I", reader.kept[self._read :])
        history = [
            *self._so_far(),
            *renderer.decoder.messages(turn, opening, self._developer.tools),
            Entry("result", [message], None, b""),
        ]
        whole = await renderer.whole(self._system, self._developer, history)
        before = self._prompt + turn
        refuse_longer(len(whole) - len(before), at_most)
        keeps = whole[: len(before)] == before
        opens = len(opening) > 0 and whole[-len(opening) :] == opening
        ids = whole[len(before) :] if keeps else stored + (opening if opens else array("I"))
        self._history, self._prompt = history, whole
        self._read = len(reader.kept) + len(ids)
        return Answered(ids, stored, None if keeps else whole[:])

    def reopened(self, kept: Sequence[int]) -> array[int]:
        """The ids of a turn without its end, with its thought closed."""
        ids = self._renderer.reopened(kept)
        self._prompt, self._read = self._prompt + ids, self._read + len(kept)
        return ids

    async def behind(self, prompt: array[int], message: Message) -> array[int]:
        """The whole prompt of the conversation with one more message."""
        history = [*self._so_far(), Entry("user", [message], None, b"")]
        return await self._renderer.whole(self._system, self._developer, history)

    async def at_call(self, prompt: array[int]) -> array[int]:
        """The whole prompt, without the model's next turn."""
        self._prompt = await self._renderer.whole(
            self._system, self._developer, self._so_far(), prompts=False
        )
        return self._prompt[:]

    def _so_far(self) -> list[Entry]:
        """The entries before the current turn."""
        if self._history is None:
            entries = self._entries([block for block in self._blocks if block.ids])
            self._history = self._renderer.decoder.decode(entries, self._developer.tools)
        return self._history


def _places(ids: array[int], sought: array[int]) -> list[int]:
    """The places of one sequence of ids in another."""
    whole, part, size = ids.tobytes(), sought.tobytes(), ids.itemsize
    places, at = [], whole.find(part)
    while at >= 0 and part:
        if at % size == 0:
            places.append(at // size)
        at = whole.find(part, at + 1)
    return places


def _value(pieces: Sequence[bytes]) -> object:
    """A text, or its value if it is JSON."""
    text = orjson.loads(b'"%b"' % b"".join(pieces))
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
