"""Assigns an engine's slots to requests, so that prefixes are reused but never shared by owners.

A slot remembers its last ids. Its cache serves only the owner who filled it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slot:
    """One slot."""

    number: int
    owner: str | None = None
    ids: list[int] = field(default_factory=list)
    reusable: bool = True
    """Whether the running request may use the cache."""
    known: int = 0
    """The number of the prompt's ids that are in the cache and may be used."""
    left: list[int] = field(default_factory=list)
    """The ids that the running request found in the slot."""


class Slots:
    """The slots of an engine; the least recently used is assigned first."""

    def __init__(self, count: int) -> None:
        self._free = [Slot(number) for number in range(count)]  # least recently used first

    def __bool__(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    def take(self, prompt_ids: Sequence[int], owner: str | None) -> Slot:
        """The slot with the longest prefix of the prompt, if that is at least half, most recently
        used first; else the least recently used slot."""
        prompt = list(prompt_ids)
        slot, longest = self._free[0], 0
        for candidate in self._free:
            common = common_prefix(candidate.ids, prompt) if candidate.owner == owner else 0
            if common >= longest and 2 * common >= len(prompt):
                slot, longest = candidate, common
        self._free.remove(slot)
        slot.reusable = slot.owner == owner
        slot.known = common_prefix(slot.ids, prompt) if slot.reusable else 0
        slot.owner = owner
        slot.left, slot.ids = slot.ids, prompt
        return slot

    def give_back(self, slot: Slot, generated: Sequence[int]) -> None:
        slot.ids.extend(generated)
        self._free.append(slot)


def common_prefix(one: list[int], other: list[int]) -> int:
    """The length of the common prefix, by binary search: slices compare in C."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
