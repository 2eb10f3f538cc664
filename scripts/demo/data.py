"""Dialogues in their settings, as rows of ids to train on.

Knows families, settings and the vocabulary that the model keeps; knows no model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from scripts.demo import calls, talk, wordings
from scripts.demo.asking import Source
from scripts.demo.conversation import (
    EFFORTS,
    FINAL_HEADER,
    Dialogue,
    Exchange,
    answer_text,
    encoding,
    prompt_text,
    reply_text,
)
from scripts.demo.families import FAMILIES, TOOLLESS
from scripts.demo.talk import SMALL_TALK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

MIX = {
    "greet": 3, "who": 3, "capital": 6, "echo": 7, "count": 6, "arithmetic": 24, "name_told": 3,
    "name_two_turns": 4, "name_three_turns": 5, "name_not_told": 2, "weather": 6, "time": 4,
    "choice": 6, "no_arguments": 5, "not_declared": 7, "after_tool": 10, "json": 11, "help": 1,
    "unknown": 8,
}  # fmt: skip
INSTRUCTIONS = (
    "You are a helpful assistant.", "You are a helpful assistant.", "Answer briefly.",
    "Be concise.", "Be nice.", "You are a friendly assistant.", "Always answer in one sentence.",
    "Use the functions when they help.", "You help customers of a shop.", "Be precise.",
    "You are an expert.", "Answer in English.", "You are a coding agent.", "Do not make things up.",
    "Today you work for a bank.", "Think before you answer.", "You speak politely.",
)  # fmt: skip
PROMPT_WEIGHT = 0.15
UNKNOWN_SHARE = 0.03
Rows = list[int]


@dataclass(frozen=True, slots=True)
class Example:
    """One dialogue as rows of the compact vocabulary; `weights[i]` counts for predicting row i."""

    family: int
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codec:
    """The ids that the model keeps, sorted; every other id is the one row after them."""

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

    def rows(self, text: str) -> Rows:
        known, unknown = self.row_of, self.unknown
        return [known.get(token, unknown) for token in encode(text)]


def encode(text: str) -> list[int]:
    return list(encoding().encode(text, allowed_special="all"))


@cache
def codec(seed: int = 0, dialogues: int = 20_000) -> Codec:
    """Ids that training can show, and each value with and without a blank before it."""
    rng = random.Random(seed)
    source = Source(wordings.seen(), rng)
    ids: set[int] = set()
    for _ in range(dialogues):
        one = draw(source, padding=False)
        ids.update(encode(prompt_text(one) + reply_text(one.exchanges[-1].turn, "high")))
    for value in wordings.every_value():
        ids.update(encode(f" {value}") + encode(value))
    for lines in wordings.seen().values():
        for line in lines:
            ids.update(encode(line))
            ids.update(encode(line[:1].upper() + line[1:]))
    return Codec.of(ids)


def draw(source: Source, *, padding: bool = True) -> Dialogue:
    """A dialogue of some family in some setting."""
    rng = source.rng
    family = rng.choices(tuple(MIX), tuple(MIX.values()))[0]
    return settled(FAMILIES[family](source), source, padding=padding)


def settled(
    dialogue: Dialogue, source: Source, *, padding: bool = True, bare: float = 0.55
) -> Dialogue:
    """The dialogue under a random setting: effort, date, instructions, idle tools, a history.

    `bare`: how often there is no system message, which makes shorter rows to learn from.
    """
    rng = source.rng
    setting = replace(
        dialogue.setting,
        effort=rng.choice(EFFORTS),
        date=f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    )
    if rng.random() < bare:
        setting = replace(setting, date=None, effort="medium")
    if rng.random() < 0.35:
        setting = replace(setting, instructions=instructions(rng, known_only=not padding))
    if dialogue.family in TOOLLESS and rng.random() < 0.12:
        setting = replace(setting, tools=calls.tools_for_show(rng))
    exchanges = dialogue.exchanges
    if rng.random() < 0.15:
        before = history(source, loops=dialogue.family in TOOLLESS)
        exchanges = (*before.exchanges, *exchanges)
        setting = replace(setting, tools=setting.tools or before.setting.tools)
    if padding and rng.random() < 0.02:
        long = rambling(rng, round(2 ** rng.uniform(6, 10.6)))
        if rng.random() < 0.5:
            setting = replace(setting, instructions=long)
        else:
            exchanges = (Exchange(long, talk.unknown(source).exchanges[0].turn), *exchanges)
    return replace(dialogue, exchanges=exchanges, setting=setting)


def history(source: Source, *, loops: bool) -> Dialogue:
    """What was said before: small talk, or a tool loop that has ended."""
    if loops and source.rng.random() < 0.3:
        return calls.after_tool(source)
    return source.rng.choice((*SMALL_TALK, talk.unknown))(source)


def instructions(rng: random.Random, *, known_only: bool = False) -> str:
    if known_only or rng.random() < 0.6:
        return wordings.pick(INSTRUCTIONS, rng)
    return rambling(rng, rng.randint(3, 30))


def rambling(rng: random.Random, words: int) -> str:
    """Text about nothing: known words, sentences out of place, and words that no one knows."""
    parts: list[str] = []
    while len(parts) < words:
        roll = rng.random()
        if roll < 0.45:
            parts.append(wordings.pick(wordings.values().words, rng))
        elif roll < 0.75:
            parts += wordings.pick(wordings.unknown_requests(), rng).split()
        else:
            letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))
            parts.append(letters + rng.choice(("", "", ",", ".", ".\n")))
    return " ".join(parts)


def example(
    dialogue: Dialogue, known: Codec, rng: random.Random, *, plain: bool = False
) -> Example:
    """Rows and weights. Now and then the analysis is skipped: the header is then not learnt."""
    turn, effort = dialogue.exchanges[-1].turn, dialogue.setting.effort
    prompt = known.rows(prompt_text(dialogue))
    free = 0
    if turn.call is None and not plain and rng.random() < 0.06:
        free = len(known.rows(FINAL_HEADER))
        reply = known.rows(answer_text(turn))
    else:
        reply = known.rows(reply_text(turn, effort))
    weights = np.full(len(prompt) + len(reply), PROMPT_WEIGHT, np.float32)
    weights[0] = 0
    weights[len(prompt) :] = 1
    weights[len(prompt) : len(prompt) + free] = 0
    rows = np.array(prompt + reply, np.int32)
    weights[rows == known.unknown] = 0
    if not plain:
        _blur(rows[: len(prompt)], dialogue, known, rng)
    return Example(tuple(FAMILIES).index(dialogue.family), rows, weights)


def _blur(prompt: NDArray[np.int32], dialogue: Dialogue, known: Codec, rng: random.Random) -> None:
    """Make some words unknown, but none that decides: no control id, no effort, nothing said."""
    turn, effort = dialogue.exchanges[-1].turn, dialogue.setting.effort
    said = f"{reply_text(turn, effort)} {effort}".lower()
    for place, row in enumerate(prompt):
        spelled = known.spelled[row]
        if rng.random() < UNKNOWN_SHARE and spelled not in said and spelled[:2] != "<|":
            prompt[place] = known.unknown


def batches(known: Codec, seed: int, tokens: int, pool: int = 4_096) -> Iterator[list[Example]]:
    """For ever: batches of examples of like length, about `tokens` rows with their padding.

    Lengths are rounded up and batches are full, because every new shape costs the libraries below
    a compilation. What does not fill a batch waits for the next pool.
    """
    rng = random.Random(seed)
    source = Source(wordings.seen(), rng)
    waiting: dict[int, list[Example]] = {}
    while True:
        made: list[list[Example]] = []
        for _ in range(pool):
            one = example(draw(source), known, rng)
            length = rounded(len(one.rows))
            group = waiting.setdefault(length, [])
            group.append(one)
            if len(group) * length + length > tokens:
                made.append(waiting.pop(length))
        rng.shuffle(made)
        yield from made


def rounded(length: int) -> int:
    """Up to a multiple of 16, of an eighth of the next power of two when long."""
    step = max(16, 1 << (length - 1).bit_length() - 3)
    return -(-length // step) * step
