"""Messages as templates take them: what templates drop, or refuse, is handed to them otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.template_families import checkpoint
from tests.support.template_served import dialect_of
from trt_responses.dialect import Entry
from trt_responses.dialects.templates.families import BY_NAME, text_only
from trt_responses.dialects.templates.forms import fitted
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS, Conversation
from trt_responses.dialects.templates.write.template import Template
from trt_responses.language.messages import Developer, Message, System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialects.templates.families import Family
    from trt_responses.store import Kind

    Json = dict[str, Any]

TEMPLATES = ("qwen3", "qwen3_5_think", "nemotron_3_nano", "glm4moe", "deepseek_v3_1")


def said(kind: Kind, message: Message, call_id: str | None = None) -> Entry:
    return Entry(kind, [message], call_id, b"")


def user(text: str) -> Entry:
    return said("user", Message("user", text))


def developer(text: str) -> Entry:
    return said("developer", Message("developer", f"# Instructions\n\n{text}"))


def thought(text: str) -> Entry:
    return said("reasoning", Message("assistant", text, None, "analysis"))


def call(call_id: str, arguments: str = '{"n": 1}') -> Entry:
    message = Message("assistant", arguments, None, "commentary", "functions.add")
    return said("call", message, call_id)


def result(call_id: str, text: str = "2") -> Entry:
    return said("result", Message("tool", text, "functions.add"), call_id)


def messages(entries: Sequence[Entry], family: Family, instructions: str | None = None) -> Any:
    return Conversation(Developer(instructions), entries, family).messages


def test_what_developers_say_first_is_the_systems_and_later_the_users() -> None:
    told = messages(
        [developer("One."), developer("Two."), user("Hi"), developer("Three.")],
        BY_NAME["qwen3"],
        "Zero.",
    )
    assert told == [
        {"role": "system", "content": "Zero.\n\nOne.\n\nTwo."},
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "Three."},
    ]


GEMMA_LIKE = (
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate, and the system has none') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
)


def test_a_template_that_refuses_a_system_message_has_it_in_the_first_user_message() -> None:
    template = Template(GEMMA_LIKE)
    family = fitted(text_only(("<|end|>",)), template.render, GEMMA_LIKE)
    assert (family.folds_system, family.merges_users) == (True, True)
    told = messages([developer("One."), user("Hi"), developer("Two."), user("?")], family, "Zero.")
    assert [message["role"] for message in told] == ["user"]
    words = [told[0]["content"].find(word) for word in ("Zero.", "One.", "Hi", "Two.", "?")]
    assert -1 not in words
    assert words == sorted(words)
    assert told[0]["content"] in template.render(told)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_shows_what_developers_say_wherever_it_stands(name: str) -> None:
    dialect = dialect_of(name)
    entries = [developer("word-one"), user("Hi"), developer("word-two"), user("Well?")]
    system = System("", None, None, "medium", has_function_tools=False)

    async def rendered() -> str:
        try:
            ids = await dialect.renderer.prompt(
                system, Developer("word-zero"), (), lambda _: entries, None
            )
        finally:
            await dialect.close()
        return checkpoint(name).tokeniser.text(ids)

    text = asyncio.run(rendered())
    places = [text.find(word) for word in ("word-zero", "word-one", "Hi", "word-two", "Well?")]
    assert -1 not in places
    assert places == sorted(places)


def test_a_thought_stands_under_each_key_and_a_content_is_never_null() -> None:
    (own,) = messages([thought("Hm."), call("c1")], BY_NAME["qwen3"])
    assert {key: own[key] for key in THOUGHT_KEYS} == dict.fromkeys(THOUGHT_KEYS, "Hm.")
    assert own["content"] == ""


def test_a_result_names_its_function_and_its_call() -> None:
    told = messages([call("c1"), result("c1")], BY_NAME["qwen3"])
    assert told[0]["tool_calls"][0]["id"] == "c1"
    assert (told[1]["name"], told[1]["tool_call_id"]) == ("add", "c1")


def test_ids_that_are_counted_go_on_over_the_conversation() -> None:
    family = replace(BY_NAME["qwen3"], numbers_calls=True)
    entries = [
        call("a"),
        result("a"),
        user("Again"),
        call("b"),
        call("c"),
        result("c"),
        result("b"),
    ]
    told = messages(entries, family)
    ids = [one["id"] for message in told for one in message.get("tool_calls", ())]
    assert ids == ["functions.add:0", "functions.add:1", "functions.add:2"]
    answered = [message["tool_call_id"] for message in told if message["role"] == "tool"]
    assert answered == ["functions.add:0", "functions.add:2", "functions.add:1"]


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        ("qwen3", '{"n": 1}', {"n": 1}),
        ("qwen3", "", {}),
        ("qwen3", "[1]", {"input": [1]}),
        ("qwen3", "{broken", {"input": "{broken"}),
        ("deepseek-v3.1", '{"n": 1}', '{"n": 1}'),
    ],
)
def test_arguments_are_an_object_or_a_text_as_the_family_takes_them(
    family: str, text: str, expected: object
) -> None:
    (own,) = messages([call("c1", text)], BY_NAME[family])
    assert own["tool_calls"][0]["function"]["arguments"] == expected
