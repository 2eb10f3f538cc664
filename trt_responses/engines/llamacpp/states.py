"""Saved states of llama.cpp's slots, least recently used first, within a bound of bytes.

Each state has a file without a name, in memory: the engine's child inherits it, llama.cpp writes
and reads it by its number, and the kernel frees it with the process. Files and ids only: no child.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trt_responses.engines.slots import common_prefix

MAX_STATES = 64
"""Each takes an open file of the server and of the child, used or not."""


@dataclass(slots=True, eq=False)
class State:
    """The keys and values of a prompt's first ids. They serve only the owner of the prompt."""

    file: int
    owner: str | None
    ids: list[int]
    size_bytes: int
    readers: int = 0
    """Requests that are about to read it, during which it cannot be evicted."""


def open_files() -> list[int]:
    """The files for the states; none where the system has no files in memory."""
    files: list[int] = []
    with contextlib.suppress(AttributeError, OSError):
        files += (os.memfd_create(f"prompt-{number}") for number in range(MAX_STATES))
    return files


class States:
    """The states of one child."""

    def __init__(self, files: Sequence[int], bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self._unused = list(files)
        self._states: list[State] = []  # least recently used first

    @property
    def size_bytes(self) -> int:
        return sum(state.size_bytes for state in self._states)

    def bytes_per_id(self, count: int, most: float) -> float:
        """An upper bound for a state of so many ids: a longer one takes no more bytes an id."""
        shorter = (state for state in self._states if len(state.ids) <= count)
        return min((state.size_bytes / len(state.ids) for state in shorter), default=most)

    def find(self, prompt: list[int], owner: str | None) -> tuple[State | None, int]:
        """The longest state that is the beginning of the prompt, and the longest prefix that the
        prompt shares with any state. A state serves as a whole or not at all: llama.cpp saves only
        the last window of a windowed layer, so a state cannot be cut."""
        longest, shared = None, 0
        for state in self._states:
            if state.owner == owner:
                common = common_prefix(state.ids, prompt)
                shared = max(shared, common)
                if common == len(state.ids) < len(prompt) and common > length(longest):
                    longest = state
        return longest, shared

    def room(self, size_bytes: int) -> list[int] | None:
        """Evict states until one of this size fits. Returns the files of the evicted ones, for the
        caller to empty and `free`; None if it cannot fit."""
        evicted: list[State] = []
        rest = [state for state in self._states if not state.readers]
        excess = self.size_bytes + size_bytes - self.bound_bytes
        needs_file = not self._unused
        while excess > 0 or needs_file:
            if not rest:
                return None
            evicted.append(rest.pop(0))
            excess -= evicted[-1].size_bytes
            needs_file = False
        return [self.drop(state) for state in evicted]

    def free(self, files: Iterable[int]) -> None:
        """Take back empty files."""
        self._unused += files

    def file(self) -> int:
        """An empty file for a new state."""
        return self._unused.pop()

    def keep(self, state: State) -> None:
        """Add a state as the most recently used one."""
        self._states.append(state)

    def use(self, state: State) -> None:
        """Note that a state is used, and keep it while it is read."""
        state.readers += 1
        self._states.remove(state)
        self._states.append(state)

    def drop(self, state: State) -> int:
        """Forget a state. Returns its file, for the caller to empty and `free`."""
        self._states.remove(state)
        return state.file


def length(state: State | None) -> int:
    """The number of ids in a state."""
    return 0 if state is None else len(state.ids)
