"""Continues a prompt within one response, for templates that render whole conversations.

The conversation is rendered again with each tool result; the model's own ids stay in it where they
read back the same. Usually the result begins with the ids so far, and the rest is the tool result.
Otherwise the next turn continues from the whole new prompt. Works with the renderer and blocks: no
tool and no engine.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from trt_responses.dialect import Answered, Entry
from trt_responses.errors import refuse_longer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Entries
    from trt_responses.dialects.templates.write.decoder import Decoder
    from trt_responses.language.messages import Developer, Message, System
    from trt_responses.language.reader import Reader
    from trt_responses.store import Block


class Whole(Protocol):
    """The part of the renderer that a continuation needs."""

    @property
    def decoder(self) -> Decoder: ...

    async def message(self, message: Message, at_most: int | None = None) -> array[int]: ...

    async def opening(self, *, thinks: bool) -> array[int]: ...

    def reopened(self, kept: Sequence[int]) -> array[int]: ...

    async def whole(
        self,
        system: System,
        developer: Developer,
        history: Sequence[Entry],
        at_most: int | None = None,
        *,
        prompts: bool = True,
    ) -> array[int]: ...


class Continuation:
    """The continuation of one response."""

    def __init__(
        self,
        renderer: Whole,
        prompt: array[int],
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
    ) -> None:
        self._renderer = renderer
        self._system = system
        self._developer = developer
        self._blocks = blocks
        self._entries = entries
        self._history: list[Entry] | None = None
        self._prompt = prompt
        """The prompt of the current turn."""
        self._read = 0
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
