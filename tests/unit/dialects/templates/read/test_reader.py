"""The reader of models without Harmony: cases of each family, and laws over all of them."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden_renders import as_taken
from tests.support.template_families import checkpoint, tables
from tests.support.template_turns import (
    TOOLS,
    check_spans,
    ids_of,
    lost_words,
    merged,
    read,
    reader_of,
    short,
)
from trt_responses.dialects.templates.families import Calls, Family
from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.dialects.templates.tables import WHITE, Tables
from trt_responses.engine import Logprob
from trt_responses.features.logprobs.install import ScoredReader
from trt_responses.language.fragments import Scored, Text
from trt_responses.language.reader import ReaderOptions

if TYPE_CHECKING:
    from trt_responses.dialects.templates.read.reader import Begins

Q, X, G, D, R = "qwen3", "qwen3_5_think", "glm4moe", "deepseek_v3_1", "deepseekv3"
L = "google-gemma-4-31B-it"

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
XML = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
    "</tool_call>"
)
KV = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
OSLO = 'get_weather: {"city": "Oslo"}'
SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
NAMED = '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>'
FENCED = (
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo"}\n```'
    "<｜tool▁call▁end｜>"
)
EOS = "<｜end▁of▁sentence｜>"


def xml(*lines: str) -> str:
    return "\n".join(("<tool_call>", *lines, "</tool_call><|im_end|>"))


CASES: dict[str, tuple[str, Begins, str, list[str]]] = {
    "text alone": (Q, "text", "Hello there.<|im_end|>", ["final: Hello there."]),
    "nothing": (Q, "text", "<|im_end|>", []),
    "thought, text, two calls": (
        *(Q, "text", f"<think>\nHm.\n</think>\n\nHello.\n{CALL}\n{CALL}<|im_end|>"),
        ["analysis: Hm.", "final: Hello.", OSLO, OSLO],
    ),
    "an empty thought is none": (Q, "text", "<think>\n\n</think>\n\nHi<|im_end|>", ["final: Hi"]),
    "a thought that the prompt began": (
        *(Q, "thought", "Hm.\n</think>\n\nHi<|im_end|>"),
        ["analysis: Hm.", "final: Hi"],
    ),
    "a thought that never ends": (
        *(Q, "thought", "Hm.<|im_end|>"),
        ["!missing_terminator", "analysis: Hm."],
    ),
    "a second end of a thought": (
        *(Q, "thought", "Hm.</think>a</think>b<|im_end|>"),
        ["analysis: Hm.", "!stray_control", "final: ab"],
    ),
    "a thought after text": (
        *(Q, "text", "One.<think>Hm.</think>Two.<|im_end|>"),
        ["final: One.", "analysis: Hm.", "final: Two."],
    ),
    "a call ends the thought that it stands in": (
        *(Q, "thought", f"Hm.\n{CALL}<|im_end|>"),
        ["analysis: Hm.", OSLO],
    ),
    "text behind a call": (
        *(Q, "text", f"{CALL}\nDone.<|im_end|>"),
        [OSLO, "!stray_text", "final: Done."],
    ),
    "a call that was cut in its name": (Q, "text", '<tool_call>{"name": "ge', ["!cut_header"]),
    "keys in another order": (
        Q,
        "text",
        '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call><|im_end|>',
        [OSLO],
    ),
    "no arguments": (Q, "text", '<tool_call>{"name": "now"}</tool_call><|im_end|>', ["now: {}"]),
    "arguments that are null": (
        *(Q, "text", '<tool_call>{"name": "now", "arguments": null}</tool_call><|im_end|>'),
        ["now: {}"],
    ),
    "arguments in a string": (
        Q,
        "text",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>'
        "<|im_end|>",
        [OSLO],
    ),
    "broken JSON is told as it was written": (
        *(Q, "text", '<tool_call>{"name": "f", "arguments": {"a": nope</tool_call><|im_end|>'),
        ['f: {"a": nope'],
    ),
    "something behind the arguments": (
        *(Q, "text", '<tool_call>{"name": "f", "arguments": {}, "x": 1}</tool_call><|im_end|>'),
        ["!malformed_header", "f: {}"],
    ),
    "a call that is none is text": (
        *(Q, "text", "<tool_call>\nnot JSON\n</tool_call><|im_end|>"),
        ["!malformed_header", "final: <tool_call>\nnot JSON\n"],
    ),
    "a mark in a JSON string is text": (
        *(Q, "text", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>'),
        ['f: {"a": "</tool_call>"}', "!missing_terminator"][:1],
    ),
    "a call that was cut": (
        *(Q, "text", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os<|im_end|>'),
        ["!missing_terminator", 'get_weather: {"city": "Os'],
    ),
    "whole arguments without a closing mark": (
        *(Q, "text", CALL.removesuffix("</tool_call>") + "<|im_end|>"),
        ["!missing_terminator", OSLO],
    ),
    "a call that was not closed before the next": (
        *(Q, "text", CALL.removesuffix("</tool_call>") + CALL + "<|im_end|>"),
        ["!missing_terminator", OSLO, OSLO],
    ),
    "somebody else's turn": (
        *(Q, "text", "Hi<|im_start|>user\nI say<|im_end|>"),
        ["!foreign_author", "final: Hi"],
    ),
    "a control string in text": (
        *(Q, "text", "see <|vision_start|> there<|im_end|>"),
        ["final: see <|vision_start|> there"],
    ),
    "xml": (X, "thought", f"Hm.\n</think>\n\n{XML}<|im_end|>", ["analysis: Hm.", OSLO]),
    "xml, typed by the schema": (
        X,
        "text",
        xml(
            "<function=get_weather>",
            *("<parameter=city>\n2\n</parameter>", "<parameter=days>\n2\n</parameter>"),
            *("<parameter=warm>\nTrue\n</parameter>", "<parameter=list>\n[1]\n</parameter>"),
            *("<parameter=ratio>\n1\n</parameter>", "<parameter=maybe>\nnull\n</parameter>"),
            *("<parameter=object>\n{}\n</parameter>", "<parameter=new>\n3\n</parameter>"),
            "</function>",
        ),
        [
            'get_weather: {"city": "2", "days": 2, "warm": true, "list": [1], "ratio": 1, '
            '"maybe": null, "object": {}, "new": "3"}'
        ],
    ),
    "xml, a value of another type is text": (
        *(
            X,
            "text",
            xml("<function=get_weather>\n<parameter=days>\ntwo\n</parameter>\n</function>"),
        ),
        ['get_weather: {"days": "two"}'],
    ),
    "xml, lines and marks in a value": (
        *(
            X,
            "text",
            xml("<function=f>\n<parameter=a>\n\n<b> <tool_call>\n\n</parameter>\n</function>"),
        ),
        ["f: " + json.dumps({"a": "\n<b> <tool_call>\n"})],
    ),
    "xml without parameters": (X, "text", xml("<function=now>", "</function>"), ["now: {}"]),
    "xml, a name without its bracket": (
        *(X, "text", xml("<function=f", "<parameter=a", "1", "</parameter>", "</function>")),
        ['f: {"a": "1"}'],
    ),
    "xml, a name is cut at white space": (
        *(X, "text", xml("<function=f g>", "</function>")),
        ["!malformed_header", "f: {}"],
    ),
    "xml without its function's end": (
        *(X, "text", xml("<function=f>", "<parameter=a>\n1\n</parameter>")),
        ["!malformed_header", 'f: {"a": "1"}'],
    ),
    "xml without its value's end": (
        *(X, "text", xml("<function=f>", "<parameter=a>\n1")),
        ["!malformed_header", "!malformed_header", 'f: {"a": "1"}'],
    ),
    "xml without a function": (
        *(X, "text", xml("get_weather(Oslo)")),
        ["!malformed_header", "final: <tool_call>\nget_weather(Oslo)\n"],
    ),
    "xml that was cut": (
        *(X, "text", "<tool_call>\n<function=f>\n<parameter=a>\nOs<|im_end|>"),
        ["!missing_terminator", 'f: {"a": "Os'],
    ),
    "xml that was cut in its name": (X, "text", "<tool_call>\n<function=f", ["!cut_header"]),
    "xml without call marks is text": (
        *(X, "text", "<function=f>\n</function><|im_end|>"),
        ["final: <function=f>\n</function>"],
    ),
    "key and value": (
        *(G, "text", f"\n<think>Hm.</think>\nHello.\n{KV}\n{KV}<|observation|>"),
        ["analysis: Hm.", "final: Hello.", OSLO, OSLO],
    ),
    "key and value, typed by the schema": (
        G,
        "text",
        "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>warm"
        "</arg_key>\n<arg_value>false</arg_value>\n</tool_call><|user|>",
        ['get_weather: {"days": 2, "warm": false}'],
    ),
    "no keys": (G, "text", "<tool_call>now\n</tool_call><|user|>", ["now: {}"]),
    "a call without a name": (
        *(G, "text", "<tool_call>\n</tool_call><|user|>"),
        ["!malformed_header", "final: <tool_call>\n"],
    ),
    "a value without its end": (
        *(G, "text", KV.replace("</arg_value>\n", "") + "<|user|>"),
        ["!malformed_header", OSLO],
    ),
    "a value that was cut": (
        *(G, "text", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>Os<|user|>"),
        ["!missing_terminator", 'f: {"a": "Os'],
    ),
    "a section of calls": (
        *(D, "thought", f"Hm.</think>Hi{SECTION}{NAMED}{NAMED}{SECTION_END}{EOS}"),
        ["analysis: Hm.", "final: Hi", OSLO, OSLO],
    ),
    "calls of the older form": (
        *(R, "thought", f"Hm.\n</think>\n{SECTION}{FENCED}\n{FENCED}{SECTION_END}{EOS}"),
        ["analysis: Hm.", OSLO, OSLO],
    ),
    "a named call that was cut": (
        *(D, "text", f'{SECTION}<｜tool▁call▁begin｜>f<｜tool▁sep｜>{{"a": 1{EOS}'),
        ["!missing_terminator", 'f: {"a": 1'],
    ),
    "something behind a literal call": (
        *(L, "text", '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>} now<tool_call|>'),
        ["!malformed_header", OSLO],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_model_wrote_is_told(case: str) -> None:
    name, begins, text, expected = CASES[case]
    stopped = text.endswith("|>") or text.endswith(EOS)
    assert short(read(name, [ids_of(name, text)], begins, stopped=stopped)) == expected


@pytest.mark.parametrize("case", CASES)
def test_every_split_of_the_ids_tells_the_same(case: str) -> None:
    name, begins, text, _ = CASES[case]
    ids = ids_of(name, text)
    whole = read(name, [ids], begins)
    dice = random.Random(case)
    for _ in range(12):
        ends = sorted(dice.sample(range(len(ids) + 1), min(5, len(ids))))
        assert read(name, [ids[a:b] for a, b in pairwise([0, *ends, len(ids)])], begins) == whole
    assert read(name, [[one] for one in ids], begins) == whole


@pytest.mark.parametrize("case", CASES)
def test_one_id_removed_doubled_or_exchanged_never_raises_and_loses_no_word(case: str) -> None:
    name, begins, text, _ = CASES[case]
    ids, dice = ids_of(name, text), random.Random(case)
    others = [
        *tables(name).controls,
        *(dice.randrange(len(tables(name).token_bytes)) for _ in "ab"),
    ]
    for at in range(len(ids)):
        other = dice.choice(others)
        for changed in (
            ids[:at] + ids[at + 1 :],
            ids[:at] + ids[at : at + 1] + ids[at:],
            [*ids[:at], other, *ids[at + 1 :]],
            ids[:at],
            [*ids[:at], -1, 10**9],
        ):
            reader = reader_of(name, begins)
            told = merged([*reader.feed(changed), *reader.finish(stopped=bool(at % 2))])
            check_spans(reader)
            assert lost_words(name, reader.kept, told) == [], told


WORDS = st.sampled_from(
    [
        *("Hello", " ", "a < b", "世界 👩‍💻", "\n", "\\n", '"', "{", "}", "ü", "'", "<", "</"),
        *("</think>", "<tool_call>", "</tool_call>", "<function=x>", "<|im_end|>"),
        *("</arg_value>", "<arg_key>"),
    ]
)
TEXTS = st.lists(WORDS, max_size=6).map("".join)
VALUES = {
    "city": TEXTS,
    "days": st.integers(-9, 10**6),
    "warm": st.booleans(),
    "list": st.lists(st.integers(0, 3), max_size=3),
    "ratio": st.sampled_from([0.5, 2.0, 1e6]),
    "other": TEXTS,
}
CALLS = st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=2)


def turn_of(name: str, thought: str, text: str, calls: list[Any]) -> tuple[list[int], Begins]:
    """The ids of a turn as its template writes it, behind the prompt that asks for it."""
    one = checkpoint(name)
    asked = [{"role": "user", "content": "Hi"}]
    said: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": thought}
    if calls:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": "get_weather", "arguments": call}}
            for call in calls
        ]
    marks = one.tokeniser.marks
    messages = marks.shielded_messages(as_taken(name, [*asked, said]))
    prompt = one.template.render(marks.shielded_messages(asked))
    whole = one.template.render(messages, add_generation_prompt=False)
    if not whole.startswith(prompt):  # Nemotron's, for a turn without a thought
        prompt = prompt.removesuffix("<think>\n")
    assert whole.startswith(prompt)
    end = "<|user|>" if name == G else ""
    begins: Begins = "thought" if prompt.rstrip().endswith("<think>") else "text"
    return one.tokeniser.encode(whole[len(prompt) :] + end), begins


@pytest.mark.parametrize("name", [Q, X, "nemotron_3_nano", G, D])
@settings(max_examples=60)
@given(thought=TEXTS, text=TEXTS, calls=CALLS)
def test_a_turn_that_the_template_wrote_is_read_as_it_was(
    name: str, thought: str, text: str, calls: list[dict[str, Any]]
) -> None:
    thought, text = ("" if name == D else thought.strip()), text.strip()
    ids, begins = turn_of(name, thought, text, calls)
    lines = short(read(name, [ids], begins))
    told = [line.partition(": ") for line in lines]
    expected = [("analysis", thought)] * bool(thought) + [("final", text)] * bool(text)
    plain = [(channel, said) for channel, _, said in told if channel != "get_weather"]
    assert plain == expected
    read_calls = [json.loads(said) for channel, _, said in told if channel == "get_weather"]
    assert read_calls == calls


@settings(max_examples=200)
@given(
    numbers=st.lists(st.integers(0, 300), max_size=12), begins=st.sampled_from(["text", "thought"])
)
def test_ordinary_ids_are_their_bytes_in_order(numbers: list[int], begins: Begins) -> None:
    """Most of these ids are single bytes, so that few characters are whole."""
    tokeniser = checkpoint(Q).tokeniser
    written = b"".join(map(tokeniser.bytes_of, numbers)).decode("utf-8", "replace")
    reader = reader_of(Q, begins)
    told = merged([f for one in numbers for f in reader.feed((one,))] + reader.finish(stopped=True))
    channel = "final" if begins == "text" else "analysis"
    expected = [f"{channel}: {written.lstrip(WHITE)}"] if written.strip(WHITE) else []
    assert [line for line in short(told) if line[0] != "!"] == expected


def test_the_first_call_ends_a_turn_where_it_is_asked_for() -> None:
    reader = reader_of(Q, call_ends=True)
    told = merged(reader.feed(ids_of(Q, f"{CALL}\n{CALL}<|im_end|>")))
    assert short(told) == [OSLO]
    assert reader.ended
    assert [at for at, _ in reader.dropped] == [len(reader.kept)] * len(reader.dropped)
    reader.answer(ids_of(Q, "<|im_end|>\n<|im_start|>user\n"))
    assert (reader.ended, reader.messages[-1].answer_end) == (False, len(reader.kept))
    assert short(merged(reader.feed(ids_of(Q, "Fine.<|im_end|>")))) == ["final: Fine."]


def test_so_does_a_call_to_whom_it_is_named() -> None:
    reader = TemplateReader(tables(Q), ReaderOptions(False, ("functions.get_weather",)))
    reader.feed(ids_of(Q, f"{CALL}\nmore"))
    assert reader.ended


def test_arguments_stream_while_they_are_written() -> None:
    for name, text in ((Q, CALL), (X, XML), (G, KV)):
        told = [reader_of(name)]
        texts = [
            sum(isinstance(one, Text) for one in told[0].feed([number]))
            for number in ids_of(name, text)
        ]
        assert sum(texts) >= 3, name


def test_the_hot_path_tells_the_same() -> None:
    ids = ids_of(Q, "<think>Hm. So\nthis</think>\nA long text,  with\n\nlines.\n")
    whole = merged(reader_of(Q).feed(ids))
    reader, fragments = reader_of(Q), list[Any]()
    taken = 0
    for number in ids:
        said: list[bytes] = []
        if reader.text([number], said):
            taken += 1
            fragments.append(Text(said))
        else:
            fragments += reader.feed([number])
    assert merged(fragments) == whole
    assert taken > 10


def test_marks_that_are_text_are_held_back_as_long_as_they_may_be_one() -> None:
    """A row whose marks are no tokens of the vocabulary."""
    family = Family(
        "own",
        terminators=("<|im_end|>",),
        thought=("<reason>", "</reason>"),
        calls=Calls("<call>", "</call>", "json"),
    )
    one = Tables.of(family, checkpoint(Q).tokeniser)
    text = (
        "<reason> a <b </reason\n</reason>\nHi <c\n"
        '<call>{"name": "f", "arguments": {"a": "</call>"}}</call>\n<|im_end|>'
    )
    expected = ["analysis: a <b </reason", "final: Hi <c", 'f: {"a": "</call>"}']
    for size in (1, 2, 1000):
        reader, ids = TemplateReader(one, ReaderOptions(call_ends=False)), ids_of(Q, text)
        fragments = [f for at in range(0, len(ids), size) for f in reader.feed(ids[at : at + size])]
        assert short(merged(fragments)) == expected
    reader = TemplateReader(one)
    assert merged(reader.feed(ids_of(Q, "Hi <")))[1:] == ["Hi"]
    assert merged(reader.feed(ids_of(Q, "ca ")))[0] == " <ca"


def test_probabilities_go_with_the_text_that_they_made() -> None:
    options = ReaderOptions(call_ends=False, tools=TOOLS)
    reader = ScoredReader(TemplateReader(tables(Q), options))
    ids = ids_of(Q, f"Hi there.\n{CALL}<|im_end|>")
    fragments = []
    for number in ids:
        reader.take_logprobs([Logprob(number, -0.5, ((number, -0.5),))])
        fragments += reader.feed([number])
    scored = [one for one in fragments if isinstance(one, Scored)]
    told = "".join(p.token for one in scored for tokens in one.logprobs for p in tokens)
    assert told == "Hi there."
    assert short(merged(fragments)) == ["final: Hi there.", OSLO]
