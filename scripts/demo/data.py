"""What training draws: families in their shares, in settings, in batches.

Knows families and settings; what of a dialogue is learnt is not its business.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from scripts.demo import calls, talk, wide, wordings
from scripts.demo import words as spelled
from scripts.demo.asking import Source
from scripts.demo.conversation import EFFORTS, Dialogue, Exchange, prompt_text, reply_text
from scripts.demo.families import FAMILIES, TOOLLESS
from scripts.demo.knowledge import NUMBERS
from scripts.demo.rows import Codec, Example, encode, example
from scripts.demo.sums import SECONDS
from scripts.demo.talk import SMALL_TALK
from trt_responses.tokens.control import FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIX = {
    "greet": 7, "who": 6, "capital": 12, "echo": 9, "count": 6, "arithmetic": 20, "name_told": 4,
    "name_two_turns": 3, "name_three_turns": 6, "name_not_told": 3, "weather": 4, "time": 3,
    "choice": 4, "choice_apart": 5, "no_arguments": 3, "not_declared": 8, "after_tool": 8,
    "two_calls": 5, "after_two": 4, "json": 9, "help": 4, "unknown": 7, "strange_word": 42,
    "strange_place": 14, "schema": 75, "agent": 60, "python": 16, "stranger": 16, "prose": 50,
    "enum": 24, "tool": 90, "tool_idle": 10, "tool_missing": 5, "tool_told": 28,
    "tool_barred": 4,
}  # fmt: skip
"""How often training draws each family. The others have enough single calls."""
OFTEN = 100
"""Of 20,000 dialogues: a token that as many show gets a row of its own."""
LOWERED = frozenset(
    ("greet", "who", "capital", "count", "arithmetic", "help", "unknown", "stranger")
)
"""The families whose questions are now and then typed without case, which no answer copies."""
NEAR_TOOLS = frozenset(
    ("weather", "time", "choice", "choice_apart", "no_arguments", "not_declared", "after_tool")
)
"""The families that now and then have anybody's tools beside their own."""
BARE = {"arithmetic": 0.75}
EFFORT_SHARES = (2, 1, 2)
"""Of those with a system message: the others are of medium effort already."""
INSTRUCTIONS = (
    "You are a helpful assistant.", "You are a helpful assistant.", "Answer briefly.",
    "Be concise.", "Be nice.", "You are a friendly assistant.", "Always answer in one sentence.",
    "Use the functions when they help.", "You help customers of a shop.", "Be precise.",
    "You are an expert.", "Answer in English.", "You are a coding agent.", "Do not make things up.",
    "Today you work for a bank.", "Think before you answer.", "You speak politely.",
)  # fmt: skip


@cache
def codec(seed: int = 0, dialogues: int = 20_000) -> Codec:
    """Ids that training shows often, and those of facts to remember. All others are unlisted: a row
    that is learnt seldom falls behind the others, where one that is made keeps up."""
    rng = random.Random(seed)
    source = Source(wordings.seen(), rng)
    seen: Counter[int] = Counter()
    for _ in range(dialogues):
        one = draw(source, padding=False)
        found = set(encode(prompt_text(one)))
        for effort in EFFORTS:
            found.update(encode(reply_text(one.exchanges[-1].turn, effort)))
        seen.update(found)
    ids = {token for token, count in seen.items() if count >= OFTEN or token >= FIRST_CONTROL_ID}
    facts = (*wordings.values().capitals.items(), *((str(n), str(n)) for n in range(NUMBERS)))
    for text in {text for fact in facts for text in fact}:
        ids.update(encode(f" {text}") + encode(text))
    return Codec.of(ids)


def draw(source: Source, *, padding: bool = True) -> Dialogue:
    """A dialogue of some family in some setting."""
    rng = source.rng
    family = rng.choices(tuple(MIX), tuple(MIX.values()))[0]
    return settled(FAMILIES[family](source), source, padding=padding, bare=BARE.get(family, 0.55))


def settled(
    dialogue: Dialogue, source: Source, *, padding: bool = True, bare: float = 0.0
) -> Dialogue:
    """The dialogue under a random setting: effort, date, instructions, idle tools, a history.

    `bare`: how often there is no system message, which makes shorter rows to learn from.
    """
    rng = source.rng
    date = f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    effort = rng.choices(EFFORTS, EFFORT_SHARES if bare else None)[0]
    setting = replace(dialogue.setting, effort=effort, date=date)
    if rng.random() < 0.04 and dialogue.family != "python":
        setting = replace(setting, python=rng.choice(SECONDS))
    if setting.python is None and rng.random() < bare:
        setting = replace(setting, date=None, effort="medium")
    if rng.random() < 0.35:
        setting = replace(setting, instructions=instructions(rng, known_only=not padding))
    if dialogue.family in TOOLLESS and rng.random() < 0.12:
        setting = replace(setting, tools=calls.tools_for_show(rng))
    exchanges = dialogue.exchanges
    if dialogue.family in LOWERED and rng.random() < 0.3:
        *earlier, last = exchanges
        exchanges = (*earlier, replace(last, user=lowered(last.user, rng)))
    if dialogue.family in NEAR_TOOLS and padding and rng.random() < 0.4:
        setting = replace(setting, tools=wide.with_others(setting.tools, rng))
    if rng.random() < 0.2:
        before = history(source, loops=dialogue.family in TOOLLESS)
        exchanges = (*before.exchanges, *exchanges)
        setting = replace(setting, tools=setting.tools or before.setting.tools)
    if padding and rng.random() < 0.03:
        long = rambling(rng, round(2 ** rng.uniform(5, 11.8)))
        if rng.random() < 0.5:
            setting = replace(setting, instructions=long)
        else:
            exchanges = (Exchange(long, talk.unknown(source).exchanges[0].turn), *exchanges)
    return replace(dialogue, exchanges=exchanges, setting=setting)


def lowered(text: str, rng: random.Random) -> str:
    """As people type in a hurry."""
    lower = text.lower().rstrip("?.!" if rng.random() < 0.7 else "")
    return lower.replace("'", "") if rng.random() < 0.6 else lower


def history(source: Source, *, loops: bool) -> Dialogue:
    """The conversation before: small talk, or a tool loop that has ended."""
    if loops and source.rng.random() < 0.3:
        return calls.after_tool(source)
    return source.rng.choice((*SMALL_TALK, talk.unknown, talk.strange_word))(source)


def instructions(rng: random.Random, *, known_only: bool = False) -> str:
    if known_only or rng.random() < 0.6:
        return wordings.pick(INSTRUCTIONS, rng)
    return rambling(rng, rng.randint(3, 30))


def rambling(rng: random.Random, parts_count: int) -> str:
    """Text about nothing: any words, sentences out of place, and words that no one knows."""
    parts: list[str] = []
    while len(parts) < parts_count:
        roll = rng.random()
        if roll < 0.2:
            parts.append(spelled.text(rng, most=8))
        elif roll < 0.5:
            parts.append(wordings.pick(wordings.values().words, rng))
        elif roll < 0.75:
            parts += wordings.pick(wordings.unknown_requests(), rng).split()
        else:
            letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))
            parts.append(letters + rng.choice(("", "", ",", ".", ".\n")))
    return " ".join(parts)


def batches(
    known: Codec,
    seed: int,
    tokens: int,
    pool: int = 4_096,
    drawn: Callable[[Source], Dialogue] = draw,
) -> Iterator[list[Example]]:
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
            one = example(drawn(source), known, rng)
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
