"""Transcripts with turns of a tool that the server runs: the whole app, on an engine and a tool
that replay.

`python -m tests.support.tool_transcripts --write NAME…` writes what the named ones (or all) give
now into their files, for a person to read before it counts as expected.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.replay import ids_of
from tests.support.scripted.engine import Script
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import served, vocabulary
from trt_responses.features.explain.transcript import compact, summary, written
from trt_responses.tool import ToolAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from tests.support.asgi import Call, Json
    from tests.support.served import Served

FOLDER = Path(__file__).parents[1] / "transcripts" / "tools"
TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
ASKED: Json = {"tools": [TOOL], "include": ["code_interpreter_call.outputs"]}
MINTED = re.compile(r"\b(msg|rs|ci|fc|call|resp)_[0-9A-Za-z]{20,}")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model wrote in one turn, and how the engine ended it."""

    ids: tuple[int, ...]
    finish: Any = "stop"

    def script(self, size: int) -> Script:
        steps = tuple(self.ids[at : at + size] for at in range(0, len(self.ids), size))
        return Script(steps, self.finish)

    def cut(self, length: int) -> Turn:
        return Turn(self.ids[:length], "length")


@dataclass(frozen=True, slots=True)
class ToolTranscript:
    name: str
    source: Json

    @property
    def asked(self) -> Json:
        more: Json = self.source["asked"]
        return ASKED | more | {"tools": [TOOL, *more.get("tools", ())]}

    @property
    def turns(self) -> list[Turn]:
        return [
            Turn(ids_of(turn["written"], vocabulary()), turn["finish"])
            for turn in self.source["turns"]
        ]

    def tool(self, times: int = 1) -> ScriptedTool:
        """It gives its answers so many times over."""
        answers = [ToolAnswer(one["text"], one["failed"]) for one in self.source["answers"]]
        return ScriptedTool(*(answers or [ToolAnswer("")]) * times)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> ToolTranscript:
    source = json.loads((FOLDER / f"{name}.json").read_text())
    assert source["name"] == name
    return ToolTranscript(name, source)


def playing(
    transcript: ToolTranscript, *plays: Sequence[Turn], sizes: Sequence[int] = ()
) -> AbstractAsyncContextManager[Served]:
    """An app that makes these plays one after another, each in steps of so many ids, or of 3."""
    sized = zip(plays, sizes or repeat(3), strict=False)
    scripts = [turn.script(size) for turns, size in sized for turn in turns]
    return served(*scripts, tools=[transcript.tool(len(plays))])


async def played(transcript: ToolTranscript) -> tuple[Call, Served]:
    async with playing(transcript, transcript.turns) as app:
        return await app.client.create(**transcript.asked, stream=True), app


def named(events: Sequence[Json]) -> list[Json]:
    """The events, with ids that a transcript can name."""
    known: dict[str, str] = {}
    counts: dict[str, int] = {}

    def name(found: re.Match[str]) -> str:
        if found[0] not in known:
            number = counts[found[1]] = counts.get(found[1], -1) + 1
            known[found[0]] = f"{found[1]}_{number}"
        return known[found[0]]

    renamed: list[Json] = orjson.loads(MINTED.sub(name, orjson.dumps(events).decode()))
    return renamed


def told(call: Call) -> Json:
    return {"log": compact(named(call.events)), "response": summary(call.events[-1]["response"])}


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] != ["--write"]:
        raise SystemExit(__doc__)
    for name in arguments[1:] or names():
        transcript = load(name)
        call, _ = asyncio.run(played(transcript))
        (FOLDER / f"{name}.json").write_text(written(transcript.source | told(call)))


if __name__ == "__main__":
    main(sys.argv[1:])
