"""Steered transcripts: the real plan, gates, reader and run, on an engine that replays segments.

A segment's ids are what the model wrote; what the run requests, its forced ids and its guide, is
part of what a transcript expects. `python -m tests.support.steering --write NAME…` writes what the
named transcripts (or all) give now into their files, for a person to read before it counts as
expected.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.double.llm import Double, RequestError, nothing_ignored
from tests.support.double.results import Fail
from tests.support.double.results import Script as Said
from tests.support.drafts import bare_draft
from tests.support.replay import PROMPT, ids_of, parsed, plain
from tests.support.requests import accepted
from tests.support.scripted.engine import Die, Script, ScriptedEngine, Stall
from trt_responses.engine import GenerateOptions
from trt_responses.engines.ask import CANARY
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.features.explain.transcript import Mint, compact, summary, written
from trt_responses.features.guides.steering import GuidedSteering
from trt_responses.features.run_traces.trace import RECORDER
from trt_responses.harmony.dialect import harmony
from trt_responses.harmony.read.reader import Reader, Tables
from trt_responses.log.log import Cursor, Log
from trt_responses.log.machine import Machine
from trt_responses.run.generation import Generation
from trt_responses.run.run import Run
from trt_responses.steering.tools import callees
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.double.words import SamplingParams
    from tests.support.replay import Ending, Json
    from trt_responses.engine import Chunk, Engine, GuideKind, Handle, Limits, Sink
    from trt_responses.language.steering import SteeringPlan
    from trt_responses.run.facts import Listener
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.wire.response import Response

FOLDER = Path(__file__).parents[1] / "transcripts" / "steering"
ENDS = frozenset({CONTROL.endoftext})
GUIDES: Mapping[GuideKind, frozenset[int]] = {"json_schema": ENDS, "regex": ENDS}
CONTEXT = 4096
BUDGET = 2000
FAULT = "out of memory"


@dataclass(frozen=True, slots=True)
class Part:
    """What the model wrote in one segment, and how the engine ended it."""

    steps: tuple[tuple[int, ...], ...]
    finish: Ending = "stop"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token_id for step in self.steps for token_id in step)

    def chunked(self, size: int) -> Part:
        ids = self.ids
        return replace(self, steps=tuple(ids[a : a + size] for a in range(0, len(ids), size)))

    def cut(self, length: int, finish: Ending) -> Part:
        return Part(tuple((i,) for i in self.ids[:length]), finish)

    def ended_by(self, token_id: int) -> Part:
        """With another id at the end of its guide."""
        swap = {CONTROL.endoftext: token_id}
        return replace(self, steps=tuple(tuple(swap.get(i, i) for i in s) for s in self.steps))


@dataclass(frozen=True, slots=True)
class Steered:
    name: str
    source: Json
    parts: tuple[Part, ...]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str, vocabulary: Vocabulary) -> Steered:
    source = json.loads((FOLDER / f"{name}.json").read_text())
    assert source["name"] == name
    parts = tuple(
        Part(tuple(ids_of(step, vocabulary) for step in part["steps"]), part["finish"])
        for part in source["segments"]
    )
    return Steered(name, source, parts)


def scripted(parts: Sequence[Part]) -> Engine:
    def script(part: Part) -> Script:
        tail = {"error": (Die(FAULT),), "abort": (Stall(),)}.get(part.finish, ())
        return Script((*part.steps, *tail), "length" if part.finish == "length" else "stop", 4)

    return ScriptedEngine([script(part) for part in parts], context_tokens=CONTEXT, guides=GUIDES)


def trtllm_double(parts: Sequence[Part]) -> Engine:
    """TensorRT-LLM's adapter over the stand-in for its package: its guides end otherwise."""
    left = list(parts)

    def say(prompt_ids: Sequence[int], params: SamplingParams) -> Said:
        guide = params.guided_decoding
        if guide and CANARY.guide and guide.json == CANARY.guide.source:
            return Said(((CONTROL.return_,),))
        if len(prompt_ids) == 1:
            return Said(((CONTROL.return_,),))  # its probe
        part = left.pop(0) if len(left) > 1 else left[0]
        steps = part.ended_by(CONTROL.return_).steps
        tail = (Fail(RequestError(FAULT)),) if part.finish == "error" else ()
        return Said((*steps, *tail), cached_tokens=4, full=part.finish == "length")

    arguments = {
        "max_seq_len": CONTEXT,
        "max_batch_size": 4,
        "max_num_tokens": CONTEXT,
        "guided_decoding_backend": "xgrammar",
    }
    package = Double(say).package
    return TrtLlmEngine(
        Path("checkpoint"),
        arguments,
        package=package,
        find_ignored=nothing_ignored,
        environment={},
    )


class _Cached:
    """A sink between, that notes how much of the prompt was cached."""

    def __init__(self, sink: Sink, note: Callable[[int], None]) -> None:
        self._sink = sink
        self._note = note

    def push(self, chunk: Chunk, /) -> None:
        if chunk.cached_tokens is not None:
            self._note(chunk.cached_tokens)
        self._sink.push(chunk)


class Noting:
    """An engine that records its requests, and the cached part of each prompt."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[tuple[Sequence[int], GenerateOptions]] = []
        self.cached: list[tuple[Sequence[int], int]] = []
        self.start, self.stop = engine.start, engine.stop
        self.health = engine.health

    def limits(self) -> Limits:
        return self._engine.limits()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        self.asked.append((tuple(prompt_ids), options))
        noting = _Cached(sink, lambda count: self.cached.append((prompt_ids, count)))
        return self._engine.generate(prompt_ids, options, noting)


class Play:
    """One run of what a request asks for."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        tables: Tables,
        asked: Json,
        engine: Engine,
        *,
        tokens: int = BUDGET,
        listener: Listener | None = None,
    ) -> None:
        self._listener = listener
        self._accepted = accepted(asked)
        self.vocabulary = vocabulary
        self.engine = Noting(engine)
        self._steering = GuidedSteering(harmony(vocabulary))
        self._tokens = self._accepted.max_output_tokens or tokens
        self.tools = self._accepted.tools
        first = replace(self._accepted.echo, id="resp_0", created_at=1_700_000_000, model="gpt-oss")
        self.log = Log(first)
        self.machine = Machine(self.log, callees(self.tools), Mint())
        self.reader = Reader(tables)

    async def play(self) -> Response:
        await self.engine.start()
        try:
            return await self.make()
        finally:
            await self.engine.stop(1)

    async def make(self) -> Response:
        return await (await self.run()).make()

    async def plan(self) -> SteeringPlan:
        guides = self.engine.limits().guides
        return (await self._steering.request(self._accepted, guides)).plan(self._tokens)

    async def run(self) -> Run:
        generation = Generation(
            prompt_ids=PROMPT,
            plan=await self.plan(),
            options=GenerateOptions(max_tokens=0, stop_ids=(), request_id="resp_0"),
            engine=self.engine,
            reader=self.reader,
            machine=self.machine,
            log=self.log,
            clock_ns=lambda: 5,
            recorder=RECORDER,
        )
        return Run(generation, bare_draft(self._listener), _nowhere)

    def events(self) -> list[Json]:
        return parsed(Cursor(self.log, after=-1).take())

    def snapshot(self) -> Json:
        last: Json = plain(self.log.response)
        return last

    def requests(self) -> list[Json]:
        """The engine's requests, segment by segment."""
        return [
            {
                "prompt_ends": self.vocabulary.text(list(prompt))[-48:]
                if len(prompt) > len(PROMPT)
                else "",
                "guide": options.guide.source if options.guide else None,
                "max_tokens": options.max_tokens,
            }
            for prompt, options in self.engine.asked
        ]


async def _nowhere(last: Response, run: Run) -> None:
    """Nothing here is stored."""


def play(
    transcript: Steered,
    vocabulary: Vocabulary,
    tables: Tables,
    engine: Callable[[Sequence[Part]], Engine] = scripted,
    listener: Listener | None = None,
) -> Play:
    asked = transcript.source["asked"]
    played = Play(vocabulary, tables, asked, engine(transcript.parts), listener=listener)
    asyncio.run(asyncio.wait_for(played.play(), 300))
    return played


def told(played: Play) -> dict[str, Any]:
    return {
        "requests": played.requests(),
        "log": compact(played.events()),
        "response": summary(played.snapshot()),
        "repairs": dict(sorted(played.machine.repairs.items())),
    }


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] != ["--write"]:
        raise SystemExit(__doc__)
    vocabulary = vocabularies.load()
    tables = Tables.of(vocabulary)
    for name in arguments[1:] or names():
        transcript = load(name, vocabulary)
        given = told(play(transcript, vocabulary, tables))
        (FOLDER / f"{name}.json").write_text(written(transcript.source | given))


if __name__ == "__main__":
    main(sys.argv[1:])
