"""What a model is made to say: our own text, as Harmony ids, and what a client must get of it.

The texts are mixed so that no kind of token is left out: prose, Markdown, code, CJK and emoji, of
which many ids are only a part of a character. Knows ids; knows no server and no clock.
"""

from __future__ import annotations

import codecs
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trt_responses.tokens.vocabulary import Vocabulary

ANALYSIS_TOKENS = 64
LENGTHS = (448, 2048, 8192)
CHUNKS = (1, 4, 16)

TEXTS = (
    "A lighthouse keeper counts three kinds of weather: the kind that passes, the kind that "
    "stays, and the kind that sends a ship home early. He writes each of them down at noon. ",
    "## What to carry\n\n- a lamp with a **spare wick**\n- two ropes, one *dry*\n"
    "- the `tide.csv` of last month\n\n> Never trust a calm morning.\n\n"
    "| hour | height |\n|-----:|-------:|\n| 06 | 1.2 m |\n| 12 | 4.8 m |\n\n",
    "```python\ndef tide(hour: int, moon: float = 0.5) -> float:\n"
    '    """Height in metres."""\n    swing = 2.4 * math.cos(math.tau * hour / 12.42)\n'
    '    return round(swing + moon, 2)  # "good enough" for \\t tables\n```\n\n',
    "灯台守は正午に天気を記す。海は静かだが、夕方には風が変わるだろう。"
    "船长说，明天早上再出发。등대의 불빛은 멀리까지 보인다. ",
    "Signals: 🌊🌊⛵️ means wait, 🚩👩‍🚀🧭 means go, and 🇳🇴🪢🦭 means that the cook has made soup. ",
)
"""Shuffled anew in each round, so that no two stretches of a long answer are alike."""


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: all its ids, and the texts that they stand for."""

    token_ids: tuple[int, ...]
    reasoning: str
    answer: str

    def __len__(self) -> int:
        return len(self.token_ids)

    def steps(self, chunk: int) -> tuple[tuple[int, ...], ...]:
        """The ids as an engine gives them that takes `chunk` of them at a time."""
        ids = self.token_ids
        return tuple(ids[at : at + chunk] for at in range(0, len(ids), chunk))


def script(
    vocabulary: Vocabulary, answer_tokens: int, *, analysis_tokens: int | None = None
) -> Script:
    """Reasoning, shorter than the answer, then an answer of exactly so many tokens, by Harmony's
    rules."""
    if analysis_tokens is None:
        analysis_tokens = min(ANALYSIS_TOKENS, answer_tokens // 2)
    written = prose(vocabulary, analysis_tokens + answer_tokens)
    analysis = whole(vocabulary, written[:analysis_tokens])
    answer = whole(vocabulary, written[analysis_tokens:])
    start, channel, message = CONTROL.start, CONTROL.channel, CONTROL.message
    word = {name: ids(vocabulary, name) for name in ("analysis", "assistant", "final")}
    return Script(
        (
            *(channel, *word["analysis"], message, *analysis, CONTROL.end),
            *(start, *word["assistant"], channel, *word["final"], message),
            *(*answer, CONTROL.return_),
        ),
        vocabulary.text(analysis),
        vocabulary.text(answer),
    )


def ids(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(vocabulary.encoding.encode(text, disallowed_special=()))


def prose(vocabulary: Vocabulary, count: int) -> list[int]:
    """So many ids of running text, the same ones each time."""
    order = random.Random(count)
    texts = [ids(vocabulary, text) for text in TEXTS]
    running: list[int] = []
    while len(running) < count:
        order.shuffle(texts)
        for text in texts:
            running += text
    return running[:count]


def whole(vocabulary: Vocabulary, token_ids: list[int]) -> list[int]:
    """The same, with full stops where the cut went through a character."""
    full_stop = ids(vocabulary, ".")
    for start in range(len(token_ids)):
        if not _starts_whole(vocabulary, token_ids[start:]):
            continue
        for end in range(len(token_ids), 0, -1):
            kept = token_ids[start:end]
            if _decodes(vocabulary, kept):
                return full_stop * start + kept + full_stop * (len(token_ids) - end)
    return full_stop * len(token_ids)


def pieces(vocabulary: Vocabulary, token_ids: Sequence[int]) -> Iterator[str]:
    """What each id lets a client see: nothing while a character is not whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return (decoder.decode(vocabulary.token_bytes[token_id]) for token_id in token_ids)


def _starts_whole(vocabulary: Vocabulary, token_ids: list[int]) -> bool:
    return vocabulary.token_bytes[token_ids[0]][0] & 0xC0 != 0x80


def _decodes(vocabulary: Vocabulary, token_ids: list[int]) -> bool:
    try:
        b"".join(vocabulary.token_bytes[i] for i in token_ids).decode()
    except UnicodeDecodeError:
        return False
    return True
