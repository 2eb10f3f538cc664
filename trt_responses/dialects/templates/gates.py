"""Gates for template dialects. They work on ids and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from trt_responses.engine import Finish
from trt_responses.language.gate import Gate

CONTROL = 0x100
"""First of the characters that stand for control ids."""
_CONTROLS = re.compile("([\u0100-\U0010ffff])")
_WHITE = dict.fromkeys(map(ord, " \t\r\n"))


class Signs:
    """Ids as text: one character for each byte, and for each control id."""

    def __init__(self, token_bytes: Sequence[bytes], controls: Collection[int]) -> None:
        self._token_bytes, self._controls = token_bytes, frozenset(controls)

    def text(self, token_ids: Iterable[int]) -> str:
        return "".join(map(self._sign, token_ids))

    def _sign(self, token_id: int) -> str:
        if token_id in self._controls:
            return chr(CONTROL + token_id)
        return b"".join(self._token_bytes[token_id : token_id + 1]).decode("latin-1")

    def ids(self, text: str, encode: Callable[[str], Sequence[int]]) -> tuple[int, ...]:
        """The ids of such a text. `encode` returns those of a part without control ids."""
        found: list[int] = []
        for part in _CONTROLS.split(text):
            if _CONTROLS.match(part):
                found.append(ord(part) - CONTROL)
            elif part:
                found += encode(part.encode("latin-1").decode("utf-8", "replace"))
        return tuple(found)


class CallBegins(Gate):
    """Ends its segment where the head of a call is complete; any other output is an answer.

    With `anchored` the head comes first, and its white space is free. With `holds` nothing counts
    before the head, so that an answer can restart under its guide; else an answer continues.
    """

    def __init__(self, heads: Sequence[str], signs: Signs, *, anchored: bool, holds: bool) -> None:
        """`heads`: texts of `signs`."""
        super().__init__(frozenset(), ())
        self._heads, self._signs = heads, signs
        self._anchored, self._holds = anchored, holds
        self._text, self._before = "", 0
        self._held: list[int] = []
        self.longest = max(map(len, heads))
        self.head = ""
        """The head that is complete; empty for an answer."""
        self.rest = ""
        """Its end, as far as no counted id spells it."""

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        for place, token_id in enumerate(() if self.over else token_ids):
            head = self._head_with(token_id)
            if head or (head is not None and self._holds):
                return self._end(head, token_ids[place:])
            self._held.append(token_id)
        if self.over:
            self.discarded += token_ids
        if self.over or self._holds:
            return ()
        counted, self._held = self._held, []
        return counted

    def finish(self, finish: Finish) -> Sequence[int]:
        self.over = self.over or (self._holds and finish != "error")
        return ()

    def _head_with(self, token_id: int) -> str | None:
        """The head that this id completes; None if one may come; empty if none can."""
        if not self._heads:
            return ""
        self._before = len(self._text)
        self._text += self._signs.text((token_id,))
        if not self._anchored:
            found = next((head for head in self._heads if head in self._text), None)
            if found is None:
                self._text = self._text[-self.longest :]
            return found
        begun = _squashed(self._text)
        heads = [(head, _squashed(head)) for head in self._heads]
        found = next((head for head, bare in heads if begun.startswith(bare)), "")
        if found or any(bare.startswith(begun) for _, bare in heads):
            return found or None
        self._heads = ()
        return ""

    def _end(self, head: str, others: Sequence[int]) -> Sequence[int]:
        """End the segment. The id that completes the head counts if it spells nothing behind."""
        self.over, self.head = True, head
        if not head:
            self.discarded += [*self._held, *others]
            return ()
        begin = 0 if self._anchored else self._text.index(head)
        exact = len(_squashed(self._text[begin:])) == len(_squashed(head))
        spelled = self._text[begin:] if exact else self._text[begin : self._before]
        self.rest = _remaining(head, spelled)
        self.discarded += others[exact:]
        return (*self._held, *others[:exact])


def _squashed(text: str) -> str:
    return text.translate(_WHITE)


def _remaining(head: str, spelled: str) -> str:
    """The end of a head whose beginning is spelled, perhaps with other white space."""
    left, at = len(_squashed(spelled)), 0
    while left:
        left -= ord(head[at]) not in _WHITE
        at += 1
    return head[at:].lstrip() if spelled[-1:].isspace() else head[at:]
