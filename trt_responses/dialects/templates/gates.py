"""Gates for template dialects. They work on ids and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.language.gate import Gate, GuidedGate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine import Finish
    from trt_responses.language.gate import Follower


class CallOrAnswer(Gate):
    """Admits a call's mark and nothing else: any other output is an answer, which then restarts
    under its guide."""

    def __init__(
        self, mark: tuple[int, ...], ends: frozenset[int], token_bytes: Sequence[bytes]
    ) -> None:
        super().__init__(ends, ())
        self._mark = mark
        self._token_bytes = token_bytes
        self._held: list[int] = []

    def admit(self, token_ids: Sequence[int]) -> Sequence[int]:
        for place, token_id in enumerate(() if self.over else token_ids):
            self._held.append(token_id)
            if tuple(self._held[-len(self._mark) :]) == self._mark:
                self.over = True
                self.discarded = list(token_ids[place + 1 :])
                return tuple(self._held)
            if not self._may_come(token_id):
                self.over = True
                break
        self.discarded += token_ids
        return ()

    def _may_come(self, token_id: int) -> bool:
        if token_id in self._mark:
            return True
        raw = self._token_bytes[token_id : token_id + 1]
        return bool(raw and raw[0]) and not raw[0].strip()

    def finish(self, finish: Finish) -> Sequence[int]:
        self.over = self.over or finish != "error"
        return ()


class MarkedGate(GuidedGate):
    """Follows a text that may contain some control ids."""

    def __init__(
        self,
        marks: Mapping[int, bytes],
        ends: frozenset[int],
        closing: tuple[int, ...],
        follower: Follower,
        token_bytes: Sequence[bytes],
        what: str,
    ) -> None:
        super().__init__(ends, closing, follower, token_bytes, what)
        self._marks = marks

    def _bytes_of(self, token_id: int) -> bytes:
        return self._marks.get(token_id) or super()._bytes_of(token_id)
