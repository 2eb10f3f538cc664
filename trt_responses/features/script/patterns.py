"""Makes up a short text that a pattern of JSON Schema matches."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from random import Random

_PART = re.compile(
    r"\(\?(?:[=!]|<[=!])|\((?:\?:|\?P?<\w+>)?|(?:[*+?]|\{\d+(?:,\d*)?\})\??"
    r"|\[\^?(?:\\.|[^\]\\])*\]|\\(?:x..|u....|[pP]\{.*?\}|.)|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<least>\d+)(?P<to>,(?P<most>\d*))?\})\??")
CHARACTERS = ("abcdefgh", "ABCDEFGH", "0123456789", "".join(map(chr, range(32, 0x250))))
"""Those that are tried for a class, the first that have any it allows."""
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
UNKNOWN = re.compile(r"\(\?<?[=!]|\\[bBkpP1-9]")


class NoText(ValueError):
    """The part of a pattern that no text is made up for, as the end of a sentence."""


def paired(text: str) -> str:
    """The text with each pair of escaped surrogates as the character that it spells."""
    return _PAIR.sub(lambda pair: str(json.loads(f'"{pair[0]}"')), text)


def text_for(pattern: str, random: Random, least: int = 0) -> str:
    """A text that the pattern matches, of about `least` characters or more where it has room."""
    return _Writer(paired(pattern), random, least).alternatives(0)[0]


class _Writer:
    def __init__(self, pattern: str, random: Random, least: int) -> None:
        self._parts = _PART.findall(pattern)
        self._random = random
        self._least = least

    def alternatives(self, at: int) -> tuple[str, int]:
        """One of the alternatives that begin here, and where they end."""
        made = [""]
        while at < len(self._parts) and self._parts[at] != ")":
            if self._parts[at] == "|":
                made.append("")
                at += 1
                continue
            begin, (text, at) = at, self._atom(at)
            times, at = self._times(at)
            made[-1] += text * (times > 0)
            made[-1] += "".join(self._atom(begin)[0] for _ in range(times - 1))
        return self._random.choice(made), at

    def _atom(self, at: int) -> tuple[str, int]:
        part = self._parts[at]
        if UNKNOWN.match(part):
            raise NoText(f"its pattern has '{part}'")
        if part.startswith("("):
            text, at = self.alternatives(at + 1)
            return text, at + 1
        if part in "^$":
            return "", at + 1
        return (part if len(part) == 1 and part != "." else self._one_of(part)), at + 1

    def _one_of(self, part: str) -> str:
        found = _allowed(part)
        if not found:
            raise NoText(f"its pattern has '{part}'")
        return self._random.choice(found)

    def _times(self, at: int) -> tuple[int, int]:
        """How often the part before is repeated, and where that ends."""
        found = _REPEAT.fullmatch(self._parts[at]) if at < len(self._parts) else None
        if found is None:
            return 1, at
        least = int(found["least"] or (found["sign"] == "+"))
        most = max(least + 2, self._least)
        if found["sign"] == "?":
            most = 1
        elif found["sign"] is None:
            most = min(most, int(found["most"] or most)) if found["to"] else least
        return self._random.randint(least, most), at + 1


@lru_cache(maxsize=256)
def _allowed(part: str) -> str:
    """The first characters that a class or an escape allows; none for what cannot be read."""
    try:
        one = re.compile(part, re.ASCII | re.DOTALL)
    except re.error:
        return ""
    named = "".join(chr(int(code, 16)) for code in re.findall(r"\\u([0-9a-fA-F]{4})", part))
    allowed = ("".join(filter(one.fullmatch, each)) for each in (*CHARACTERS, named))
    return next(filter(None, allowed), "")
