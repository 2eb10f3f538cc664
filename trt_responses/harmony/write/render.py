"""Renders Harmony messages to prompt ids, and selects the messages of a prompt.

Only this module writes control ids. All that a caller passes (texts, names, schemas) goes through
the tokeniser, which returns ordinary ids only. No API items, no store and no engine here.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from trt_responses.dialect import Answered, uncompacted
from trt_responses.errors import InvalidRequest, refuse_longer
from trt_responses.harmony.write.cache import CACHE_BYTES, IdCache
from trt_responses.harmony.write.preface import content_key, developer_pieces, system_text
from trt_responses.language.messages import NOTHING
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.dialect import Entries, Place
    from trt_responses.harmony.write.cache import Header, Key
    from trt_responses.language.messages import Developer, Message, System
    from trt_responses.language.reader import Reader, Span
    from trt_responses.store import Block, Kind
    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary

HITS_AT_ONCE = 500
"""Cache hits between two pauses: about a millisecond."""
PIECES_AT_ONCE = 1000
"""Pieces of a tool's type joined between two pauses: about half a millisecond."""

LEAVING = frozenset({"reasoning", "summary", "context"})
"""Kinds of messages that leave a prompt, or that others leave for."""
CONSTRAIN = "<|constrain|>"


class Renderer:
    """Renders messages one by one, and caches them: a recent message is not tokenised again."""

    def __init__(
        self, vocabulary: Vocabulary, tokeniser: Tokeniser, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self.tokeniser = tokeniser
        self._cache = IdCache(cache_bytes)
        self._hits = 0
        self._last_system: tuple[System | None, array[int]] = None, array("I")
        assistant = vocabulary.encode_plain("assistant")
        self.generation_prompt = array("I", [CONTROL.start, *assistant])
        """The ids of `<|start|>assistant`, after which the model continues."""

    def continuation(
        self,
        prompt: array[int],
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
    ) -> Renderer:
        """This renderer: in Harmony a message may follow any other."""
        return self

    async def pause(self) -> None:
        """Let other tasks run, as rendering itself does between pieces of work."""
        await self.tokeniser.pause()

    async def system(self, system: System) -> array[int]:
        """The ids of the system message; most prompts begin with the same one."""
        last, ids = self._last_system
        if system is not last:
            ids = await self._ids(("system",), system_text(system), CONTROL.end)
            self._last_system = system, ids
        return ids

    async def developer(self, developer: Developer, at_most: int | None = None) -> array[int]:
        """The ids of the developer message; empty if it has no content. Cached by content: an agent
        sends its tools with each request, and rendering them is the slowest part of a prompt."""
        if developer is NOTHING or developer == NOTHING:
            return array("I")
        content = content_key(developer)
        key = None if content is None else (("developer",), content, CONTROL.end)
        if key is not None and (cached := await self._cached(key, at_most)) is not None:
            return cached
        pieces = []
        for place, piece in enumerate(developer_pieces(developer), 1):
            pieces.append(piece)
            if place % PIECES_AT_ONCE == 0:
                await self.tokeniser.pause()
        if not pieces:
            return array("I")
        ids = await self._encode(("developer",), "".join(pieces), CONTROL.end, at_most)
        if key is not None:
            self._cache.put(key, ids.tobytes())
        return ids

    async def message(self, message: Message, at_most: int | None = None) -> array[int]:
        """The ids of a whole message, from `<|start|>` to its terminator."""
        called = message.role == "assistant" and message.recipient is not None
        end = CONTROL.call if called else CONTROL.end
        return await self._ids(header(message), message.text, end, at_most)

    async def answer(
        self, message: Message, reader: Reader, at_most: int | None = None
    ) -> Answered:
        """The ids of a tool result, an ordinary message in Harmony."""
        return Answered(await self.message(message, at_most))

    def reopened(self, kept: Sequence[int]) -> array[int]:
        """The ids of a turn, with `<|end|>` in place of the terminator that ends a generation."""
        ids = array("I", kept)
        if ids and ids[-1] in (CONTROL.return_, CONTROL.call):
            ids[-1] = CONTROL.end
        return ids

    async def preface(self, system: System, developer: Developer, at_most: int | None) -> int:
        """The number of tokens around a conversation: system, developer and generation prompt."""
        before = await self.system(system), await self.developer(developer, at_most)
        return len(self.join(*before, ()))

    async def prompt(
        self,
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
        at_most: int | None,
    ) -> array[int]:
        """The ids of a whole prompt. Blocks hold their messages' ids; no work is done per
        message."""
        before = await self.system(system), await self.developer(developer, at_most)
        return self.join(*before, [block.ids for block in blocks])

    async def behind(self, prompt: array[int], message: Message) -> array[int]:
        """The ids of a prompt with one more message."""
        before = await self.at_call(prompt)
        return array(
            prompt.typecode, (*before, *await self.message(message), *self.generation_prompt)
        )

    async def at_call(self, prompt: array[int]) -> array[int]:
        """The ids of a prompt whose last message is a call, up to the start of the tool result."""
        return prompt[: len(prompt) - len(self.generation_prompt)]

    def keeps(self, kinds: Sequence[Kind]) -> list[bool]:
        """Whether a prompt still holds each message, by its kind."""
        return kept(kinds)

    def own_ids(self, kept: Sequence[int], span: Span) -> array[int]:
        """A message's ids in later prompts: author first, the correct terminator last.

        The first message's author is not among the kept ids, because the prompt ended with it.
        """
        ids = array("I", kept[span.start : span.end])
        if not ids or ids[0] != CONTROL.start:
            ids = self.generation_prompt + ids
        if span.terminator is not None:
            ids.pop()
        ids.append(CONTROL.call if span.recipient else CONTROL.end)
        ids.extend(kept[span.end : span.end + span.answer_tokens])
        return ids

    def answer_in(self, block: bytes) -> list[int] | None:
        """The ids between the header and the terminator of a call's second message."""
        ids = array("I", block).tolist()
        starts = [at for at, token_id in enumerate(ids) if token_id == CONTROL.start]
        if len(starts) < 2:
            return None
        return ids[ids.index(CONTROL.message, starts[-1]) + 1 : -1]

    def joined(self, parts: Sequence[tuple[Kind, bytes]]) -> tuple[bytes, list[Place]]:
        """The messages joined, and the place of each."""
        ends = accumulate(len(ids) for _, ids in parts)
        places = [(kind, end - len(ids), end) for (kind, ids), end in zip(parts, ends, strict=True)]
        return b"".join(ids for _, ids in parts), places

    def join(
        self,
        system: array[int],
        developer: array[int],
        messages: Iterable[array[int] | bytes],
    ) -> array[int]:
        """A prompt joined from its parts and the generation prompt, without work per id."""
        ids: array[int] = array("I")
        ids.frombytes(b"".join((system, developer, *messages, self.generation_prompt)))
        return ids

    async def _ids(
        self, header: Header, text: str, end: int, at_most: int | None = None
    ) -> array[int]:
        key = (header, text, end)
        if (cached := await self._cached(key, at_most)) is not None:
            return cached
        ids = await self._encode(header, text, end, at_most)
        self._cache.put(key, ids.tobytes())
        return ids

    async def _cached(self, key: Key, at_most: int | None) -> array[int] | None:
        if (data := self._cache.get(key)) is None:
            return None
        ids: array[int] = array("I")
        ids.frombytes(data)
        if at_most is not None and len(ids) > at_most:
            refuse_longer(len(ids), at_most)
        self._hits += 1
        if self._hits % HITS_AT_ONCE == 0:
            await self.tokeniser.pause()
        return ids

    async def _encode(self, header: Header, text: str, end: int, at_most: int | None) -> array[int]:
        ids = array("I", [CONTROL.start])
        for part in (*header, CONTROL.message, text):
            if isinstance(part, str):
                ids.extend(await self.tokeniser.encode(part, at_most=at_most))
            else:
                ids.append(part)
        ids.append(end)
        refuse_longer(len(ids), at_most)
        return ids


def header(message: Message) -> Header:
    """The header's texts and control ids, in openai-harmony's order: author, recipient, channel,
    content type. A call's channel precedes its recipient, as models write it: so a call that a
    client sends back matches the engine's cached prefix."""
    parts: list[str | int] = []
    if message.role != "tool":
        parts.append(message.role)
        if message.name is not None:
            parts.append(f":{message.name}")
    elif message.name is None:
        raise InvalidRequest("A tool message needs the name of the tool.")
    else:
        parts.append(message.name)
    recipient: list[str | int] = []
    if message.recipient is not None and message.recipient != "all":
        recipient.append(f" to={message.recipient}")
    channel: list[str | int] = []
    if message.channel is not None:
        channel += (CONTROL.channel, message.channel)
    parts += channel + recipient if message.role == "assistant" else recipient + channel
    if (content_type := message.content_type) is not None:
        constrained = content_type.removeprefix(CONSTRAIN)
        if constrained == content_type:
            parts.append(f" {content_type}")
        else:
            parts += (" ", CONTROL.constrain, constrained)
    return tuple(parts)


def kept(kinds: Sequence[Kind]) -> list[bool]:
    """Whether a prompt still holds each message: all except reasoning before the last final answer
    and messages that the newest compaction replaces.

    Reasoning after that answer belongs to the current tool loop, and the model needs it.
    """
    if LEAVING.isdisjoint(kinds):
        return [True] * len(kinds)
    last = max((place for place, kind in enumerate(kinds) if kind == "final"), default=-1)
    return [
        stays and (kind != "reasoning" or place > last)
        for place, (kind, stays) in enumerate(zip(kinds, uncompacted(kinds), strict=True))
    ]
