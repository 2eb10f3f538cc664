"""What goes on behind a prompt within one response, for a template that writes whole conversations.

The conversation is rendered anew with each answer of a tool; the model's own ids stand in it where
they read back to the same. Mostly it begins with the ids that are there, and what follows them is
the answer. Where it does not, the next turn goes on from the whole prompt. Knows the renderer and
what blocks say; knows no tool and no engine.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from trt_responses.dialect import Answered, Entry
from trt_responses.errors import refuse_longer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Entries
    from trt_responses.dialects.templates.write.spoken import Spoken
    from trt_responses.language.messages import Developer, Message, System
    from trt_responses.language.reader import Reader
    from trt_responses.store import Block


class Whole(Protocol):
    """Who renders conversations: the renderer, as far as it is needed here."""

    @property
    def spoken(self) -> Spoken: ...

    async def message(self, message: Message, at_most: int | None = None) -> array[int]: ...

    async def opening(self, *, thinks: bool) -> array[int]: ...

    async def whole(
        self,
        system: System,
        developer: Developer,
        said: Sequence[Entry],
        at_most: int | None = None,
        *,
        prompts: bool = True,
    ) -> array[int]: ...


class Continuation:
    """One response's."""

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
        self._said: list[Entry] | None = None
        self._prompt = prompt
        """The prompt of the present turn."""
        self._read = 0
        """The number of ids that count and stand in that."""

    async def answer(
        self, message: Message, reader: Reader, at_most: int | None = None
    ) -> Answered:
        """A tool's answer, as the template writes it behind the call."""
        renderer = self._renderer
        held = await renderer.message(message, at_most)
        opening = await renderer.opening(thinks=self._system.thinks)
        turn = array("I", reader.kept[self._read :])
        said = [
            *self._so_far(),
            *renderer.spoken.messages(turn, opening, self._developer.tools),
            Entry("result", [message], None, b""),
        ]
        whole = await renderer.whole(self._system, self._developer, said)
        before = self._prompt + turn
        refuse_longer(len(whole) - len(before), at_most)
        keeps = whole[: len(before)] == before
        ids = whole[len(before) :] if keeps else held + opening
        self._said, self._prompt = said, whole
        self._read = len(reader.kept) + len(ids)
        return Answered(ids, held, None if keeps else whole[:])

    def reopened(self, kept: Sequence[int]) -> None:
        """None: a template writes nothing of the model's between two messages of it."""

    async def behind(self, prompt: array[int], message: Message) -> array[int]:
        """The whole prompt of the conversation and of a message more."""
        said = [*self._so_far(), Entry("user", [message], None, b"")]
        return await self._renderer.whole(self._system, self._developer, said)

    async def at_call(self, prompt: array[int]) -> array[int]:
        """The whole prompt, without the model's next turn."""
        self._prompt = await self._renderer.whole(
            self._system, self._developer, self._so_far(), prompts=False
        )
        return self._prompt[:]

    def _so_far(self) -> list[Entry]:
        """What was said before the present turn."""
        if self._said is None:
            said = [block for block in self._blocks if block.ids]
            self._said = self._renderer.spoken.told(self._entries(said), self._developer.tools)
        return self._said
