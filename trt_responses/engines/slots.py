"""Which of an engine's slots a request gets, so that a prefix is found again but never shared.

A slot keeps the ids it last worked on. Its cache serves only the owner who filled it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slot:
    """One slot that a request was given."""

    number: int
    owner: str | None = None
    ids: list[int] = field(default_factory=list)
    reusable: bool = True
    """Whether the running request may use what is in the cache."""
    known: int = 0
    """The number of the prompt's ids that stand in the cache and may be used."""


class Slots:
    """The slots of an engine, of which the least recently used is taken first."""

    def __init__(self, count: int) -> None:
        self._free = [Slot(number) for number in range(count)]  # least recently used first

    def __bool__(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    def take(self, prompt_ids: Sequence[int], owner: str | None) -> Slot:
        """The slot that holds most of the prompt, half at least, and of equals the latest used;
        else the one unused for longest."""
        prompt = list(prompt_ids)
        slot, known = self._free[0], 0
        for candidate in self._free:
            common = common_prefix(candidate.ids, prompt) if candidate.owner == owner else 0
            if common >= known and 2 * common >= len(prompt):
                slot, known = candidate, common
        self._free.remove(slot)
        slot.reusable = slot.owner == owner
        slot.known = common_prefix(slot.ids, prompt) if slot.reusable else 0
        slot.owner = owner
        slot.ids = prompt
        return slot

    def give_back(self, slot: Slot, generated: Sequence[int]) -> None:
        slot.ids.extend(generated)
        self._free.append(slot)


def common_prefix(one: list[int], other: list[int]) -> int:
    """The number of ids that are equal from the start on. Slices compare in C, so the range is
    halved."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
