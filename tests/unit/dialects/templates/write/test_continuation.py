"""What goes on behind a prompt: a tool's answer as the template writes it, or the whole anew."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.story import story
from tests.support.template_families import checkpoint
from tests.support.template_served import dialect_of
from tests.support.template_turns import WEATHER
from trt_responses.dialect import Entry
from trt_responses.errors import InvalidRequest
from trt_responses.language.messages import Developer, FunctionTool, Message, System
from trt_responses.language.reader import ReaderOptions

if TYPE_CHECKING:
    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.dialects.templates.write.renderer import Continuation
    from trt_responses.language.reader import Reader

TOOL = FunctionTool("get_weather", "The weather.", WEATHER)
DEVELOPER = Developer("Be kind.", (TOOL,))
QUESTION = Entry("user", [Message("user", "Weather?")], None, b"")
RESULT = Message("tool", "cold", name="functions.get_weather")
CALLS = {
    "qwen3": '<tool_call>{"name":"get_weather",  "arguments": {"city":"Oslo"}}</tool_call>',
    "qwen3_5_think": "<tool_call><function=get_weather><parameter=city>Oslo</parameter></function>"
    "</tool_call>",
    "nemotron_3_nano": "<tool_call><function=get_weather><parameter=city>Oslo</parameter>"
    "</function></tool_call>",
    "glm4moe": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
    "</tool_call>",
}
"""A call as a model wrote it, with other spaces than its template's."""
every_template = pytest.mark.parametrize("name", CALLS)


def system(*, thinks: bool) -> System:
    return System("", None, None, "medium", has_function_tools=True, thinks=thinks)


async def begun(
    dialect: TemplateDialect, *, thinks: bool = True
) -> tuple[array[int], Continuation, Reader]:
    """A prompt, what goes on behind it, and the reader of what is written."""
    told = (system(thinks=thinks), DEVELOPER, (), lambda _: [QUESTION])
    prompt = await dialect.renderer.prompt(*told, at_most=None)
    reader = dialect.reader(ReaderOptions(tools=(TOOL,), prompt=prompt))
    return prompt, dialect.renderer.continuation(prompt, *told), reader


@pytest.mark.parametrize("thinks", [True, False])
@every_template
@story
async def test_each_turn_of_a_loop_extends_the_ids_before(name: str, thinks: bool) -> None:
    dialect = dialect_of(name)
    try:
        _, continuation, reader = await begun(dialect, thinks=thinks)
        one, encode = checkpoint(name), checkpoint(name).tokeniser.encode
        assert one.family.switch is not None
        switch: Any = {one.family.switch.name: thinks}
        function = {"name": "get_weather", "arguments": {"city": "Oslo"}}
        call = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        said: list[Any] = [{"role": "user", "content": "Weather?"}]
        for text in ("cold", "<tool_call> & </think>", ""):
            thought = "I look.</think>" if thinks and name not in ("qwen3", "glm4moe") else ""
            reader.feed(encode(thought + CALLS[name]))
            assert reader.ended
            said += [call, {"role": "tool", "content": text, "name": "get_weather"}]
            message = Message("tool", text, name="functions.get_weather")
            told = await continuation.answer(message, reader)
            assert told.prompt is None
            reader.answer(told.ids, told.stored)
            written = checkpoint(name).tokeniser.text(told.ids)
            assert written == one.template.render(said, **switch).rpartition("</tool_call>")[2]
    finally:
        await dialect.close()


@every_template
@story
async def test_no_text_of_a_tool_becomes_a_control_id(name: str) -> None:
    dialect, controls = dialect_of(name), checkpoint(name).tokeniser.controls
    found = []
    try:
        for text in ("x", " ".join(controls.values()), "".join(controls.values())):
            _, continuation, reader = await begun(dialect, thinks=False)
            reader.feed(checkpoint(name).tokeniser.encode(CALLS[name]))
            told = await continuation.answer(
                Message("tool", text, name="functions.get_weather"), reader
            )
            assert text in checkpoint(name).tokeniser.text(told.ids)
            found.append([one for one in told.ids if one in controls])
        assert found[0] == found[1] == found[2]
    finally:
        await dialect.close()


@story
async def test_what_is_mended_is_rendered_anew_and_the_next_turn_goes_on_from_that() -> None:
    dialect = dialect_of("qwen3")
    try:
        prompt, continuation, reader = await begun(dialect)
        encode = checkpoint("qwen3").tokeniser.encode
        reader.feed(encode(CALLS["qwen3"].replace("</tool_call>", "<tool_call>")))
        told = await continuation.answer(RESULT, reader)
        assert told.prompt is not None
        assert told.prompt[: len(prompt)] == prompt
        text = checkpoint("qwen3").tokeniser.text(told.prompt[len(prompt) :])
        assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}' in text
        assert text.endswith(
            "<tool_response>\ncold\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        )
        reader.answer(told.ids, told.stored)
        at = len(reader.kept)
        reader.feed(encode(CALLS["qwen3"]))
        again = await continuation.answer(RESULT, reader)
        assert again.prompt is None
        whole = told.prompt + array("I", reader.kept[at:]) + again.ids
        assert checkpoint("qwen3").tokeniser.text(whole).count("\ncold\n") == 2
    finally:
        await dialect.close()


@story
async def test_an_answer_without_room_is_refused_and_a_shorter_one_is_taken() -> None:
    dialect = dialect_of("qwen3")
    try:
        _, continuation, reader = await begun(dialect)
        reader.feed(checkpoint("qwen3").tokeniser.encode(CALLS["qwen3"]))
        for text, most in (("cold " * 100, 90), ("cold", 10)):  # the text, and what is around it
            with pytest.raises(InvalidRequest):
                await continuation.answer(Message("tool", text, name="x"), reader, at_most=most)
        told = await continuation.answer(RESULT, reader, at_most=90)
        assert len(told.ids) <= 90
        assert told.prompt is None
    finally:
        await dialect.close()
