"""What a mock engine plays: chosen by the prompt, ended as a real engine ends it.

Nothing but the standard library, so that a mock runs beside any server's packages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from responses_conformance.transcripts import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from responses_conformance.transcripts import Transcript

RETURN, START, CALL, ENDOFTEXT, ASSISTANT = 200002, 200006, 200012, 199999, 173781
END_IDS = (RETURN, CALL, ENDOFTEXT)
"""Ids that end gpt-oss's generation by its own configuration."""


@dataclass(frozen=True)
class Play:
    """The ids of one request."""

    ids: tuple[int, ...]
    finish: Literal["stop", "length"]
    stop_id: int | None = None
    """The id that ended it; None where the engine stopped by itself."""


class Player:
    """Plays a script: the transcript whose mark stands last in the prompt, else the next in turn.

    `record`: a file that gets the prompt's ids of each request, a JSON object a line."""

    def __init__(self, transcripts: Sequence[Transcript], record: Path | None = None) -> None:
        self._transcripts = transcripts
        self._by_mark = {each.mark: each for each in transcripts if each.mark}
        self._sizes = {len(mark) for mark in self._by_mark}
        self._record = record
        self._turn = 0

    @classmethod
    def of(cls, script: str = "", record: str = "") -> Player:
        """The player of a file; the kit's transcripts if none is named."""
        return cls(load(Path(script) if script else None), Path(record) if record else None)

    def play(self, prompt: Sequence[int], most: int | None, stops: Iterable[int] = ()) -> Play:
        """What follows the prompt: at most `most` ids, up to the first that stops."""
        chosen = self._chosen(prompt)
        if self._record is not None:
            with self._record.open("a") as file:
                print(json.dumps({"transcript": chosen.name, "prompt": list(prompt)}), file=file)
        ids = _behind(_open_turn(prompt), chosen.ids)
        ending = {*END_IDS, *stops}
        at = next((n for n, token_id in enumerate(ids) if token_id in ending), None)
        if most is not None and len(ids) > most and (at is None or at >= most):
            return Play(ids[:most], "length")
        if at is not None:
            return Play(ids[: at + 1], "stop", ids[at])
        return Play(ids, chosen.finish)

    def _chosen(self, prompt: Sequence[int]) -> Transcript:
        for end in range(len(prompt), 0, -1):
            for size in self._sizes:
                if (found := self._by_mark.get(tuple(prompt[end - size : end]))) is not None:
                    return found
        self._turn += 1
        return self._transcripts[(self._turn - 1) % len(self._transcripts)]


def _open_turn(prompt: Sequence[int]) -> tuple[int, ...]:
    """What the prompt holds of the assistant's turn already."""
    for at in range(len(prompt) - 2, -1, -1):
        if prompt[at] == START:
            return tuple(prompt[at + 2 :]) if prompt[at + 1] == ASSISTANT else ()
    return ()


def _behind(written: tuple[int, ...], ids: tuple[int, ...]) -> tuple[int, ...]:
    return ids[len(written) :] if ids[: len(written)] == written else ids
