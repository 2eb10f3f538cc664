"""Transcripts, and a run over one: the real reader, machine, log and run on the scripted engine.

Time, ids and the engine's steps are arguments, so a transcript gives the same log every time.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tests.support.drafts import bare_draft
from tests.support.scripted.engine import Die, Script, ScriptedEngine, Stall, StepClock
from tests.support.turns import turn
from trt_responses.engine import GenerateOptions
from trt_responses.features.explain.transcript import Mint, callees_of
from trt_responses.features.run_traces.trace import RECORDER
from trt_responses.harmony.read.reader import Reader
from trt_responses.language.steering import Segment
from trt_responses.log.log import Cursor, Log
from trt_responses.log.machine import Machine
from trt_responses.run.generation import Generation
from trt_responses.run.run import Run
from trt_responses.tokens.control import CONTROL
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.engine import Engine
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.reader import Reader as AnyReader
    from trt_responses.language.reader import Span
    from trt_responses.run.facts import Listener
    from trt_responses.run.run import Commit
    from trt_responses.tokens.vocabulary import Vocabulary

Json = dict[str, Any]
Ending = Literal["stop", "length", "error", "abort"]

FOLDER = Path(__file__).parents[1] / "transcripts"
PROMPT = tuple(range(1000, 1012))
"""Stands for a rendered prompt: nothing after the renderer looks inside."""
ENGINE_FAULT = "out of memory"


@dataclass(frozen=True, slots=True)
class Part:
    """One engine request: ids that are forced, ids as the model wrote them, and how it ended."""

    steps: tuple[tuple[int, ...], ...]
    finish: Ending = "stop"
    forced: tuple[int, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token_id for step in self.steps for token_id in step)

    def chunked(self, size: int) -> Part:
        ids = self.ids
        return replace(self, steps=tuple(ids[a : a + size] for a in range(0, len(ids), size)))

    def script(self) -> Script:
        tail = {"error": (Die(ENGINE_FAULT),), "abort": (Stall(),)}.get(self.finish, ())
        finish: Literal["stop", "length"] = "length" if self.finish == "length" else "stop"
        return Script((*self.steps, *tail), finish, cached_tokens=4)


@dataclass(frozen=True, slots=True)
class Transcript:
    name: str
    source: Json
    tools: tuple[str, ...]
    parts: tuple[Part, ...]

    def with_last(self, part: Part) -> Transcript:
        return replace(self, parts=(*self.parts[:-1], part))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str, vocabulary: Vocabulary) -> Transcript:
    return transcript_from(load_source(name), vocabulary)


def load_source(name: str) -> Json:
    source: Json = json.loads((FOLDER / f"{name}.json").read_text())
    assert source["name"] == name
    return source


def transcript_from(source: Json, vocabulary: Vocabulary) -> Transcript:
    """The transcript that a file's content is."""
    parts = tuple(
        Part(
            steps=tuple(ids_of(step, vocabulary) for step in part["steps"]),
            finish=part["finish"],
            forced=ids_of(part.get("forced", ""), vocabulary),
        )
        for part in source["segments"]
    )
    return Transcript(source["name"], source, tuple(source["tools"]), parts)


def ids_of(written: str | Sequence[int | str], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Text with control ids spelled out, or a list of such texts and raw ids."""
    if isinstance(written, str):
        return tuple(vocabulary.encoding.encode(written, allowed_special="all"))
    return tuple(
        token_id
        for piece in written
        for token_id in (ids_of(piece, vocabulary) if isinstance(piece, str) else (piece,))
    )


class _Parts:
    """A plan that is written down: the segments of a transcript, while the model goes on."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._left = list(parts)

    def next(self, reader: AnyReader) -> Segment | None:
        if reader.ended or not self._left:
            return None
        part = self._left.pop(0)
        between = (CONTROL.end,) if self._left else ()
        return Segment(100_000, (CONTROL.return_, CONTROL.call, *between), part.forced)


async def _stored_nowhere(last: Response, run: Run) -> None:
    pass


class Stage:
    """A run over scripted segments, ready to be made."""

    def __init__(
        self,
        tables: Tables | None,
        parts: Sequence[Part],
        tools: Iterable[str] = (),
        *,
        commit: Commit = _stored_nowhere,
        listener: Listener | None = None,
        response: Response | None = None,
        engine: Engine | None = None,
        reader: AnyReader | None = None,
    ) -> None:
        """`tables` are those of a Harmony reader, where no other reader is handed in."""
        self.clock = StepClock.manual(settle_turns=3)
        self.scripted = ScriptedEngine([part.script() for part in parts], clock=self.clock)
        self.log = Log(response or Response("resp_0", 1_700_000_000, "gpt-oss"))
        self.machine = Machine(self.log, callees_of(tools), Mint())
        if reader is None:
            assert tables is not None
            reader = Reader(tables)
        self.reader = reader
        self._aborts = bool(parts) and parts[-1].finish == "abort"
        self._segments = len(parts)
        self.generation = Generation(
            prompt_ids=PROMPT,
            plan=_Parts(parts),
            options=GenerateOptions(max_tokens=0, stop_ids=(), request_id="resp_0"),
            engine=engine or self.scripted,
            reader=self.reader,
            machine=self.machine,
            log=self.log,
            clock_ns=lambda: 5,
            recorder=RECORDER,
        )
        self.run = Run(self.generation, bare_draft(listener), commit)

    async def begin(self) -> asyncio.Task[Response]:
        """Starts the run, up to its engine request; no step has been made."""
        await self.scripted.start()
        making = asyncio.create_task(self.run.make())
        await turn()
        return making

    async def play(self) -> Response:
        """To the end, one step of the engine at a time."""
        making = await self.begin()
        while not making.done():
            await self.clock.step()
            if self._aborts and self._stalled():
                self.run.cancel()
        return making.result()

    def _stalled(self) -> bool:
        """Whether the last segment's request has sent all that it ever will."""
        requests = self.scripted.requests
        last = requests[-1]
        return (
            len(requests) == self._segments
            and last.state == "running"
            and self.scripted.stands_still
        )

    def frames(self, after: int = -1) -> bytes:
        return Cursor(self.log, after=after).take()

    def events(self) -> list[Json]:
        return parsed(self.frames())


def staged(transcript: Transcript, tables: Tables) -> Stage:
    return Stage(tables, transcript.parts, transcript.tools)


async def followed(log: Log, *, pauses: int = 0) -> list[bytes]:
    """What a reader takes while a log is made, to its end; it rests for turns of the loop."""
    cursor, frames_so_far = Cursor(log), list[bytes]()
    while True:
        if frames := cursor.take():
            frames_so_far.append(frames)
            await turn(pauses)
        elif log.closed:
            return frames_so_far
        else:
            await log.changed()


def parsed(frames: bytes) -> list[Json]:
    """Frames as a client reads them; the event's name and its type must be one."""
    events = []
    for frame in frames.split(b"\n\n")[:-1]:
        name, data = frame.split(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    return events


def plain(value: object) -> Any:
    """One of our values as JSON has it."""
    return orjson.loads(orjson.dumps(value))


AUTHOR = "<|start|>assistant"


def normalised(kept: Sequence[int], spans: Sequence[Span]) -> list[int]:
    """What was kept, as later prompts hold it: `<|call|>` behind a call, else `<|end|>`."""
    ids: list[int] = []
    for span in spans:
        ids += kept[span.start : span.end - (span.terminator is not None)]
        ids.append(CONTROL.call if span.recipient else CONTROL.end)
    return ids
