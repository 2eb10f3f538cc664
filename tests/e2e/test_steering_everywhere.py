"""What steering asks of an engine, on each of three: one that replays scripts, TensorRT-LLM's
adapter over the stand-in for its package, llama.cpp with a random model. One claim per test.

Budget: 6 s on one core.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.double.llm import Double
from tests.support.double.results import Script as Said
from tests.support.gather import generated
from tests.support.replay import PROMPT, ids_of
from tests.support.schema_judge import valid
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.steering import GUIDES, Noting, Play
from trt_responses.engine import Chunk, GenerateOptions
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.engines.stand_ins import StandIns
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.harmony.read.reader import Tables
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.double.words import SamplingParams
    from trt_responses.engine import Engine, Handle, Sink
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = pytest.mark.xdist_group("steering_everywhere")  # one process loads its engines


Json = dict[str, Any]

CONTEXT = 1024
NAMES = ("get", "get_it", "get_item", "go", "get_")
FLAG = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "name": name, "parameters": FLAG} for name in NAMES]
FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": FLAG, "strict": True}}
NO_THOUGHT = {"effort": "none"}
GUIDE_ENDS = "<|endoftext|>"
BODY = '{"ok":true}' + GUIDE_ENDS
OTHERS = tuple(n for n in range(VOCABULARY_SIZE) if n != CONTROL.message)


class Words:
    """What a model is to write, request by request; where there is nothing, it writes itself."""

    def __init__(self) -> None:
        self.left: list[tuple[int, ...]] = []

    def next(self) -> tuple[int, ...]:
        return self.left.pop(0) if self.left else (CONTROL.return_,)


class Heard(Noting):
    """Notes every chunk; `more` ids follow each last one, as of an engine that runs ahead."""

    more: tuple[int, ...] = ()

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.chunks: list[list[Chunk]] = []

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        heard: list[Chunk] = []
        self.chunks.append(heard)
        ahead = self.more if options.guide is not None else ()
        return super().generate(prompt_ids, options, _Ear(sink, heard, ahead))


class _Ear:
    def __init__(self, sink: Sink, heard: list[Chunk], ahead: tuple[int, ...]) -> None:
        self._sink, self._heard, self._ahead = sink, heard, ahead

    def push(self, chunk: Chunk, /) -> None:
        self._heard.append(chunk)
        if chunk.finish is not None:
            chunk = chunk._replace(token_ids=(*chunk.token_ids, *self._ahead))
        self._sink.push(chunk)


class Opened(Noting):
    """An engine whose model has nothing to say, but for what it is told to say where it is free."""

    def __init__(self, engine: Engine, words: Words) -> None:
        super().__init__(engine)
        self._words = words

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        if options.guide is not None or not self._words.left:
            return super().generate(prompt_ids, options, sink)
        said = self._words.next()
        end = Chunk(said, cached_tokens=0, finish="stop", stop_id=said[-1])
        asyncio.get_running_loop().call_soon(sink.push, end)
        return _Over()


class _Over:
    def abort(self) -> None:
        """It is over already."""


def scripted(words: Words) -> Engine:
    def script(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        return Script(tuple((token_id,) for token_id in words.next()))

    return ScriptedEngine(script, context_tokens=CONTEXT, guides=GUIDES)


def double(words: Words) -> Engine:
    def say(prompt_ids: Sequence[int], params: SamplingParams) -> Said:
        swap = {CONTROL.endoftext: CONTROL.return_}  # how its guides end
        return Said(tuple((swap.get(token_id, token_id),) for token_id in words.next()))

    arguments = {"max_seq_len": CONTEXT, "max_batch_size": 4, "max_num_tokens": CONTEXT}
    return TrtLlmEngine(
        Path("checkpoint"),
        arguments | {"guided_decoding_backend": "xgrammar"},
        package=Double(say).package,
        environment={},
    )


class Stage:
    """One engine, started, and the requests that a test makes of it."""

    def __init__(
        self, name: str, engine: Engine, words: Words, vocabulary: Vocabulary, tables: Tables
    ) -> None:
        self.is_scripted = name != "llamacpp"
        self.heard = Heard(engine)
        self.vocabulary = vocabulary
        self._words = words
        self._tables = tables
        self._runner = asyncio.Runner()

    def __enter__(self) -> Stage:
        self._runner.run(self.heard.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.heard.stop(2))
        self._runner.close()

    def play(self, asked: Json, *said: str, free: tuple[str, ...] = (), ahead: str = "") -> Play:
        """`said` is what a model that is scripted writes, `free` what of it no guide has made."""
        written = said if self.is_scripted else free
        self._words.left = [ids_of(text, self.vocabulary) for text in written]
        self.heard.chunks.clear()
        self.heard.more = ids_of(ahead, self.vocabulary)
        played = Play(self.vocabulary, self._tables, asked, self.heard, tokens=300)
        self._runner.run(asyncio.wait_for(played.make(), 60))
        return played

    def generated(self, options: GenerateOptions, said: str) -> Any:
        self._words.left = [ids_of(said, self.vocabulary)] if self.is_scripted else []
        self.heard.more = ()
        return self._runner.run(generated(self.heard, list(range(300, 320)), options))


@pytest.fixture(scope="module")
def tables(vocabulary: Vocabulary) -> Tables:
    return Tables.of(vocabulary)


@pytest.fixture(scope="module", params=["scripted", "trtllm-double", "llamacpp"])
def stage(
    request: pytest.FixtureRequest, vocabulary: Vocabulary, tables: Tables
) -> Iterator[Stage]:
    words, name = Words(), request.param
    if name == "llamacpp":
        engine: Engine = LlamaCppEngine(
            request.getfixturevalue("random_gguf"),
            context_tokens=CONTEXT,
            slots=1,
            threads=1,
            seeds=Random(5),
            spelled=StandIns(vocabulary),
        )
        engine = Opened(engine, words)
    else:
        engine = (scripted if name == "scripted" else double)(words)
    with Stage(name, engine, words, vocabulary, tables) as made:
        yield made


def header(name: str) -> str:
    return f"commentary to=functions.{name} "


def test_the_header_is_one_of_those_allowed_be_one_the_beginning_of_another(stage: Stage) -> None:
    asked = {"tools": TOOLS, "tool_choice": "required", "reasoning": NO_THOUGHT}
    called = []
    for name in NAMES if stage.is_scripted else 4 * NAMES:
        played = stage.play(asked, header(name) + GUIDE_ENDS, BODY)
        (call,) = played.snapshot()["output"]
        text = stage.vocabulary.text(list(played.reader.kept))
        assert text.startswith(f"<|channel|>{header(call['name'])}<|constrain|>json<|message|>")
        assert played.snapshot()["status"] == "completed"
        assert [options.guide.kind for _, options in played.engine.asked if options.guide] == [
            "regex",
            "json_schema",
        ]
        called.append(call["name"])
    assert set(called) <= set(NAMES)
    if stage.is_scripted:
        assert tuple(called) == NAMES
    else:
        assert len(set(called)) > 1


@pytest.mark.parametrize("asked", [{"tool_choice": "required"}, {"tool_choice": None}])
def test_forced_ids_meet_those_that_the_model_writes_as_if_it_had_written_all(
    asked: Json, stage: Stage
) -> None:
    """No terminator comes twice, and each forced word is cut into the ids that a model writes."""
    choice = asked["tool_choice"] or {"type": "function", "name": "get_it"}
    wished = {"tools": TOOLS, "tool_choice": choice, "reasoning": {"max_tokens": 4}}
    guided = [header("get_it") + GUIDE_ENDS] if choice == "required" else []
    played = stage.play(wished, "Hm.<|end|>", *guided, BODY)
    kept = list(played.reader.kept)
    name = played.snapshot()["output"][-1]["name"]
    begin, _, rest = stage.vocabulary.text(kept).partition("<|end|>")
    assert begin.startswith("<|channel|>analysis<|message|>")
    forced = f"<|start|>assistant<|channel|>{header(name)}<|constrain|>json<|message|>"
    assert rest.startswith(forced)
    assert stage.vocabulary.text(kept).count("<|end|>") == 1
    natural = stage.vocabulary.encoding.encode(forced, allowed_special="all")
    place = kept.index(CONTROL.end) + 1
    if choice != "required" or stage.is_scripted:  # a guided header may be cut otherwise
        assert kept[place : place + len(natural)] == natural
    message = kept.index(CONTROL.message, place)
    assert kept[message - 2 : message] == natural[-3:-1]


@pytest.mark.parametrize(
    ("kind", "asked", "closing"),
    [
        ("json_schema", {"text": FORMAT}, CONTROL.return_),
        ("json_schema", {"tool_choice": {"type": "function", "name": "go"}}, CONTROL.call),
        ("regex", {"tool_choice": "required"}, CONTROL.call),
    ],
)
def test_each_kind_of_guide_ends_with_an_id_of_the_engines_and_counts_harmonys(
    kind: str, asked: Json, closing: int, stage: Stage
) -> None:
    tools = {} if "text" in asked else {"tools": TOOLS}
    guided = [header("go") + GUIDE_ENDS] if kind == "regex" else []
    played = stage.play(asked | tools | {"reasoning": NO_THOUGHT}, *guided, BODY)
    ends = stage.heard.limits().guides[kind]  # type: ignore[index]  # one of its literals
    assert stage.heard.chunks[0][-1].stop_id in ends
    assert all(chunks[-1].stop_id in ends for chunks in stage.heard.chunks)
    for _, options in played.engine.asked:
        assert ends.isdisjoint(options.banned_ids)
        assert set(options.stop_ids) == ends
    kept = played.reader.kept
    assert kept[-1] == closing
    assert CONTROL.endoftext not in kept
    assert [n for n in kept if n in (CONTROL.return_, CONTROL.call)] == [closing]


def test_the_engine_stops_at_message_and_names_the_id(stage: Stage) -> None:
    """The random model can write nothing else; the scripted ones would go on."""
    options = GenerateOptions(4, (CONTROL.message,), banned_ids=OTHERS)
    if stage.is_scripted:
        options = replace(options, banned_ids=())
    told = stage.generated(options, "<|message|>and more")
    assert told.token_ids == [CONTROL.message]
    assert (told.end.finish, told.end.stop_id) == ("stop", CONTROL.message)


@pytest.mark.parametrize("name", ["get_it", "go"])
def test_behind_the_header_of_a_strict_call_the_body_is_guided_and_behind_no_other(
    name: str, stage: Stage
) -> None:
    """The id that stopped the engine is looked at, and with it the header before it."""
    tools = [tool | {"strict": tool["name"] == "get_it"} for tool in TOOLS]
    opening = f"<|channel|>{header(name)}<|constrain|>json<|message|>"
    if name == "get_it":
        played = stage.play({"tools": tools}, opening, BODY, free=(opening,))
    else:
        rest = '{"ok":1}<|call|>'
        played = stage.play({"tools": tools}, opening, rest, free=(opening, rest))
    (_, first), (prompt, second) = played.engine.asked
    assert CONTROL.message in first.stop_ids
    assert prompt[-1] == CONTROL.message
    assert (second.guide is not None) == (name == "get_it")
    (call,) = played.snapshot()["output"]
    assert played.snapshot()["status"] == "completed"
    assert call["name"] == name
    lawful = valid(json.loads(call["arguments"]), FLAG, FLAG)
    assert lawful == (name == "get_it")


def test_ids_behind_a_cut_are_discarded(stage: Stage) -> None:
    """An engine that runs ahead has told ids that nobody asked for: no trace of them is left."""
    asked = {"tools": TOOLS, "tool_choice": "required", "reasoning": NO_THOUGHT}
    said = (header("go") + GUIDE_ENDS, BODY)
    played = stage.play(asked, *said, ahead="<|start|>assistant<|channel|>final<|message|>x")
    kept = played.reader.kept
    assert played.snapshot()["status"] == "completed"
    assert [item["type"] for item in played.snapshot()["output"]] == ["function_call"]
    assert kept[-1] == CONTROL.call
    assert CONTROL.start not in kept
    assert played.snapshot()["usage"]["output_tokens"] == len(kept)
    whole = (*PROMPT, *kept)
    assert all(whole[: len(prompt)] == prompt for prompt, _ in played.engine.asked)
