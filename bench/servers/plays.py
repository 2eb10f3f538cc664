"""What the engines of all servers play: a request's output limit says which script it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.script import Script, script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.tokens.vocabulary import Vocabulary

PACED, SATURATED, REQUESTS = KINDS = ("paced", "saturated", "requests")
STEPS_A_SECOND = 50
PACED_TOKENS, LONG_TOKENS = 150, 448
"""Of the answer; 64 of a thought and ten of headers come before."""


@dataclass(frozen=True, slots=True)
class Play:
    """One script, and the steps a second in which it comes; 0: as many as the engine can."""

    most_tokens: int
    script: Script
    steps_a_second: int = 0

    @property
    def data(self) -> dict[str, Any]:
        """What an engine in another process needs of it."""
        return {"ids": self.script.token_ids, "steps_a_second": self.steps_a_second}


def plays(vocabulary: Vocabulary) -> dict[str, Play]:
    """A stream at a pace, a stream without one, and an answer of 22 ids."""
    return {
        PACED: Play(1001, script(vocabulary, PACED_TOKENS), STEPS_A_SECOND),
        SATURATED: Play(1002, script(vocabulary, LONG_TOKENS)),
        REQUESTS: Play(1003, script(vocabulary, 8, analysis_tokens=4)),
    }


def given(known: Mapping[str, Play]) -> dict[str, Any]:
    """The plays for an engine in another process, by the output limit that asks for each."""
    return {"plays": {str(play.most_tokens): play.data for play in known.values()}}
