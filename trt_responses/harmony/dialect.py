"""The Harmony dialect: reader, renderer and plans over one vocabulary."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from trt_responses.dialect import Takes
from trt_responses.harmony.read.reader import Reader, Tables
from trt_responses.harmony.write.render import Renderer
from trt_responses.language.reader import AS_USUAL
from trt_responses.language.steering import Free, Resumed
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.tokenise import Tokeniser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.language.messages import FunctionTool
    from trt_responses.language.reader import ReaderOptions
    from trt_responses.language.steering import Guides, SteeringPlan, Turn
    from trt_responses.schema.compile import Form
    from trt_responses.tokens.vocabulary import Vocabulary

    NewPlan = Callable[[Turn, Guides, int, int], SteeringPlan]
    """For a turn of so many tokens, behind so many that were written."""

STOPS = (CONTROL.return_, CONTROL.call)
"""The ids that stop an unsteered segment."""


@lru_cache(maxsize=1)
def harmony(vocabulary: Vocabulary) -> Harmony:
    """The dialect of a vocabulary, shared by all apps of a process."""
    return Harmony(vocabulary, Tables.of(vocabulary))


class Harmony:
    """Harmony, the language of gpt-oss."""

    name = "harmony"
    vocabulary = ""
    takes = Takes()

    def __init__(self, vocabulary: Vocabulary, tables: Tables) -> None:
        self.lexicon = vocabulary
        self.tables = tables
        self.renderer = Renderer(vocabulary, Tokeniser(vocabulary))
        self.steered: NewPlan | None = None
        """Plans turns that are steered, or have several calls; None: there are none."""
        self._assistant = (CONTROL.start, *vocabulary.encode_plain("assistant"))

    def reader(self, options: ReaderOptions = AS_USUAL) -> Reader:
        return Reader(self.tables, options)

    def plan(
        self, turn: Turn, guides: Guides, tokens: int, *, written: int = 0, after_tool: bool = False
    ) -> SteeringPlan:
        plan: SteeringPlan
        free = turn.choices is None and not turn.strict and turn.calls < 2  # as most turns
        if free or self.steered is None:
            plan = Free(tokens, STOPS, turn.begun)
        else:
            plan = self.steered(turn, guides, tokens, written)
        return Resumed(plan, self._assistant) if after_tool else plan

    def arguments(self, of_json: Form, tool: FunctionTool) -> Form:
        """The form of the arguments, unchanged: Harmony's arguments are JSON."""
        return of_json

    async def close(self) -> None:
        """Release resources; there are none."""

    def messages(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The ids of each message, starting at `<|start|>`; an output's first message has none."""
        starts = [at for at, token_id in enumerate(ids) if token_id == CONTROL.start or not at]
        return [ids[a:b] for a, b in pairwise([*starts, len(ids)])]
