"""Prompts: equal to openai-harmony's, control ids from the renderer alone, nothing done twice."""

from __future__ import annotations

import asyncio
import random
from array import array
from typing import TYPE_CHECKING, get_args

import openai_harmony as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.errors import InvalidRequest
from trt_responses.harmony.render import (
    Developer,
    Effort,
    FunctionTool,
    Message,
    Renderer,
    ResponseFormat,
    System,
    kept,
    system_text,
)
from trt_responses.harmony.tokenise import Tokeniser
from trt_responses.harmony.vocabulary import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trt_responses.harmony.vocabulary import Vocabulary
    from trt_responses.store.base import Kind

CONVERSATIONS = 2000  # about 8 s


@pytest.fixture(scope="module")
def tokeniser(vocabulary: Vocabulary) -> Tokeniser:
    return Tokeniser(vocabulary)


@pytest.fixture
def renderer(vocabulary: Vocabulary, tokeniser: Tokeniser) -> Renderer:
    return Renderer(vocabulary, tokeniser)


async def prompt(
    renderer: Renderer, system: System, developer: Developer, messages: Iterable[Message]
) -> list[int]:
    return renderer.join(
        await renderer.system(system),
        await renderer.developer(developer),
        [await renderer.message(message) for message in messages],
    ).tolist()


# Random conversations


WORDS = (
    "a word, Another; isn't it? I'LL we'Re 12 345 6789 3.14 {} [] \"q\" \\ // /* */ \n \n\n \r\n \t "
    "漢字 かな カナ 한국어 ไทย العربية עברית हिन्दी Привет été naïve ß ẞ ǅ ª º ʰ é ❤️ 😀 👍🏽 👨‍👩‍👧 "
    "a… “x” ¿? ½ Ⅷ ٣ \u00a0 \u3000 \u2028 \x00 \x1c \x7f <|x|> json functions.f assistant"
).split(" ")


class Draw:
    """Random values of every shape that a conversation may have."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *choices: Callable[[], object]) -> object:
        return self.random.choice(choices)()

    def text(self, most: int = 12) -> str:
        count = self.random.randint(0, most)
        return self.random.choice(["", " ", " ", "\n"]).join(self.random.choices(WORDS, k=count))

    def name(self) -> str:
        return self.random.choice(["f", "get_weather", "a-b", "größe", "天気", "f2", "x.y"])

    def json(self, depth: int = 0) -> object:
        leaves = (
            lambda: self.text(3),
            lambda: self.random.choice([None, True, False, 0, -7, 1.0, 2.5, 1e-5, 1e16, 1e-7]),
            lambda: self.random.choice([10**18, 2**63, 2**64, -(2**63), 10**25, 123456789.125]),
        )
        if depth > 2:
            return self.one(*leaves)
        return self.one(
            *leaves,
            lambda: [self.json(depth + 1) for _ in range(self.random.randint(0, 3))],
            lambda: {self.text(1): self.json(depth + 1) for _ in range(self.random.randint(0, 3))},
        )

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def schema(self, depth: int = 0) -> object:
        if depth > 3 or self.maybe(0.04):
            return self.json(2)
        schema: dict[str, object] = {}
        kinds = ("object", "string", "number", "integer", "boolean", "array", "null", "odd")
        if self.maybe(0.9):
            schema["type"] = self.random.choice(kinds if depth else ("object",))
        if self.maybe(0.05):
            schema["type"] = self.random.choice([5, None, [], ["integer", "null"], ["string", 3]])
        if self.maybe(0.15):
            count = self.random.randint(0, 3)
            schema["oneOf"] = [self.schema(depth + 1) for _ in range(count)]
        if self.maybe(0.03):
            schema["oneOf"] = self.json(2)
        for key, chance, make in (
            ("description", 0.4, lambda: self.random.choice(["same", self.text(4)])),
            ("title", 0.2, lambda: self.text(2)),
            ("default", 0.3, lambda: self.json(1)),
            ("nullable", 0.2, lambda: self.random.choice([True, False, 1, "true"])),
            ("examples", 0.2, lambda: [self.json(2) for _ in range(self.random.randint(0, 3))]),
            ("enum", 0.3, lambda: [self.json(2) for _ in range(self.random.randint(0, 3))]),
            ("items", 0.6, lambda: self.schema(depth + 1)),
            ("required", 0.5, lambda: self.random.choice([["a", 5, "ключ"], "a", []])),
            ("title", 0.03, lambda: self.json(2)),
            ("examples", 0.03, lambda: self.json(2)),
            ("properties", 0.03, lambda: self.json(2)),
        ):
            if self.maybe(chance):
                schema[key] = make()
        if schema.get("type") == "object" and self.maybe(0.9):
            keys = self.random.sample(["a", "b", "ключ", "null", "x y", ""], k=3)
            schema["properties"] = {key: self.schema(depth + 1) for key in keys}
        items = list(schema.items())
        self.random.shuffle(items)
        return dict(items)

    def tool(self) -> FunctionTool:
        schema = self.schema()
        parameters = schema if isinstance(schema, dict) and self.maybe(0.9) else None
        description = self.random.choice(["", "\r\nx\r\n\ny\r", self.text(6)])
        return FunctionTool(self.name(), description, parameters)

    def developer(self) -> Developer:
        return Developer(
            instructions=self.text(30) if self.maybe(0.7) else None,
            tools=tuple(self.tool() for _ in range(self.random.choice([0, 0, 1, 2]))),
        )

    def system(self, developer: Developer) -> System:
        return System(
            identity=self.text(6),
            knowledge_cutoff="2024-06" if self.maybe(0.8) else None,
            date="2026-01-31" if self.maybe(0.8) else None,
            effort=self.random.choice(get_args(Effort)),
            has_function_tools=bool(developer.tools),
        )

    def message(self) -> Message:
        text = self.text(40)
        name = f"functions.{self.name()}"
        content_type = self.random.choice([None, "<|constrain|>json", "json", "<|constrain|>"])
        return self.random.choice(
            [
                Message("user", text),
                Message("user", text, name=self.name()),
                Message("developer", text),
                Message("assistant", text),
                Message("assistant", text, channel="analysis"),
                Message("assistant", text, channel="commentary"),
                Message("assistant", text, channel="final"),
                Message("assistant", text, None, "commentary", name, content_type),
                Message("assistant", text, channel="analysis", recipient="all"),
                Message("tool", text, name, "commentary", "assistant"),
                Message("tool", text, name),
            ]
        )


def oracle_message(message: Message) -> oracle.Message:
    author = oracle.Author(role=oracle.Role(message.role), name=message.name)
    made = oracle.Message.from_author_and_content(author, message.text)
    made.channel = message.channel
    made.recipient = message.recipient
    made.content_type = message.content_type
    return made


def oracle_system(system: System) -> oracle.Message:
    content = oracle.SystemContent(
        model_identity=system.identity,
        reasoning_effort=oracle.ReasoningEffort(system.effort.title()),
        conversation_start_date=system.date,
        knowledge_cutoff=system.knowledge_cutoff,
    )
    return oracle.Message.from_role_and_content(oracle.Role.SYSTEM, content)


def oracle_developer(developer: Developer) -> oracle.Message:
    content = oracle.DeveloperContent(instructions=developer.instructions)
    if developer.tools:
        content = content.with_function_tools(
            [
                oracle.ToolDescription.new(
                    tool.name,
                    tool.description,
                    None if tool.parameters is None else dict(tool.parameters),
                )
                for tool in developer.tools
            ]
        )
    return oracle.Message.from_role_and_content(oracle.Role.DEVELOPER, content)


def oracle_prompt(
    vocabulary: Vocabulary, system: System, developer: Developer, messages: list[Message]
) -> list[int]:
    said = [oracle_system(system)]
    if developer != Developer(None):
        said.append(oracle_developer(developer))
    conversation = oracle.Conversation.from_messages(said + [oracle_message(m) for m in messages])
    ids: list[int] = vocabulary.encoding.render_conversation_for_completion(
        conversation,
        oracle.Role.ASSISTANT,
        oracle.RenderConversationConfig(auto_drop_analysis=False),
    )
    return ids


def test_random_conversations_are_rendered_as_openai_harmony_renders_them(
    vocabulary: Vocabulary, renderer: Renderer
) -> None:
    async def compare() -> None:
        for seed in range(CONVERSATIONS):
            draw = Draw(seed)
            developer = draw.developer()
            system = draw.system(developer)
            messages = [draw.message() for _ in range(draw.random.randint(0, 6))]
            ids = await prompt(renderer, system, developer, messages)
            expected = oracle_prompt(vocabulary, system, developer, messages)
            if ids != expected:
                assert vocabulary.text(ids) == vocabulary.text(expected), f"seed {seed}"
            assert ids == expected, f"seed {seed}"

    asyncio.run(compare())
