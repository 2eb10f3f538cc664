"""Steered runs: every transcript of `tests/transcripts/steering`, on each engine that replays.

Budget: 20 s on one core.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import lawful
from tests.support import steering as s
from tests.support.replay import PROMPT
from tests.support.requests import accepted
from tests.support.scripted.engine import ScriptedEngine
from tests.support.sdk_judge import accumulated, refused
from tests.support.turns import turn
from trt_responses.engine import CONTINUATION_PRIORITY
from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.features.explain.transcript import compact
from trt_responses.features.guides.harmony_plans import Language, header_pattern
from trt_responses.features.guides.steering import GuidedSteering
from trt_responses.features.run_traces.listener import SegmentLines
from trt_responses.harmony.dialect import harmony
from trt_responses.language.gate import Gate, GuidedGate, Words
from trt_responses.language.steering import RESERVE
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.replay import Json
    from trt_responses.engine import Engine
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.tokens.vocabulary import Vocabulary

NAMES = s.names()
ENGINES: dict[str, Callable[[Sequence[s.Part]], Engine]] = {
    "scripted": s.scripted,
    "trtllm-double": s.trtllm_double,
}
every_transcript = pytest.mark.parametrize("name", NAMES)
GET = {"type": "function", "name": "get", "parameters": {"type": "object"}}
JSON = {"format": {"type": "json_object"}}


@pytest.fixture
def transcript(name: str, vocabulary: Vocabulary) -> s.Steered:
    return s.load(name, vocabulary)


# --- transcripts ------------------------------------------------------------------------------


def test_there_are_transcripts() -> None:
    assert len(NAMES) >= 30


@pytest.mark.parametrize(
    ("engine", "name"),
    [(engine, name) for engine in ENGINES for name in NAMES],
)
def test_a_transcript_gives_the_requests_and_the_log_that_it_says(
    engine: str, transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    played = s.play(transcript, vocabulary, tables, ENGINES[engine])
    expected = {key: transcript.source[key] for key in ("requests", "log", "response", "repairs")}
    if (engine, transcript.name) == ("trtllm-double", "message_in_plain_letters"):
        usage = expected["response"]["usage"]  # it stops at ids alone, and ends by itself
        expected["response"] |= {"usage": usage | {"output": usage["output"] + 1}}
        expected["repairs"] = {}
    assert s.told(played) == expected


@every_transcript
def test_the_events_show_no_segment(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    """They are those of any response, and the SDK's own stream makes the same output of them."""
    played = s.play(transcript, vocabulary, tables)
    events, last = played.events(), played.snapshot()
    lawful.check(events, last)
    assert all(refused(event) is None for event in events)
    for item, gathered in zip(last["output"], accumulated(events), strict=True):
        for key in ("type", "arguments", "name"):
            assert item.get(key) == gathered.get(key)


@every_transcript
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_the_size_of_the_engines_steps_changes_nothing(
    transcript: s.Steered, size: int, vocabulary: Vocabulary, tables: Tables
) -> None:
    parts = [part.chunked(size) for part in transcript.parts]
    again = s.Play(vocabulary, tables, transcript.source["asked"], s.scripted(parts))
    asyncio.run(again.play())
    assert compact(again.events()) == transcript.source["log"]


@every_transcript
def test_usage_counts_the_prompt_once_and_every_kept_id(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    played = s.play(transcript, vocabulary, tables)
    usage = played.snapshot()["usage"]
    assert usage["input_tokens"] == len(PROMPT)
    assert usage["output_tokens"] == len(played.reader.kept)
    asked = transcript.source["asked"].get("max_output_tokens")
    assert asked is None or usage["output_tokens"] <= asked


@every_transcript
def test_each_request_extends_the_ids_that_count(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    """What was dropped never comes back, and nothing that counts is left out."""
    played = s.play(transcript, vocabulary, tables)
    whole = (*PROMPT, *played.reader.kept)
    prompts = [prompt for prompt, _ in played.engine.asked]
    assert all(whole[: len(prompt)] == prompt for prompt in prompts)
    assert [len(p) for p in prompts] == sorted({len(p) for p in prompts})


@every_transcript
def test_a_later_segment_goes_ahead_of_new_requests(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    asked = s.play(transcript, vocabulary, tables).engine.asked
    assert asked[0][1].priority == 0.5
    assert all(options.priority == CONTINUATION_PRIORITY for _, options in asked[1:])


@every_transcript
def test_inside_a_guide_every_control_id_is_banned_but_those_that_end_it(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    for _, options in s.play(transcript, vocabulary, tables).engine.asked:
        banned = set(range(FIRST_CONTROL_ID, VOCABULARY_SIZE)) - s.ENDS
        assert set(options.banned_ids) == (banned if options.guide else set())
        assert options.guide is None or set(options.stop_ids) == s.ENDS


@every_transcript
def test_cut_anywhere_and_in_any_way_the_log_is_lawful(
    transcript: s.Steered, vocabulary: Vocabulary, tables: Tables
) -> None:
    """The last segment cut at each place; JSON that was asked for is whole or not completed."""
    *before, last = transcript.parts
    for length, finish in itertools.product(
        range(0, len(last.ids), 2), ("length", "stop", "error")
    ):
        parts = [*before, last.cut(length, finish)]  # type: ignore[arg-type]
        played = s.Play(vocabulary, tables, transcript.source["asked"], s.scripted(parts))
        asyncio.run(played.play())
        lawful.check(played.events(), played.snapshot())
        told, guide = played.snapshot(), played.engine.asked[-1][1].guide
        if told["status"] == "completed" and guide is not None:
            match told["output"][-1]:
                case {"type": "custom_tool_call", "input": str(text)}:
                    assert "regex" not in transcript.name or re.fullmatch(r"[A-Z]{2}-\d+", text)
                case {"arguments": text} | {"content": [{"text": text}]}:
                    assert isinstance(orjson.loads(text), dict)


def test_a_run_that_is_cancelled_in_any_segment_ends_there(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    whole = s.load("required_call", vocabulary)

    async def cancelled(place: int) -> s.Play:
        parts = (*whole.parts[:place], whole.parts[place].cut(1, "abort"))
        played = s.Play(vocabulary, tables, whole.source["asked"], engine := s.scripted(parts))
        assert isinstance(engine, ScriptedEngine)
        await played.engine.start()
        run = await played.run()
        making = asyncio.create_task(run.make())
        while not engine.stands_still:  # the engine tells nobody that it stalls
            await turn()
        run.cancel()
        await making
        assert engine.requests[-1].state == "aborted"
        return played

    for place in range(3):
        played = asyncio.run(cancelled(place))
        assert played.snapshot()["status"] == "cancelled"
        assert len(played.engine.asked) == place + 1
        lawful.check(played.events(), played.snapshot())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "required_call",
            "steered to commentary to=functions.get | commentary to=functions.get_it: "
            "thought forced=3 budget=1484 kept=9 discarded=0 guide=none completed; "
            "header forced=3 budget=1988 kept=11 discarded=0 guide=regex completed; "
            "body forced=3 budget=1976 kept=11 discarded=0 guide=json_schema completed",
        ),
        (
            "body_runs_on",
            "steered to final: "
            "thought forced=3 budget=1484 kept=9 discarded=0 guide=none completed; "
            "body forced=5 budget=1985 kept=11 discarded=1 guide=json_schema completed",
        ),
        (
            "answer_beside_strict",
            "watched for get_it | functions.get_it: "
            "free forced=0 budget=2000 kept=3 discarded=0 guide=none completed; "
            "free forced=0 budget=1997 kept=3 discarded=0 guide=none completed",
        ),
    ],
)
def test_a_run_explains_its_plan_and_its_segments_in_one_line(
    name: str,
    told: str,
    vocabulary: Vocabulary,
    tables: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="trt_responses.features.run_traces.listener")
    s.play(s.load(name, vocabulary), vocabulary, tables, listener=SegmentLines())
    assert [record.getMessage() for record in caplog.records] == [f"resp_0 {told}"]


# --- what is refused before any token ---------------------------------------------------------


def refusal(
    vocabulary: Vocabulary, tables: Tables, guides: dict[str, frozenset[int]], **asked: object
) -> InvalidRequest:
    engine = ScriptedEngine([], guides=guides)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(s.Play(vocabulary, tables, asked, engine).run())
    assert not engine.requests
    return caught.value


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("text.format", {"text": JSON}),
        ("tools[0].strict", {"tools": [GET | {"strict": True}]}),
        ("tool_choice", {"tools": [GET, GET | {"name": "got"}], "tool_choice": "required"}),
        ("reasoning.effort", {"tools": [GET], "reasoning": {"effort": "none"}}),
        ("reasoning.max_tokens", {"tools": [GET], "reasoning": {"max_tokens": 9}}),
    ],
)
def test_what_an_engine_without_guides_cannot_do_is_refused_by_name(
    param: str, asked: Json, vocabulary: Vocabulary, tables: Tables
) -> None:
    told = refusal(vocabulary, tables, {}, **asked)
    assert isinstance(told, Unsupported)
    assert (told.param, told.code) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [GET], "tool_choice": {"type": "function", "name": "get"}},
        {"tools": [GET], "tool_choice": "none"},
        {"reasoning": {"effort": "none"}},
    ],
)
def test_what_needs_no_guide_an_engine_without_any_does(
    asked: Json, vocabulary: Vocabulary, tables: Tables
) -> None:
    played = s.Play(vocabulary, tables, asked, ScriptedEngine([]))
    assert played.engine.limits().guides == {}
    segment = asyncio.run(played.plan()).next(played.reader)
    assert segment is not None
    assert segment.guide is None


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice.name", {"tool_choice": {"type": "function", "name": "got"}}),
        ("tool_choice.name", {"tool_choice": {"type": "custom", "name": "get"}, "tools": [GET]}),
        (
            "tool_choice.tools[1].name",
            {
                "tools": [GET],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": n} for n in ("get", "got")],
                },
            },
        ),
        (
            "tools[0].parameters.properties.a.not",
            {"tools": [GET | {"strict": True, "parameters": {
                "type": "object", "properties": {"a": {"not": {}}}}}]},
        ),
        (
            "tools[0].parameters.type",
            {"tools": [GET | {"strict": True, "parameters": {"type": "array"}}]},
        ),
        (
            "text.format.schema.oneOf",
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"oneOf": []}}}},
        ),
    ],
)  # fmt: skip
def test_what_no_engine_can_do_is_refused_by_name(
    param: str, asked: Json, vocabulary: Vocabulary, tables: Tables
) -> None:
    told = refusal(vocabulary, tables, dict(s.GUIDES), **asked)  # type: ignore[arg-type]
    assert (told.status, told.param) == (400, param)


@pytest.mark.parametrize("more", [{"not": {"required": ["x"]}}, {"title": "x" * 70_000}])
def test_a_loose_tool_whose_schema_is_not_supported_is_still_given_an_object(
    more: Json, vocabulary: Vocabulary, tables: Tables
) -> None:
    odd = GET | {"parameters": {"type": "object"} | more}
    asked = {"tools": [odd], "tool_choice": "required", "reasoning": {"effort": "none"}}
    played = s.Play(vocabulary, tables, asked, s.scripted([s.Part((), "length")]))
    asyncio.run(played.play())
    guide = played.engine.asked[0][1].guide
    assert guide is not None
    assert guide.source == '{"type":"object"}'
    choices = asyncio.run(
        GuidedSteering(harmony(vocabulary)).request(accepted(asked), s.GUIDES)
    ).turn.choices
    assert choices is not None
    assert [choice.form.source for choice in choices if choice.form] == ['{"type":"object"}']


def member(count: int) -> Json:
    return {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(count)}}


@pytest.mark.parametrize(("count", "elsewhere"), [(4, False), (400, True)])
def test_large_schemas_are_compiled_where_nobody_waits_for_them(
    count: int, elsewhere: bool, vocabulary: Vocabulary
) -> None:
    """Once: what is known needs no thread again."""
    threads: list[int] = []

    def clock_s() -> float:
        threads.append(threading.get_ident())
        return 0.0

    steering = GuidedSteering(harmony(vocabulary), clock_s=clock_s)
    tools = [GET | {"strict": True, "parameters": member(count)}]
    asked = accepted({"tools": tools})
    asyncio.run(steering.request(asked, s.GUIDES))
    assert len(threads) > count
    assert {thread != threading.get_ident() for thread in threads} == {elsewhere}
    threads.clear()
    asyncio.run(steering.request(asked, s.GUIDES))
    assert set(threads) == {threading.get_ident()}


@pytest.mark.parametrize("strict", [True, False])
def test_schemas_that_take_too_long_are_refused_though_they_would_only_help(
    strict: bool, vocabulary: Vocabulary
) -> None:
    clock = itertools.count()
    steering = GuidedSteering(harmony(vocabulary), schema_s=60, clock_s=lambda: next(clock))
    tools = [
        GET | {"name": f"t{n}", "strict": strict, "parameters": member(5 + n)} for n in range(9)
    ]
    asked = accepted({"tools": tools, "tool_choice": "required"})
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(steering.request(asked, s.GUIDES))
    assert (caught.value.status, caught.value.param) == (400, "tools[2].parameters")
    assert "takes too long to compile" in caught.value.message


def test_a_tool_that_is_not_to_be_called_costs_no_compilation(vocabulary: Vocabulary) -> None:
    tools = [GET | {"parameters": member(500)}]
    looks = {}
    for choice in ("none", "required"):
        clock = itertools.count(step=1e-9)
        steering = GuidedSteering(harmony(vocabulary), clock_s=clock.__next__)
        asked = accepted({"tools": tools, "tool_choice": choice})
        choices = asyncio.run(steering.request(asked, s.GUIDES)).turn.choices
        assert choices is not None
        assert [one.kind for one in choices] == ["answer" if choice == "none" else "call"]
        looks[choice] = round(next(clock) * 1e9)
    assert looks["none"] < 3 < 500 < looks["required"], "the clock is looked at for each branch"


# --- budgets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasoning", "tokens", "thought"),
    [
        ({}, 2000, 2000 - 3 - 1 - RESERVE),
        ({}, 100, 100 - 3 - 1 - 50),
        ({"max_tokens": 10}, 2000, 10),
        ({"max_tokens": 1900}, 2000, 2000 - 3 - 1 - RESERVE),
        ({"effort": "minimal"}, 2000, 64),
        ({"effort": "minimal", "max_tokens": 5}, 2000, 5),
        ({"effort": "none"}, 2000, None),
        ({"max_tokens": 0}, 2000, None),
        ({"effort": "max"}, 2000, 2000 - 3 - 1 - RESERVE),
    ],
)
def test_a_thought_leaves_the_answer_its_reserve(
    reasoning: Json, tokens: int, thought: int | None, vocabulary: Vocabulary, tables: Tables
) -> None:
    asked = {"text": JSON, "reasoning": reasoning, "max_output_tokens": tokens}
    played = s.Play(vocabulary, tables, asked, s.scripted([s.Part((), "error")]))
    asyncio.run(played.play())
    _, options = played.engine.asked[0]
    assert (options.guide is None) == (thought is not None)
    if thought is not None:
        assert options.max_tokens == thought


# --- headers and gates ------------------------------------------------------------------------


def test_no_header_is_the_beginning_of_another() -> None:
    names = ("a", "ab", "a-b", "ab_", "abc")
    headers = ["final", *(f"commentary to=functions.{name} " for name in names)]
    pattern = re.compile(header_pattern(headers))
    assert all(pattern.fullmatch(header) for header in headers)
    assert not pattern.fullmatch("commentary to=functions.a")
    assert not pattern.fullmatch("commentary to=functionsXa ")
    for one, other in itertools.permutations(headers, 2):
        assert not other.startswith(one)


def test_forced_ids_are_those_that_the_model_would_write(vocabulary: Vocabulary) -> None:
    """A header that is forced whole is tokenised as openai-harmony tokenises it."""
    language = Language(vocabulary)
    said = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    natural = vocabulary.encoding.encode(said, allowed_special="all")
    header = language.ids("commentary to=functions.get_weather ")
    assert (CONTROL.channel, *header, *language.json_message) == tuple(natural)


def test_a_free_gate_lets_text_through_and_ends_at_the_first_end() -> None:
    gate = Gate(frozenset({7}), (1, 2))
    assert gate.admit((5, 6)) == (5, 6)
    assert (gate.admit((5, 7, 8)), gate.over) == ((5, 1, 2), True)
    assert gate.admit((9,)) == ()
    assert gate.finish("stop") == ()


@pytest.mark.parametrize(
    ("finish", "may_be_cut", "closed"),
    [
        ("stop", False, True),
        ("length", True, True),
        ("length", False, False),
        ("error", True, False),
    ],
)
def test_an_end_without_an_id_closes_what_may_be_closed(
    finish: str, may_be_cut: bool, closed: bool
) -> None:
    gate = Gate(frozenset({7}), (1,), may_be_cut=may_be_cut)
    assert gate.finish(finish) == ((1,) if closed else ())  # type: ignore[arg-type]
    assert gate.over == closed


def test_a_guided_gate_takes_whole_ids_or_none(vocabulary: Vocabulary) -> None:
    (final,) = vocabulary.encoding.encode("final")
    for odd in (CONTROL.start, VOCABULARY_SIZE + 5, -1):
        gate = GuidedGate(s.ENDS, (), Words(["final"]), vocabulary.token_bytes, "it")
        assert (gate.admit((odd, final)), gate.over) == ((), True)
        assert gate.fault is not None
    gate = GuidedGate(s.ENDS, (9,), Words(["final"]), vocabulary.token_bytes, "it")
    assert gate.admit((final, final)) == (final, 9)
    assert (gate.over, gate.fault) == (True, None)
