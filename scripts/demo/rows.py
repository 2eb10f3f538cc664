"""One dialogue as rows of the compact vocabulary, and how much each row is worth learning.

Knows Harmony's frame and the vocabulary that the model keeps; knows no wording and no model.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scripts.demo import words
from scripts.demo.conversation import (
    ASSISTANT,
    FINAL_HEADER,
    answer_text,
    encoding,
    prompt_text,
    reply_text,
)
from scripts.demo.families import FAMILIES
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from scripts.demo.conversation import Dialogue

PROMPT_WEIGHT = 0.15
GUIDED = frozenset({"schema", "prose", "enum"})
"""The families whose answers the server guides."""
UNKNOWN_SHARE = 0.03
NAME = re.compile(r'(?<=")\w+(?=":)')
BARRED = frozenset({"tool_barred"})
"""The families in which the server writes the header of the answer."""
Rows = list[int]


@dataclass(frozen=True, slots=True)
class Example:
    """One dialogue as rows of the compact vocabulary; `weights[i]` counts for predicting row i."""

    family: int
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codec:
    """The ids that the model keeps, sorted. The row after them is that of all other control ids,
    and any other id is unlisted: its row is `first_unlisted` and the id."""

    used: tuple[int, ...]
    row_of: dict[int, int]
    spelled: tuple[str, ...]
    """What each row spells, without case and blanks; the last row spells nothing."""

    @staticmethod
    def of(ids: Iterable[int]) -> Codec:
        used = tuple(sorted(set(ids)))
        spelled = (*(encoding().decode([token]).strip().lower() for token in used), "")
        return Codec(used, {token: row for row, token in enumerate(used)}, spelled)

    @property
    def unknown(self) -> int:
        return len(self.used)

    @property
    def first_unlisted(self) -> int:
        return len(self.used) + 1

    def rows(self, text: str) -> Rows:
        return [self.row(token) for token in encode(text)]

    def row(self, token: int) -> int:
        own = self.row_of.get(token)
        if own is not None:
            return own
        return self.unknown if token >= FIRST_CONTROL_ID else self.first_unlisted + token

    def id(self, row: int) -> int:
        """The id of a row; of the row of control ids, the first one's."""
        if row < self.unknown:
            return self.used[row]
        return FIRST_CONTROL_ID if row == self.unknown else row - self.first_unlisted

    def spelling(self, row: int) -> str:
        """What a row spells, without case and blanks."""
        if row < self.first_unlisted:
            return self.spelled[row]
        return str(encoding().decode([row - self.first_unlisted])).strip().lower()


def encode(text: str) -> list[int]:
    return list(encoding().encode(text, allowed_special="all"))


def example(
    dialogue: Dialogue, known: Codec, rng: random.Random, *, plain: bool = False
) -> Example:
    """Rows and weights. Now and then the analysis is skipped: the header is then not learnt.

    Behind the last call, too, a server may offer a header: what is learnt is one that is no call.
    """
    turn, effort = dialogue.exchanges[-1].turn, dialogue.setting.effort
    prompt = known.rows(prompt_text(dialogue))
    free = 0
    if turn.call is None and not plain and rng.random() < 0.06:
        free = len(known.rows(FINAL_HEADER))
        reply = known.rows(answer_text(turn))
    else:
        enough = ASSISTANT + FINAL_HEADER
        closing = enough if turn.calls and not plain and rng.random() < 0.5 else ""
        reply = known.rows(reply_text(turn, effort) + closing)
    weights = np.full(len(prompt) + len(reply), PROMPT_WEIGHT, np.float32)
    weights[: len(prompt)][_frame(prompt, known)] = 0
    weights[len(prompt) :] = 1
    weights[len(prompt) : len(prompt) + free] = 0
    if dialogue.family in BARRED and not free:
        end = len(reply) - len(known.rows(answer_text(turn))) + len(known.rows(FINAL_HEADER))
        header = len(known.rows(ASSISTANT + FINAL_HEADER))
        weights[len(prompt) + end - header : len(prompt) + end] = 0
    weights[len(prompt) :][_forced(reply, known)] = 0
    if dialogue.family in GUIDED:
        weights[len(prompt) :][_names(reply, known)] = PROMPT_WEIGHT
    kept = " ".join((reply_text(turn, effort), *dialogue.known))
    for text, start in () if plain else _steps(dialogue, known):
        step = known.rows(text)
        weights[start : start + len(step)] = 1
        weights[start : start + len(step)][_forced(step, known)] = 0
        kept += text
    rows = np.array(prompt + reply, np.int32)
    weights[rows == known.unknown] = 0
    if not plain:
        _blur(rows[: len(prompt)], f"{kept} {effort}".lower(), known, rng)
    return Example(tuple(FAMILIES).index(dialogue.family), rows, weights)


def _frame(prompt: Rows, known: Codec) -> list[int]:
    """Places that hold messages together. To learn from them would be to learn what only history
    has: answers without an analysis before them, and `<|end|>` behind them."""
    opens, closes = known.row_of[CONTROL.message], known.row_of[CONTROL.start]
    ends = {known.row_of[token] for token in (CONTROL.end, CONTROL.call) if token in known.row_of}
    places, inside = [], True
    for place, row in enumerate(prompt):
        inside = inside or row == closes
        if inside or row in ends:
            places.append(place)
        inside = inside and row != opens
    return places


def _forced(reply: Rows, known: Codec) -> list[int]:
    """Places behind a call where the server, not the model, opens the next message."""
    ends = [place for place, row in enumerate(reply[:-1]) if row == known.row_of[CONTROL.call]]
    return [end + 1 + i for end in ends for i in range(len(encode(ASSISTANT)))]


def _names(reply: Rows, known: Codec) -> list[int]:
    """Places of an object's names, which the server's guide writes. What opens a value is learnt:
    the guide leaves `":` and `":"` to choose from, and a list that is empty."""
    texts = [encoding().decode([known.id(row)]) for row in reply]
    starts = [0, *itertools.accumulate(map(len, texts))]
    spans = [match.span() for match in NAME.finditer("".join(texts))]
    return [
        place
        for place, (start, text) in enumerate(zip(starts, texts, strict=False))
        if any(first <= start and start + len(text) <= last for first, last in spans)
    ]


def _steps(dialogue: Dialogue, known: Codec) -> Iterator[tuple[str, int]]:
    """Earlier turns of the open tool loop, spelled as models do, and where they begin: these, too,
    are replies to learn."""
    *earlier, last = dialogue.exchanges
    for count, step in enumerate(last.steps):
        if not (last.unthought or any(call.stored for call in step.turn.calls)):
            before = replace(last, steps=last.steps[:count])
            prompt = prompt_text(replace(dialogue, exchanges=(*earlier, before)))
            yield reply_text(step.turn, dialogue.setting.effort), len(known.rows(prompt))


def _blur(prompt: NDArray[np.int32], kept: str, known: Codec, rng: random.Random) -> None:
    """Put unlisted tokens in the place of some words, but of none that decides: no control id, no
    effort, no kept word."""
    for place, row in enumerate(prompt):
        if rng.random() < UNKNOWN_SHARE:
            spelled = known.spelling(int(row))
            if spelled not in kept and spelled[:2] != "<|" and spelled.isalpha():
                prompt[place] = known.row(words.stranger_id(rng))
