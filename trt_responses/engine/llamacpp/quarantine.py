"""Prompts that were at work when an engine died: twice, and they are refused.

Knows digests of ids; keeps no prompt.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Quarantine:
    def __init__(self, *, deaths: int = 2, kept: int = 1024) -> None:
        self._deaths = deaths
        self._kept = kept
        self._counts: OrderedDict[str, int] = OrderedDict()

    def blame(self, prompt_ids: Sequence[int]) -> None:
        name = digest(prompt_ids)
        self._counts[name] = self._counts.pop(name, 0) + 1
        if len(self._counts) > self._kept:
            self._counts.popitem(last=False)

    def acquit(self, prompt_ids: Sequence[int]) -> None:
        """It has been answered: it was only near."""
        if self._counts:
            self._counts.pop(digest(prompt_ids), None)

    def check(self, prompt_ids: Sequence[int]) -> None:
        if not self._counts:
            return
        name = digest(prompt_ids)
        if self._counts.get(name, 0) >= self._deaths:
            raise InvalidRequest(
                f"This prompt ended the engine {self._deaths} times and is refused from now on "
                f"(digest {name}).",
                code="prompt_quarantined",
                param="input",
            )


def digest(prompt_ids: Sequence[int]) -> str:
    return hashlib.blake2b(array("q", prompt_ids).tobytes(), digest_size=8).hexdigest()
