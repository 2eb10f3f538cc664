"""Transcripts: ids as gpt-oss writes them, well and badly, and the law that each must obey.

`transcripts.jsonl` holds one a line. A script of your own needs `written` or `ids` in each line:

- `written`: text with control ids spelled out, or a list of such texts, of lists of raw ids, and of
  `{"plain": …}`, whose marks are ordinary text
- `ids`: the same as ids of o200k_harmony, which `python -m responses_conformance.transcripts.write
  FILE` fills in; and `mark`, those of the user message that asks for this line
- `finish`: `stop`, or `length` for an engine whose budget ends
- `tools`: the functions that the request offers
- `law`: `text`, what the user must read, in order, and no more than this and `may`; `calls`, each
  with its arguments, or several that are right; `may_call`, names of calls that are no fault
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("transcripts.jsonl")


@dataclass(frozen=True)
class Law:
    """What a server must make of a transcript."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each name with the arguments that are right."""
    may: tuple[str, ...] = ()
    may_call: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """What an engine plays."""

    name: str
    ids: tuple[int, ...]
    finish: Literal["stop", "length"] = "stop"
    mark: tuple[int, ...] = ()
    kind: str = ""
    why: str = ""
    tools: tuple[str, ...] = ()
    law: Law = field(default_factory=Law)
    number: int = 0

    @property
    def wish(self) -> str:
        """The user message that asks for it."""
        return wish(self.number)


def wish(number: int) -> str:
    return f"Play transcript #{number:03d}."


def load(path: Path | None = None) -> list[Transcript]:
    """The transcripts of a file; None for those of the kit."""
    lines = (path or FILE).read_text("utf-8").splitlines()
    return [_read(number, json.loads(line)) for number, line in enumerate(filter(None, lines), 1)]


def _read(number: int, line: dict[str, Any]) -> Transcript:
    if "ids" not in line:
        from responses_conformance.transcripts.write import filled

        line = filled(number, line)
    law = line.get("law", {})
    calls = tuple(
        (name, (right,) if isinstance(right, str) else tuple(right))
        for name, right in law.get("calls", ())
    )
    return Transcript(
        name=line.get("name", f"line_{number}"),
        ids=tuple(line["ids"]),
        finish=line.get("finish", "stop"),
        mark=tuple(line.get("mark", ())),
        kind=line.get("kind", ""),
        why=line.get("why", ""),
        tools=tuple(line.get("tools", ())),
        law=Law(
            tuple(law.get("text", ())),
            calls,
            tuple(law.get("may", ())),
            tuple(law.get("may_call", ())),
        ),
        number=number,
    )
