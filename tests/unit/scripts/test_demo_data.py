"""The demo model's conversations, its held-back wordings, and the report of its examination."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import openai_harmony as harmony
import pytest

from scripts.demo import exam, toolkit, wordings
from scripts.demo.asking import Source
from scripts.demo.calls import choice, choice_apart
from scripts.demo.conversation import (
    ASSISTANT,
    EFFORTS,
    FINAL_HEADER,
    Dialogue,
    Exchange,
    Turn,
    encoding,
    prompt_text,
    reply_text,
)
from scripts.demo.data import draw, settled
from scripts.demo.exam import EXAMINED
from scripts.demo.families import FAMILIES
from scripts.demo.knowledge import knowledge
from scripts.demo.rows import BARRED, GUIDED, Codec, encode, example
from scripts.demo.table import markdown
from trt_responses.prepare.checkpoint.safetensors import read_tensors
from trt_responses.prepare.demo import COMPACT, USED_IDS
from trt_responses.tokens.control import CONTROL
from trt_responses.tools.python.tool import DESCRIPTION

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 11


def sources() -> tuple[Source, Source]:
    return Source(wordings.seen(), random.Random(SEED)), exam.exam_source(
        random.Random(SEED), held=True
    )


def shipped() -> Codec:
    """The ids that the weights of this package know."""
    return Codec.of(read_tensors(wordings.SOURCE / COMPACT)[USED_IDS].read().tolist())


def dialogues(count: int) -> list[Dialogue]:
    source = Source(wordings.seen(), random.Random(SEED))
    return [draw(source, padding=False) for _ in range(count)]


def of_harmony(dialogue: Dialogue) -> list[int]:
    """The prompt as openai-harmony renders it; analysis before the last answer is left out here,
    because its own rule looks at the first answer."""
    messages = [*_settings(dialogue)]
    for number, exchange in enumerate(dialogue.exchanges):
        last = number == len(dialogue.exchanges) - 1
        messages += _said(exchange, dialogue, last=last)
    whole = harmony.Conversation.from_messages(messages)
    keep = harmony.RenderConversationConfig(auto_drop_analysis=False)
    return list(encoding().render_conversation_for_completion(whole, harmony.Role.ASSISTANT, keep))


def _settings(dialogue: Dialogue) -> list[harmony.Message]:
    setting = dialogue.setting
    tools = [
        harmony.ToolDescription.new(
            tool.name, tool.description, tool.parameters and json.loads(tool.parameters)
        )
        for tool in setting.tools
    ]
    found = []
    if setting.date is not None:
        effort = harmony.ReasoningEffort(setting.effort.capitalize())
        system = harmony.SystemContent.new().with_reasoning_effort(effort)
        system = system.with_conversation_start_date(setting.date)
        if setting.python is not None:
            told = DESCRIPTION.format(deadline_s=setting.python)
            own = harmony.ToolNamespaceConfig(name="python", description=told, tools=[])
            system = system.with_tools(own)
        found.append(harmony.Message.from_role_and_content(harmony.Role.SYSTEM, system))
    developer = harmony.DeveloperContent.new()
    if setting.instructions is not None:
        developer = developer.with_instructions(setting.instructions)
    if tools:
        developer = developer.with_function_tools(tools)
    if setting.instructions is not None or tools:
        found.append(harmony.Message.from_role_and_content(harmony.Role.DEVELOPER, developer))
    return found


def _said(exchange: Exchange, dialogue: Dialogue, *, last: bool) -> list[harmony.Message]:
    found = [harmony.Message.from_role_and_content(harmony.Role.USER, exchange.user)]
    for turn, answers in exchange.steps:
        if last:
            found.append(_assistant(turn.thoughts[dialogue.setting.effort], "analysis"))
        for made in turn.calls:
            call = _assistant(made.arguments, "commentary")
            call = call.with_recipient(f"functions.{made.name}")
            found.append(call.with_content_type("<|constrain|>json"))
        for made, answer in zip(turn.calls, answers, strict=True):
            author = harmony.Author.new(harmony.Role.TOOL, f"functions.{made.name}")
            told = harmony.Message.from_author_and_content(author, answer)
            found.append(told.with_channel("commentary").with_recipient("assistant"))
    if not last:
        found.append(_assistant(str(exchange.turn.final), "final"))
    return found


def _assistant(text: str, channel: str) -> harmony.Message:
    message = harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, text)
    return message.with_channel(channel)


def _calls(dialogue: Dialogue) -> Sequence[bool]:
    return [call.stored for e in dialogue.exchanges for turn, _ in e.steps for call in turn.calls]


def test_every_kind_of_wording_has_at_least_five_that_are_held_back() -> None:
    assert set(wordings.held_back()) | {"help"} == set(wordings.seen())
    for kind, held in wordings.held_back().items():
        assert len(set(map(wordings.core, held))) >= 5, kind


def test_no_held_back_wording_is_seen_in_training_however_it_is_dressed() -> None:
    for kind, held in wordings.held_back().items():
        seen = {wordings.core(text) for text in wordings.seen()[kind]}
        assert not seen & {wordings.core(text) for text in held}, kind


def test_no_training_dialogue_says_what_is_held_back() -> None:
    plain = {
        wordings.core(text)
        for held in wordings.held_back().values()
        for text in held
        if "{" not in text
    }
    for dialogue in dialogues(1500):
        for exchange in dialogue.exchanges:
            assert wordings.core(exchange.user) not in plain


def test_a_wording_is_compared_without_case_punctuation_and_polite_words() -> None:
    assert wordings.core("Hey, please Check ON it, thanks!") == wordings.core("check on it")
    assert wordings.core("please") == "please"


def test_a_seen_wording_stands_for_every_choice_of_its_parts() -> None:
    assert list(wordings.expand("[is|was] it {a} [|now]?")) == [
        "is it {a}?",
        "is it {a} now?",
        "was it {a}?",
        "was it {a} now?",
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_reply_is_well_formed_and_copies_what_it_must(family: str) -> None:
    for source in sources():
        for _ in range(25):
            dialogue = settled(FAMILIES[family](source), source, padding=False)
            asked = exam.Question(dialogue)
            verdict = exam.judged(asked, encode(asked.expected))
            assert (verdict.family, verdict.well_formed, verdict.exact) == (family, True, True)
            assert verdict.copied is not False


def test_prompts_are_those_of_openai_harmony() -> None:
    compared = 0
    for dialogue in dialogues(900):
        if dialogue.setting.format is not None or not all(_calls(dialogue)):
            continue  # harmony's renderer has no formats; calls as generated are spelled otherwise
        # what agents send beside a question is spelled out already
        plain = dialogue.under(replace(dialogue.setting, beside=""))
        assert encode(prompt_text(plain)) == of_harmony(plain)
        compared += 1
    assert compared > 400


def test_a_call_as_generated_and_as_stored_reads_as_the_same_call() -> None:
    told = [d for d in dialogues(900) if d.family == "after_tool" and d.exchanges[-1].steps]
    assert {stored for d in told for stored in _calls(d)} == {True, False}
    for dialogue in told:
        turn, _ = dialogue.exchanges[-1].steps[-1]
        assert turn.call is not None
        assert turn.calls == (turn.call,)
        prompt = prompt_text(dialogue)
        body = prompt[: prompt.rindex("<|call|>") + len("<|call|>")].rsplit("<|start|>assistant", 1)
        read = encoding().parse_messages_from_completion_tokens(
            encode(body[1]), harmony.Role.ASSISTANT
        )
        assert read[-1].recipient == f"functions.{turn.call.name}"
        assert read[-1].content[0].text == turn.call.arguments


def test_analysis_grows_with_effort_and_ends_in_what_decides() -> None:
    for dialogue in dialogues(300):
        turn = dialogue.exchanges[-1].turn
        low, medium, high = (turn.thoughts[e] for e in ("low", "medium", "high"))
        assert len(low) < len(medium) < len(high)
        assert medium.endswith(low)
        assert high.endswith(low)


def test_only_the_reply_is_learnt_whole_and_the_frame_is_never_blurred() -> None:
    rng = random.Random(SEED)
    for dialogue in dialogues(200):
        prompt = encode(prompt_text(dialogue))
        reply = encode(reply_text(dialogue.exchanges[-1].turn, dialogue.setting.effort))
        known = Codec.of([*prompt, *reply, *CONTROL])
        one = example(dialogue, known, rng, plain=True)
        assert [known.id(row) for row in one.rows] == prompt + reply
        assert (one.weights[: len(prompt)] < 0.5).all()
        forced = _forced(reply)
        if dialogue.family in BARRED:
            forced |= _answer_header(reply)
        if dialogue.family not in GUIDED:
            for place, weight in enumerate(one.weights[len(prompt) :]):
                assert weight == (0 if place in forced else 1)
        blurred = example(dialogue, known, rng)
        frame = {known.row_of[control] for control in CONTROL}
        for place, row in enumerate(one.rows[: len(prompt)]):
            assert row not in frame or blurred.rows[place] == row


def _answer_header(reply: list[int]) -> set[int]:
    """Where a server writes the header of an answer in the place of a call's."""
    header = encode(ASSISTANT + FINAL_HEADER)
    places = range(len(reply) - len(header))
    start = next(place for place in places if reply[place : place + len(header)] == header)
    return set(range(start, start + len(header)))


def _forced(reply: list[int]) -> set[int]:
    """Where a server, and not the model, writes: it opens the message behind a call."""
    opening = encode(ASSISTANT)
    behind = [i + 1 for i, token in enumerate(reply[:-1]) if token == CONTROL.call]
    return {start + i for start in behind for i in range(len(opening))}


@pytest.mark.slow  # 2 s: hundreds of replies
def test_every_word_of_every_reply_at_every_effort_is_one_that_the_model_keeps() -> None:
    known = shipped()
    for source in sources():
        for family in FAMILIES.values():
            for _ in range(40):
                turn = family(source).exchanges[-1].turn
                for effort in EFFORTS:
                    assert known.unknown not in known.rows(reply_text(turn, effort))


def test_what_is_called_strange_is_of_no_list_and_has_rows_all_the_same() -> None:
    listed, known = set(wordings.every_value()), shipped()
    for kind, strange in wordings.values().strange.items():
        assert len(set(strange)) >= 80, kind
        for value in strange:
            assert value not in listed
            assert known.unknown not in known.rows(f" {value}") + known.rows(value), value


def test_nothing_is_learnt_from_what_only_history_has() -> None:
    """An answer without an analysis before it, and what stands behind an answer."""
    rng = random.Random(SEED)
    found = 0
    for dialogue in dialogues(400):
        *earlier, last = dialogue.exchanges
        prompt = encode(prompt_text(dialogue))
        reply = encode(reply_text(last.turn, dialogue.setting.effort))
        if not earlier or last.steps:
            continue
        one = example(dialogue, Codec.of([*prompt, *reply, *CONTROL]), rng, plain=True)
        header = encode(ASSISTANT + FINAL_HEADER)
        for place in range(len(prompt) - len(header)):
            if prompt[place : place + len(header)] == header:
                assert not one.weights[place : place + len(header)].any()
                found += 1
        ends = [i for i, token in enumerate(prompt) if token == CONTROL.end]
        assert not one.weights[ends].any()
    assert found > 20


def test_turns_of_an_open_tool_loop_are_learnt_like_replies() -> None:
    rng = random.Random(SEED)
    learnt = 0
    for dialogue in dialogues(900):
        steps = dialogue.exchanges[-1].steps
        if not steps or any(call.stored for step in steps for call in step.turn.calls):
            continue
        prompt = encode(prompt_text(dialogue))
        reply = encode(reply_text(dialogue.exchanges[-1].turn, dialogue.setting.effort))
        one = example(dialogue, Codec.of([*prompt, *reply, *CONTROL]), rng)
        said = [encode(reply_text(turn, dialogue.setting.effort)) for turn, _ in steps]
        counted = sum(len(ids) - len(_forced(ids)) for ids in said)
        assert int((one.weights[: len(prompt)] == 1).sum()) == counted
        learnt += 1
    assert learnt > 20


def test_behind_the_last_call_no_other_call_is_learnt() -> None:
    rng = random.Random(SEED)
    closing = encode(ASSISTANT + FINAL_HEADER)
    shown = {True: 0, False: 0}
    for dialogue in dialogues(600):
        turn = dialogue.exchanges[-1].turn
        if not turn.calls:
            continue
        prompt = encode(prompt_text(dialogue))
        reply = encode(reply_text(turn, dialogue.setting.effort))
        one = example(dialogue, Codec.of([*prompt, *reply, *closing, *CONTROL]), rng)
        behind = len(prompt) + len(reply)
        shown[len(one.rows) > behind] += 1
        opened = len(encode(ASSISTANT))
        assert not one.weights[behind : behind + opened].any()
        assert (one.weights[behind + opened :] == 1).all()
    assert min(shown.values()) > 20


def test_functions_to_choose_from_name_the_place_as_they_like_or_all_differently() -> None:
    source = Source(wordings.seen(), random.Random(SEED))
    for family, shown in ((choice, {1, 2}), (choice_apart, {2})):
        assert {len(set(_places(family(source)))) for _ in range(50)} == shown


@pytest.mark.parametrize("family", ["weather", "time", "choice", "choice_apart", "two_calls"])
def test_a_call_s_parameter_is_its_functions_and_every_analysis_has_it_behind_the_name(
    family: str,
) -> None:
    for source in sources():
        for _ in range(50):
            dialogue = FAMILIES[family](source)
            turn = dialogue.exchanges[-1].turn
            assert turn.call is not None
            (parameter, *_), value = zip(*json.loads(turn.call.arguments).items(), strict=True)
            declared = {tool.name: tool.parameters or "{}" for tool in dialogue.setting.tools}
            assert parameter in json.loads(declared[turn.call.name])["properties"]
            for effort in EFFORTS:
                behind = f"{turn.call.name} with {parameter} {value[0]}"
                assert behind in turn.thoughts[effort]


def _places(dialogue: Dialogue) -> list[str]:
    schemas = [json.loads(tool.parameters or "{}") for tool in dialogue.setting.tools]
    named = ("city", "location", "place")
    return [key for each in schemas for key in each.get("properties", {}) if key in named]


def test_replies_that_break_harmony_are_not_well_formed() -> None:
    good = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>A"
    assert exam.well_formed(encode(good + "<|return|>"))
    call = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
    called = good.replace(FINAL_HEADER + "A", call)
    assert exam.well_formed(encode(called))
    assert exam.well_formed(encode(called + ASSISTANT + call))
    for bad in (
        good,
        good + "<|call|>",
        good.replace("final", "commentary") + "<|return|>",
        good.split("<|start|>")[0].replace("<|end|>", "<|return|>"),
        good.replace("final", "commentary to=functions.f <|constrain|>json") + "<|call|>",
        called + ASSISTANT + call.replace("}", ""),
        called + ASSISTANT + FINAL_HEADER + "A<|return|>",
    ):
        assert not exam.well_formed(encode(bad)), bad


def test_the_long_prompt_is_long_and_its_words_are_no_wordings() -> None:
    text = exam.unrelated_text(random.Random(SEED))
    assert len(encode(text)) >= exam.LONG_TOKENS
    assert wordings.normal(text[:200]) not in map(wordings.normal, wordings.unknown_requests())


def test_the_report_is_about_these_weights_and_these_wordings() -> None:
    report = json.loads((wordings.SOURCE / "report.json").read_text("utf-8"))
    for key, name in (
        ("weights", "compact.safetensors"),
        ("wordings", "wordings.json"),
        ("wordings_two", "wordings_two.json"),
        ("wordings_three", "wordings_three.json"),
        ("wordings_four", "wordings_four.json"),
    ):
        digest = hashlib.sha256((wordings.SOURCE / name).read_bytes()).hexdigest()
        assert report[f"{key}_sha256"] == digest
    assert set(report["families"]) == set(EXAMINED)
    for scores in report["families"].values():
        assert scores["seen"]["prompts"] + scores["held_back"]["prompts"] >= 50


def test_the_report_prints_every_family_and_condition() -> None:
    report = json.loads((wordings.SOURCE / "report.json").read_text("utf-8"))
    table = markdown(report)
    for name in EXAMINED:
        assert f"| {name.replace('_', ' ')} |" in table
    assert table.count("\n| ") >= len(EXAMINED) + len(report["conditions"])


def test_a_turn_is_a_call_or_an_answer() -> None:
    for dialogue in dialogues(300):
        turn: Turn = dialogue.exchanges[-1].turn
        assert (turn.call is None) != (turn.final is None)


def test_functions_are_known_by_their_names_ends_and_parameters_by_their_beginnings() -> None:
    known, rng = shipped(), random.Random(5)
    rows = knowledge(known)
    assert set(rows.functions).isdisjoint(rows.parameters)
    for kind in ("weather", "time"):
        for _ in range(100):
            kit = toolkit.kit(kind, rng)
            assert known.row_of[encode(f" {kit.tool.name}")[-1]] in rows.functions
            assert known.row_of[encode(str(kit.place))[0]] in rows.parameters
    assert rows.kin[known.row_of[encode("city")[0]]] == rows.kin[known.row_of[encode(" city")[0]]]
