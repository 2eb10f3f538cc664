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

from tests.support.long_runs import tokeniser_of
from tests.support.turns import turn
from trt_responses.errors import InvalidRequest
from trt_responses.harmony.write.preface import system_text
from trt_responses.harmony.write.render import HITS_AT_ONCE, Renderer, kept
from trt_responses.harmony.write.typescript import MAX_DEPTH
from trt_responses.language.messages import (
    Developer,
    Effort,
    FunctionTool,
    Message,
    ResponseFormat,
    System,
)
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trt_responses.store import Kind
    from trt_responses.tokens.tokenise import Tokeniser
    from trt_responses.tokens.vocabulary import Vocabulary

CONVERSATIONS = [200, pytest.param(2000, marks=pytest.mark.slow)]  # 4 s


@pytest.fixture(scope="module")
def tokeniser(vocabulary: Vocabulary) -> Tokeniser:
    return tokeniser_of(vocabulary)


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


SAMPLE = (
    "a word, Another; isn't it? I'LL we'Re 12 345 6789 3.14 {} [] \\ // /* */ <|x|> json \"q\" "
    "漢字 かな カナ 한국어 ไทย العربية עברית हिन्दी Привет été naïve ß ẞ ǅ ª º ʰ é ❤️ 😀 "
    "👍🏽 👨\u200d👩\u200d👧 a… “x” ¿? ½ Ⅷ ٣ functions.f assistant \n \n\n \r\n \t "
    "\u00a0 \u3000 \u2028 \x00 \x1c \x7f "
)
WORDS = SAMPLE.split(" ")


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
        members: tuple[tuple[str, float, Callable[[], object]], ...] = (
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
        )
        for key, chance, make in members:
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
    return channel_first(ids, vocabulary)


def channel_first(ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """The ids with the channel of each call before its recipient; openai-harmony, which reads both
    orders alike, writes the other one."""
    (assistant,), (to,) = vocabulary.encode_plain("assistant"), vocabulary.encode_plain(" to")
    swapped: list[int] = []
    for at, token_id in enumerate(ids):
        if token_id == CONTROL.start:
            begin, call = len(swapped), ids[at + 1] == assistant
        swapped.append(token_id)
        if token_id != CONTROL.message or not call or CONTROL.channel not in swapped[begin:]:
            continue
        head = swapped[begin:-1]
        channel = head.index(CONTROL.channel)
        recipient = next((n for n in range(channel) if head[n] == to), channel)
        names = [vocabulary.encode_plain(name) for name in ("analysis", "commentary", "final")]
        end = channel + 1 + next(len(n) for n in names if head[channel + 1 :][: len(n)] == n)
        order = (head[:recipient], head[channel:end], head[recipient:channel], head[end:])
        swapped[begin:-1] = [token_id for part in order for token_id in part]
        call = False
    return swapped


@pytest.mark.parametrize("conversations", CONVERSATIONS)
def test_random_conversations_are_rendered_as_openai_harmony_renders_them(
    vocabulary: Vocabulary, renderer: Renderer, conversations: int
) -> None:
    async def compare() -> None:
        for seed in range(conversations):
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


def test_a_response_format_ends_the_developer_message(
    vocabulary: Vocabulary, renderer: Renderer
) -> None:
    form = ResponseFormat("person", "Someone.\nAnyone.", {"type": "object", "é": [1.0, 1e16]})
    tool = FunctionTool("f", "", None)
    ids = asyncio.run(renderer.developer(Developer("Be brief.", (tool,), form)))
    assert vocabulary.text(ids.tolist()) == (
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\ntype f = () => any;\n\n} // namespace functions\n\n"
        "# Response Formats\n\n## person\n\n// Someone.\n// Anyone.\n"
        '{"type":"object","é":[1.0,1e16]}<|end|>'
    )


ONES: list[object] = [1, 1.0, True, "1", 1e400, None, -0.0, 0, [1], (1, 2), [1, 2], {"1": 1}]
"""Of which no two are shown alike, or told apart by every way to write them down."""


def test_a_developer_message_is_known_by_what_it_is_made_of_and_by_nothing_less(
    vocabulary: Vocabulary, tokeniser: Tokeniser, renderer: Renderer
) -> None:
    def shown(one: object, other: object) -> Developer:
        properties = {"a": {"default": one}, "b": {"enum": [one, other]}}
        schemas = [
            {"type": "object", "properties": properties},
            {"properties": dict(reversed(properties.items())), "type": "object"},
        ]
        tools = tuple(FunctionTool("f", str(one), schema) for schema in schemas)
        return Developer("Be brief.", tools, ResponseFormat("x", None, properties))

    for one in ONES:
        for other in ONES:
            for developer in (shown(one, other), shown(one, other)):
                ids = asyncio.run(renderer.developer(developer))
                alone = Renderer(vocabulary, tokeniser)
                assert ids == asyncio.run(alone.developer(developer))


def test_tools_that_come_again_are_neither_written_nor_tokenised_again(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = Counted(vocabulary)
    renderer = Renderer(vocabulary, tokeniser_of(vocabulary, native=native))

    def developer() -> Developer:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        return Developer("Be brief.", (FunctionTool("f", "It does.", schema),))

    first = asyncio.run(renderer.developer(developer()))
    spent = native.characters
    # patched: who writes the tools once more fails
    monkeypatch.setattr("trt_responses.harmony.write.preface.type_of", None)
    assert asyncio.run(renderer.developer(developer())) == first
    assert native.characters == spent
    with pytest.raises(InvalidRequest):
        asyncio.run(renderer.developer(developer(), at_most=len(first) - 1))


def test_a_developer_message_without_anything_to_say_is_empty(renderer: Renderer) -> None:
    assert asyncio.run(renderer.developer(Developer(None))) == array("I")


def test_a_tool_message_needs_a_name(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest):
        asyncio.run(renderer.message(Message("tool", "42")))


# Control ids


SPELLED = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>")
HOSTILE = st.lists(
    st.sampled_from((*SPELLED, "<|constrain|>", "<|reserved_200013|>", "<|", "|>", "a", " to="))
    | st.text(max_size=3),
    max_size=6,
).map("".join)
"""Text that spells control ids, alone and beside other text; surrogates are not spelled back."""
OPTIONAL = st.none() | HOSTILE


def control_ids(ids: Iterable[int]) -> list[int]:
    return [i for i in ids if i >= FIRST_CONTROL_ID]


@settings(max_examples=300)
@given(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "developer", "tool"]),
        HOSTILE,
        HOSTILE,
        OPTIONAL,
        OPTIONAL,
        OPTIONAL | HOSTILE.map("<|constrain|>".__add__),
    )
)
def test_control_ids_of_a_message_stand_where_the_renderer_put_them(
    vocabulary: Vocabulary, tokeniser: Tokeniser, message: Message
) -> None:
    ids = asyncio.run(Renderer(vocabulary, tokeniser).message(message)).tolist()
    expected = [CONTROL.start]
    if message.channel is not None:
        expected.append(CONTROL.channel)
    if (message.content_type or "").startswith("<|constrain|>"):
        expected.append(CONTROL.constrain)
    call = message.role == "assistant" and message.recipient is not None
    expected += [CONTROL.message, CONTROL.call if call else CONTROL.end]
    assert control_ids(ids) == expected
    body = ids[ids.index(CONTROL.message) + 1 : -1]
    assert vocabulary.text(body) == message.text


@settings(max_examples=200)
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_control_ids_of_the_first_messages_stand_where_the_renderer_put_them(
    vocabulary: Vocabulary, tokeniser: Tokeniser, a: str, b: str, c: str, d: str, e: str
) -> None:
    schema = {
        "type": "object",
        "description": a,
        "properties": {b: {"type": "string", "enum": [c], "default": d, "title": e}},
    }
    developer = Developer(a, (FunctionTool(b, c, schema),), ResponseFormat(d, e, schema))
    system = System(a, b, c, "low", has_function_tools=True)
    ids = asyncio.run(prompt(Renderer(vocabulary, tokeniser), system, developer, ()))
    whole = [CONTROL.start, CONTROL.message, CONTROL.end]
    assert control_ids(ids) == [*whole, *whole, CONTROL.start]
    body = ids[ids.index(CONTROL.message) + 1 : ids.index(CONTROL.end)]
    assert vocabulary.text(body) == system_text(system)


# Tools from strangers


def nested(levels: int, key: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        inner: object = {"a": schema} if key == "properties" else schema
        schema = {
            "type": "array" if key == "items" else "object",
            key: [inner] if key == "oneOf" else inner,
        }
    return schema


@pytest.mark.parametrize("key", ["properties", "items", "oneOf", "default"])
def test_deep_schemas_are_refused_and_not_too_deep_ones_rendered(
    renderer: Renderer, key: str
) -> None:
    def render(levels: int) -> array[int]:
        schema = {"type": "object", "properties": {"a": nested(levels, key)}}
        return asyncio.run(renderer.developer(Developer(None, (FunctionTool("f", "", schema),))))

    assert render(MAX_DEPTH // 2 - 2)
    with pytest.raises(InvalidRequest):
        render(5000)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": 5},
        {"type": None},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": None, "b": 3, "c": True, "d": "x"}},
        {"type": "object", "required": {"a": 1}, "properties": {"a": {"oneOf": [None, 5]}}},
        {"oneOf": []},
        {"type": ["null", 3, {}]},
        {"type": "string", "enum": "ab"},
        {"type": "object", "properties": {"\ud800": {"enum": ["\udfff"], "default": "\ud83d"}}},
        {"type": "object", "properties": {"a": {"default": {"\ud800": ["\udfff"]}}}},
        {"type": "object", "properties": {"a": {"default": [10**400, float("nan"), 2**64]}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": [1, 2]}}},
    ],
)
def test_no_schema_is_too_odd_to_render(
    vocabulary: Vocabulary, renderer: Renderer, parameters: dict[str, object]
) -> None:
    tool = FunctionTool("f\ud800", "\udfff", parameters)
    form = ResponseFormat("x", None, parameters)
    ids = asyncio.run(renderer.developer(Developer("\ud800", (tool,), form)))
    assert "type f\ufffd = (_: " in vocabulary.text(ids.tolist())


# Nothing twice


class Counted:
    """The encoder, and how many characters it was given."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode_plain
        self.characters = 0
        self.longest = 0

    def __call__(self, text: str) -> list[int]:
        self.characters += len(text)
        self.longest = max(self.longest, len(text))
        return self._encode(text)


def long_conversation() -> tuple[System, Developer, list[Message]]:
    draw = Draw(5)
    developer = Developer("Be brief.", tuple(draw.tool() for _ in range(5)))
    return draw.system(developer), developer, [draw.message() for _ in range(200)]


def test_the_next_turn_tokenises_the_new_message_only(vocabulary: Vocabulary) -> None:
    native = Counted(vocabulary)
    renderer = Renderer(vocabulary, tokeniser_of(vocabulary, native=native))
    system, developer, messages = long_conversation()
    first = asyncio.run(prompt(renderer, system, developer, messages))
    native.characters = 0
    again = asyncio.run(prompt(renderer, system, developer, messages))
    assert native.characters == 0
    assert again == first
    asyncio.run(prompt(renderer, system, developer, [*messages, Message("user", "And now?")]))
    assert native.characters == len("userAnd now?")


def test_other_tasks_run_now_and_then_while_many_known_messages_are_taken(
    renderer: Renderer,
) -> None:
    async def count() -> int:
        await renderer.message(Message("user", "Hi"))
        turns = 0
        taking = asyncio.create_task(take())
        while not taking.done():
            turns += 1
            await turn()
        await taking
        return turns

    async def take() -> None:
        for _ in range(10 * HITS_AT_ONCE):
            await renderer.message(Message("user", "Hi"))

    assert 10 <= asyncio.run(count()) < HITS_AT_ONCE


def test_the_cache_is_bounded_in_bytes_and_forgets_the_longest_unused(
    vocabulary: Vocabulary,
) -> None:
    native = Counted(vocabulary)
    renderer = Renderer(vocabulary, tokeniser_of(vocabulary, native=native), cache_bytes=10_000)

    def tokenised(number: int) -> bool:
        native.characters = 0
        asyncio.run(renderer.message(Message("user", f"{number} words to count")))
        return native.characters > 0

    assert [tokenised(n) for n in (1, 2, 1)] == [True, True, False]
    assert all(tokenised(n) for n in range(3, 16))
    assert [tokenised(n) for n in (1, 15)] == [False, False]
    assert all(tokenised(n) for n in range(20, 60))
    assert tokenised(1)


def test_a_message_larger_than_the_cache_is_rendered_and_not_kept(vocabulary: Vocabulary) -> None:
    native = Counted(vocabulary)
    renderer = Renderer(vocabulary, tokeniser_of(vocabulary, native=native), cache_bytes=1000)
    message = Message("user", "word " * 1000)
    first = asyncio.run(renderer.message(message))
    native.characters = 0
    assert asyncio.run(renderer.message(message)) == first
    assert native.characters > 0


def test_ids_belong_to_the_caller(renderer: Renderer) -> None:
    message = Message("user", "Hello")
    first = asyncio.run(renderer.message(message))
    spoilt = asyncio.run(renderer.message(message))
    spoilt.append(7)
    assert asyncio.run(renderer.message(message)) == first


@pytest.mark.parametrize("known", [False, True])
def test_at_most_holds_for_the_whole_message_known_or_not(renderer: Renderer, known: bool) -> None:
    message = Message("user", "one two three")
    if known:
        asyncio.run(renderer.message(message))
    with pytest.raises(InvalidRequest) as raised:
        asyncio.run(renderer.message(message, at_most=6))
    assert raised.value.code == "context_length_exceeded"
    assert len(asyncio.run(renderer.message(message, at_most=7))) == 7


def test_long_instructions_and_schemas_are_tokenised_in_short_pieces(
    vocabulary: Vocabulary,
) -> None:
    native = Counted(vocabulary)
    renderer = Renderer(vocabulary, tokeniser_of(vocabulary, native=native))
    schema = {"type": "object", "properties": {"b" * 9000: {"enum": ["c " * 9000]}}}
    tool = FunctionTool("d" * 9000, "e" * 9000, schema)
    asyncio.run(renderer.developer(Developer("a" * 9000, (tool,))))
    asyncio.run(renderer.message(Message("tool", "", name="f" * 9000)))
    assert native.longest <= 2048


def test_a_prompt_is_joined_from_arrays_and_bytes_alike(renderer: Renderer) -> None:
    one, two, three = (array("I", [n, n + 1]) for n in (1, 5, 9))
    joined = renderer.join(one, array("I"), [two, three.tobytes()])
    assert joined == one + two + three + renderer.generation_prompt


# Which reasoning is rendered

CASES = {
    "nothing": "",
    "one turn": "u+ ",
    "reasoning of a finished turn": "u+ r- f+ u+",
    "first call": "u+ r+ c+ o+",
    "tool loop": "u+ r+ c+ o+ r+ c+ o+",
    "preamble in a tool loop": "u+ r+ p+ c+ o+ r+",
    "finished tool loop": "u+ r- c+ o+ r- f+ u+",
    "finished, then a tool loop": "u+ r- f+ u+ r+ c+ o+",
    "tool loop after a final in the same turn": "u+ r- f+ r+ c+ o+",
    "interleaved finals": "u+ r- f+ r- c+ o+ r- f+ r+ c+ o+",
    "several turns": "u+ r- f+ u+ r- c+ o+ f+ u+ r- f+ u+",
    "no final yet, user speaks again": "u+ r+ c+ o+ u+",
    "final is last": "u+ r- f+",
    "preamble is no final": "u+ r+ p+ u+",
    "reasoning alone": "r+ r+",
    "final alone": "f+",
    "two reasonings": "u+ r- r- f+ u+ r+ r+ c+",
    "developer between": "d+ u+ r- f+ d+ u+ r+ c+ o+",
    "parallel calls": "u+ r+ c+ c+ o+ o+",
    "a summary": "d+ u+ c- o- f- u+ s+ f+",
    "a summary for a summary": "u+ s- u+ c- s+ r+ c+",
    "a context": "d- u- f- u- x+ r+ c+ o+",
    "a context for a context": "u- x- u- f- x+ f+",
    "a context for a summary": "u- s- u- f- x+ u+",
    "a summary for a context": "u+ x- u+ f- s+ u+",
}
LETTERS: dict[str, Kind] = {
    "u": "user",
    "d": "developer",
    "r": "reasoning",
    "p": "preamble",
    "f": "final",
    "c": "call",
    "o": "result",
    "s": "summary",
    "x": "context",
}


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_leaves_out_old_thoughts_and_what_a_compaction_stands_for(case: str) -> None:
    row = CASES[case].split()
    assert kept([LETTERS[cell[0]] for cell in row]) == [cell[1] == "+" for cell in row]


def test_developer_messages_that_differ_in_one_part_alone_are_told_apart(
    vocabulary: Vocabulary, tokeniser: Tokeniser, renderer: Renderer
) -> None:
    form, other = (ResponseFormat("x", None, {"default": one}) for one in (1, 1.5))
    tool, another = (FunctionTool("f", "It does.", {"default": one}) for one in (1, 1.5))
    whole = Developer("Be brief.", (tool,), form)
    for each in (
        whole,
        Developer("Be long.", (tool,), form),
        Developer("Be brief.", (another,), form),
        Developer("Be brief.", (tool,), other),
        Developer("Be brief.", (tool,)),
        Developer("Be brief.", (tool,), ResponseFormat("y", None, form.schema)),
        Developer("Be brief.", (tool,), ResponseFormat("x", "why", form.schema)),
    ):
        ids = asyncio.run(renderer.developer(each))
        assert ids == asyncio.run(Renderer(vocabulary, tokeniser).developer(each))
