"""Deferred tools in words: the list in the prompt, what a search finds, and how tools are defined.

Knows accepted tools; knows no item and no run.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from trt_responses.accept.accepted import Tool
from trt_responses.wire.known_tools import made_once

LINE_CHARS, LISTED = 120, 100
"""Of the list in the prompt: the length of a line, and how many there are at most."""
FOUND = 8
"""Tools that a search of the server finds, unless the model wants fewer or more."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[\u3040-\u9fff]|[^\W_]+")
"""A word of any alphabet; each sign of Chinese and Japanese, which are written without spaces."""


@made_once
def listing(tools: Sequence[Tool]) -> str:
    """The deferred tools, a line each; those of a namespace are one line."""
    lines: dict[str, str] = {}
    for tool in tools:
        if tool.deferred:
            first = tool.description.strip().partition("\n")[0]
            name = tool.callee.namespace or tool.name
            line = f"{name}: {first}" if first else name
            lines.setdefault(name, line[:LINE_CHARS])
    shown = list(lines.values())[:LISTED]
    if more := len(lines) - len(shown):
        shown.append(f"… and {more} more")
    return "\n".join(("Tools that you can call once a search has found them:", *shown))


def definitions(tools: Iterable[Tool]) -> str:
    """Tools as the model reads of them behind a search."""
    lines = [
        json.dumps(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            ensure_ascii=False,
        )
        for tool in tools
    ]
    if not lines:
        return "No tool was found: search in other words."
    return "\n".join(("You can call these functions now:", *lines))


class Index:
    """Finds tools by words of their names, descriptions and arguments."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = [tool for tool in tools if tool.deferred]
        self._words = [Counter(_words_of(tool)) for tool in self._tools]
        self._rarity: Counter[str] = Counter(word for words in self._words for word in words)

    def find(self, query: str, limit: int = FOUND) -> list[Tool]:
        """The tools that fit best; a rare word counts for more, and so does one in a name."""
        wanted = dict.fromkeys(_words(query))
        scores = [self._score(wanted, words) for words in self._words]
        best = sorted(range(len(scores)), key=lambda n: -scores[n])[: max(1, limit)]
        return [self._tools[n] for n in best if scores[n] > 0]

    def _score(self, wanted: Iterable[str], words: Counter[str]) -> float:
        count = len(self._tools)
        return sum(
            math.log(1 + count / self._rarity[word]) * words[word] / (words[word] + 1)
            for word in wanted
            if word in words
        )


index = made_once(Index)
"""The index of a list of tools, made once for each."""


def _words_of(tool: Tool) -> list[str]:
    arguments = (tool.parameters or {}).get("properties")
    names = " ".join(arguments) if isinstance(arguments, dict) else ""
    return [*_words(tool.name) * 3, *_words(tool.description), *_words(names)]


def _words(text: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in WORD.findall(text)]
