"""Every way to choose tools with every form, strictness, effort and budget: the client gets what it
asked for, or a 400, or an answer that is not called completed. The model is scripted: it obeys its
guides or it does not, and writes anything where it is free.

Budget: 4 s on one core.
"""

from __future__ import annotations

import asyncio
import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.asgi import PATIENCE_S
from tests.support.sampled import sampled
from tests.support.schema_judge import valid
from tests.support.served import script, served
from tests.support.steering import GUIDES
from trt_responses.schema.compile import Forms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.asgi import Call
    from tests.support.scripted.engine import Script
    from trt_responses.engine import GenerateOptions

Json = dict[str, Any]

FLAG: Json = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
LIST: Json = {
    "type": "object",
    "properties": {"n": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
    "required": ["n"],
}
ODD: Json = {"type": "object", "not": {"required": ["x"]}}
PLATE = "[A-Z]{2}-[0-9]+"
TOOLS: tuple[Json, ...] = (
    {"type": "function", "name": "get", "parameters": FLAG},
    {"type": "function", "name": "get_it", "parameters": FLAG, "strict": True},
    {"type": "function", "name": "get_item", "parameters": LIST, "strict": True},
    {"type": "function", "name": "odd", "parameters": ODD},
    {"type": "custom", "name": "sh"},
    {"type": "custom", "name": "plate",
     "format": {"type": "grammar", "syntax": "regex", "definition": PLATE}},
    {"type": "custom", "name": "patch",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
)  # fmt: skip
BY_NAME = {tool["name"]: tool for tool in TOOLS}
LAWFUL = {FLAG["required"][0]: '{"ok":false}', "n": '{"n":[1,-2]}', "input": '{"input":"AB-12"}'}
UNLAWFUL = ('{"ok":1}', '{"n":[]}', "{", "[]", "words", '{"input":"ab-1"}', '{"input":5}', "")
FREE = (
    "Hm.<|end|>",
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>",
    "<|channel|>final<|message|>{}<|return|>",
    "<|channel|>commentary to=functions.get_it <|constrain|>json<|message|>",
    '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"ok":3}<|call|>',
    "<|channel|>commentary to=functions.plate <|message|>",
    "<|start|><|start|><|channel|>",
    '{"ok":true}<|call|>',
    "",
)


def named(name: str) -> Json:
    kind = "function" if BY_NAME[name]["type"] == "function" else "custom"
    return {"type": kind, "name": name}


NAMED = st.sampled_from(sorted(BY_NAME)).map(named)
CHOICES = (
    st.sampled_from([None, "auto", "none", "required"])
    | NAMED
    | st.builds(
        lambda mode, tools: {"type": "allowed_tools", "mode": mode, "tools": tools},
        st.sampled_from(["auto", "required"]),
        st.lists(NAMED, min_size=1, max_size=3),
    )
)
FORMATS = st.sampled_from(
    [
        None,
        {"type": "text"},
        {"type": "json_object"},
        *({"type": "json_schema", "name": "a", "schema": schema} for schema in (FLAG, LIST, ODD)),
    ]
)
EFFORTS = st.sampled_from([None, "none", "minimal", "low", "medium", "high", "xhigh", "max"])
WISHES = st.fixed_dictionaries(
    {
        "tools": st.lists(st.sampled_from(TOOLS), max_size=4, unique_by=lambda tool: tool["name"]),
        "tool_choice": CHOICES,
        "format": FORMATS,
        "effort": EFFORTS,
        "thought": st.none() | st.integers(0, 40),
        "max_output_tokens": st.none() | st.integers(16, 80),
    }
)


def asked(wish: Json) -> Json:
    fields = {key: wish[key] for key in ("tools", "tool_choice", "max_output_tokens") if wish[key]}
    reasoning = {"effort": wish["effort"], "max_tokens": wish["thought"]}
    text = {"text": {"format": wish["format"]}} if wish["format"] else {}
    return fields | text | {"reasoning": {k: v for k, v in reasoning.items() if v is not None}}


def model(random: Random, *, obeys: bool) -> Callable[[Sequence[int], GenerateOptions], Script]:
    """Writes what its guide says, or anything."""

    def write(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        guide = options.guide
        if guide is None or not (obeys or random.random() < 0.5):
            return script(random.choice((*FREE, *UNLAWFUL)))
        if guide.kind == "regex":
            header = re.sub(r"\\(.)", r"\1", random.choice(guide.source.split("|")))
            return script(f"{header}<|endoftext|>")
        needed = json.loads(guide.source).get("required") or ["none"]
        return script(LAWFUL.get(needed[0], "{}") + "<|endoftext|>")

    return write


class Stage:
    """One app for all: its model is chosen by each request."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._write = model(Random(0), obeys=True)
        self._app = served(lambda *asked: self._write(*asked), guides=GUIDES)
        self._served = runner.run(self._app.__aenter__())

    def ask(self, wish: Json, seed: int, *, obeys: bool) -> Call:
        self._write = model(Random(seed), obeys=obeys)
        call = self._served.client.create(**asked(wish))
        return self._runner.run(asyncio.wait_for(call, PATIENCE_S))

    def close(self) -> None:
        self._runner.run(self._app.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        made = Stage(runner)
        yield made
        made.close()


def check_completed(wish: Json, told: Json) -> None:
    output = [item for item in told["output"] if item["type"] != "reasoning"]
    calls = [item for item in output if item["type"] != "message"]
    choice = wish["tool_choice"] or "auto"
    if choice == "none":
        assert not calls
    elif choice == "required" or (isinstance(choice, dict) and choice.get("mode") != "auto"):
        assert len(calls) == len(output) == 1
    if isinstance(choice, dict):
        allowed = {tool["name"] for tool in choice.get("tools", [choice])}
        assert {call["name"] for call in calls} <= allowed
    for call in calls:
        check_call(BY_NAME[call["name"]], call, forced=isinstance(choice, dict))
    form = wish["format"] or {"type": "text"}
    for message in (item for item in output if item["type"] == "message"):
        text = message["content"][0]["text"]
        if form["type"] == "json_schema":
            assert valid(json.loads(text), form["schema"], form["schema"])
        elif form["type"] == "json_object":
            assert isinstance(json.loads(text), dict)
    assert told["usage"]["output_tokens"] <= (wish["max_output_tokens"] or 1 << 30)


def check_call(tool: Json, call: Json, *, forced: bool) -> None:
    if tool.get("strict") or (forced and tool["name"] == "get"):
        schema = tool["parameters"]
        assert valid(json.loads(call["arguments"]), schema, schema)
    if tool["name"] == "plate":
        assert re.fullmatch(PLATE, call["input"])


drawn = sampled("examples", [100, 500])  # 4 s for two tests


@drawn
def test_a_model_that_obeys_its_guides_never_fails_a_client(stage: Stage, examples: int) -> None:
    @settings(max_examples=examples)
    @given(WISHES, st.integers(0, 1 << 30))
    def ask(wish: Json, seed: int) -> None:
        call = stage.ask(wish, seed, obeys=True)
        assert call.status in (200, 400), call.body
        if call.status == 400:
            assert call.error["param"], call.error
        elif call.json()["status"] == "completed":
            check_completed(wish, call.json())

    ask()


@drawn
def test_what_departs_is_never_called_completed(stage: Stage, examples: int) -> None:
    @settings(max_examples=examples)
    @given(WISHES, st.integers(0, 1 << 30))
    def ask(wish: Json, seed: int) -> None:
        call = stage.ask(wish, seed, obeys=False)
        if call.status == 500:
            assert re.search("departed from|ended before", call.error["message"]), call.error
        elif call.json().get("status") == "completed":
            check_completed(wish, call.json())

    ask()


def test_the_lawful_texts_are_lawful(stage: Stage) -> None:
    """Or the tests above would show little."""
    forms = Forms()
    for schema, name in ((FLAG, "ok"), (LIST, "n")):
        check = forms.form(schema, "s").follow()
        assert check.feed(LAWFUL[name].encode())
        assert check.whole
    wish: Json = dict.fromkeys(("format", "thought", "max_output_tokens"))
    wish |= {"tools": list(TOOLS), "tool_choice": "required", "effort": "none"}
    for seed in range(20):
        assert stage.ask(wish, seed, obeys=True).json()["status"] == "completed"
