"""Prompts of models without Harmony: the template's ids, and the model's own within a tool loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.template_families import checkpoint
from tests.support.template_turns import WEATHER, merged, short
from trt_responses.dialect import Entry
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.language.messages import Developer, FunctionTool, Message, System
from trt_responses.language.reader import ReaderOptions

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable, Callable, Sequence

SYSTEM = System("You are a model.", None, None, "medium", has_function_tools=True)
TOOL = FunctionTool("get_weather", "The weather.", WEATHER)
DEVELOPER = Developer("Be kind.", (TOOL,))

WRITTEN = {
    "qwen3": (
        '<think>\nThe user wants it.\n</think>\n\nI look. <tool_call>{"name":"get_weather",  '
        '"arguments": {"city":"Oslo"}}</tool_call><|im_end|>'
    ),
    "qwen3_5_think": (
        "The user wants it.</think>I look.\n<tool_call><function=get_weather><parameter=city>Oslo"
        "</parameter></function></tool_call><|im_end|>"
    ),
    "nemotron_3_nano": (
        "The user wants it.</think>I look.<tool_call><function=get_weather><parameter=city>Oslo"
        "</parameter></function></tool_call><|im_end|>"
    ),
    "glm4moe": (
        "<think>The user wants it.</think>I look.<tool_call>get_weather<arg_key>city</arg_key>"
        "<arg_value>Oslo</arg_value></tool_call><|observation|>"
    ),
}
"""A turn as a model wrote it, with other spaces than its template's."""


def told(name: str, talk: Callable[[TemplateDialect], Awaitable[Any]]) -> Any:
    one = checkpoint(name)
    ends = [one.tokeniser.control_id(text) for text in one.family.terminators]

    async def whole() -> Any:
        dialect = TemplateDialect(one.template, one.tokeniser, one.family, ends)
        try:
            return await talk(dialect)
        finally:
            await dialect.close()

    return asyncio.run(whole())


async def prompt(dialect: TemplateDialect, entries: Sequence[Entry]) -> array[int]:
    ids: array[int] = await dialect.renderer.prompt(
        SYSTEM, DEVELOPER, (), lambda _: [*entries], None
    )
    return ids


def user(text: str) -> Entry:
    return Entry("user", [Message("user", text)], None, b"")


def own_entries(
    dialect: TemplateDialect, before: array[int], written: Sequence[int]
) -> list[Entry]:
    """What blocks hold of a turn that a model has written."""
    reader = dialect.reader(ReaderOptions(call_ends=False, tools=(TOOL,), prompt=before))
    fragments = [*reader.feed(written), *reader.finish(stopped=True)]
    lines = [line.partition(": ")[2] for line in short(merged(fragments))]
    entries = []
    for span, text in zip(reader.messages, lines, strict=True):
        message = Message("assistant", text, channel=span.channel, recipient=span.recipient)
        kind: Any = {"analysis": "reasoning", "commentary": "call"}.get(span.channel or "", "final")
        call_id = "call_1" if span.recipient else None
        ids = dialect.renderer.own_ids(reader.kept, span).tobytes()
        entries.append(Entry(kind, [message], call_id, ids))
    return entries


RESULT = Entry("result", [Message("tool", "12 °C", name="functions.get_weather")], "call_1", b"")


@pytest.mark.parametrize("name", WRITTEN)
def test_within_a_tool_loop_a_prompt_begins_with_the_one_before_and_the_models_own_ids(
    name: str,
) -> None:
    async def talk(dialect: TemplateDialect) -> None:
        first = await prompt(dialect, [user("Weather?")])
        written = checkpoint(name).tokeniser.encode(WRITTEN[name])
        own = own_entries(dialect, first, written)
        assert [entry.kind for entry in own] == ["reasoning", "final", "call"]
        second = await prompt(dialect, [user("Weather?"), *own, RESULT])
        assert list(second[: len(first) + len(written)]) == [*first, *written]
        again = own_entries(dialect, second, written)
        third = await prompt(dialect, [user("Weather?"), *own, RESULT, *again, RESULT])
        assert list(third[: len(second) + len(written)]) == [*second, *written]

    told(name, talk)


@pytest.mark.parametrize("name", WRITTEN)
def test_at_the_next_users_message_the_template_writes_all_anew(name: str) -> None:
    async def talk(dialect: TemplateDialect) -> None:
        tokeniser = checkpoint(name).tokeniser
        first = await prompt(dialect, [user("Weather?")])
        own = own_entries(dialect, first, tokeniser.encode(WRITTEN[name]))
        later = [user("Weather?"), *own, RESULT, user("Thanks.")]
        text = tokeniser.text(await prompt(dialect, later))
        assert "The user wants it." not in text
        bare = [entry._replace(ids=b"") for entry in later]
        assert text == tokeniser.text(await prompt(dialect, bare))

    told(name, talk)


def test_what_does_not_read_back_the_same_is_the_templates() -> None:
    async def talk(dialect: TemplateDialect) -> None:
        tokeniser = checkpoint("qwen3").tokeniser
        first = await prompt(dialect, [user("Weather?")])
        own = own_entries(dialect, first, tokeniser.encode(WRITTEN["qwen3"]))
        changed = own[-1]._replace(
            messages=[Message("assistant", '{"city": "Rome"}', None, "commentary", "functions.f")]
        )
        text = tokeniser.text(await prompt(dialect, [user("W?"), *own[:-1], changed, RESULT]))
        assert "Rome" in text
        assert "Oslo" not in text

    told("qwen3", talk)


@pytest.mark.parametrize("name", WRITTEN)
def test_no_text_of_a_conversation_becomes_a_control_id(name: str) -> None:
    async def talk(dialect: TemplateDialect) -> None:
        controls = checkpoint(name).tokeniser.controls

        async def found(text: str) -> list[int]:
            said = f'{{"{text}": "{text}"}}'
            call = Message("assistant", said, None, "commentary", "functions.f")
            entries = [
                Entry("developer", [Message("developer", text)], None, b""),
                user(text),
                Entry("call", [call], "call_1", b""),
                Entry("result", [Message("tool", text, name="functions.f")], "call_1", b""),
            ]
            tool = FunctionTool("f", text, {"type": "object", "properties": {text: {}}})
            ids = await dialect.renderer.prompt(
                SYSTEM, Developer(text, (tool,)), (), lambda _: entries, None
            )
            return [one for one in ids if one in controls]

        usual = await found("x")
        for spelled in controls.values():
            assert await found(spelled) == usual, spelled

    told(name, talk)
