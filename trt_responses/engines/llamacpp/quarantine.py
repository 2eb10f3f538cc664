"""Refuses a prompt or a guide that was running at two deaths of the engine.

Stores digests and counts: no prompts and no guides.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

from trt_responses.engine import Guide
from trt_responses.errors import InvalidRequest

Key = TypeVar("Key")
Value = TypeVar("Value")


class Charge(NamedTuple):
    """The prompt or guide that is blamed for a death."""

    kind: Literal["prompt", "guide"]
    digest: str


class Quarantine:
    """Counts deaths per prompt or guide.

    A guide that once produced an id compiles: then the prompt is blamed instead.
    """

    def __init__(self, *, deaths: int = 2, kept: int = 1024) -> None:
        self._deaths = deaths
        self._kept = kept
        self._counts: OrderedDict[Charge, int] = OrderedDict()
        self._proven: OrderedDict[str, None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether anything is under suspicion."""
        return bool(self._counts)

    def charge(self, prompt_ids: Sequence[int], guide: Guide | None) -> Charge:
        """The charge for a death of this request; it computes a digest of the prompt."""
        if guide is not None and (name := _name(guide)) not in self._proven:
            return Charge("guide", name)
        return Charge("prompt", _digest(array("q", prompt_ids).tobytes()))

    def blame(self, charge: Charge) -> None:
        """Count one death against a charge."""
        self._put(self._counts, charge, self._counts.pop(charge, 0) + 1)

    def acquit(self, charge: Charge) -> None:
        """Clear a charge: its request was answered, so it was innocent."""
        self._counts.pop(charge, None)

    def prove(self, guide: Guide) -> None:
        """Note that a guide produced an id, so it compiles."""
        name = _name(guide)
        self._proven.pop(name, None)
        self._put(self._proven, name, None)

    def suspects(self, charge: Charge) -> bool:
        """Whether this charge has a death."""
        return charge in self._counts

    def refusal(self, charge: Charge) -> InvalidRequest | None:
        """The error for a charge with too many deaths, or None."""
        if self._counts.get(charge, 0) < self._deaths:
            return None
        return InvalidRequest(
            f"This {charge.kind} crashed the engine {self._deaths} times and is now refused "
            f"(digest {charge.digest}).",
            code=f"{charge.kind}_quarantined",
            param="input" if charge.kind == "prompt" else None,
        )

    def _put(self, kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
        kept[key] = value
        if len(kept) > self._kept:
            kept.popitem(last=False)


def _name(guide: Guide) -> str:
    return _digest(f"{guide.kind} {guide.source}".encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
