"""A model that continues its answer the same way each time, as greedy ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.scripted.engine import Script
from tests.support.served import ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import GenerateOptions

WHOLE = ids(
    "<|channel|>analysis<|message|>They greet me: say 😀 back.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Hello 😀 there, friend of mine.<|return|>"
)


class Model:
    """Writes the same whole answer however often it must continue, as greedy models do. It knows
    a prompt by its last id before the answer, and what follows as written."""

    def __init__(self, whole: Sequence[int] = WHOLE, *, at_once: int = 1) -> None:
        """So many ids `at_once` are a step."""
        self.whole = tuple(whole)
        self._at_once = at_once
        self.asked: list[tuple[int, GenerateOptions]] = []
        """Of each engine request: how much of the answer it was given, and its options."""

    def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        given = next(
            n for n in range(len(self.whole), -1, -1) if ends_with(prompt_ids, self.whole[:n])
        )
        self.asked.append((given, options))
        rest, size = self.whole[given:], self._at_once
        return Script(tuple(rest[at : at + size] for at in range(0, len(rest), size)))


def ends_with(ids: Sequence[int], tail: Sequence[int]) -> bool:
    return tuple(ids[len(ids) - len(tail) :]) == tuple(tail)


def texts(response: dict[str, Any]) -> list[str]:
    return [part["text"] for item in response["output"] for part in item["content"]]
