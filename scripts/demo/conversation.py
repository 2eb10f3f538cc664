"""A training or examination conversation, and its Harmony text.

Knows Harmony's spelling (a test compares it with openai-harmony); knows no family and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import openai_harmony as harmony

from trt_responses.backends import dialects
from trt_responses.tools.python.tool import DESCRIPTION

if TYPE_CHECKING:
    from collections.abc import Mapping

Effort = Literal["low", "medium", "high"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CUTOFF = "2024-06"
CHANNELS = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
THOUGHT = "<|channel|>analysis<|message|>"
PYTHON_HEADER = "<|channel|>analysis to=python code<|message|>"
FUNCTION_LINE = "\nCalls to these tools must go to the commentary channel: 'functions'."
CALL_HEADER = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
STORED_CALL_HEADER = " to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>"
FINAL_HEADER = "<|channel|>final<|message|>"
ASSISTANT = "<|start|>assistant"


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function; `parameters` is a JSON schema as text, or None."""

    name: str
    description: str
    parameters: str | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """A JSON format that the developer message asks for."""

    name: str
    schema: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What stands before the first user message. `date` None: no system message at all."""

    effort: Effort = "medium"
    date: str | None = "2025-06-28"
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    format: Format | None = None
    python: int | None = None
    """The seconds that a call of `python` may take, where the server has that tool."""
    beside: str = ""
    """Messages, spelled out, that an agent sends before the first question."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `stored` spells it as openai-harmony does, else as models generate it.

    A call of the server's own `python` has code in the place of arguments.
    """

    name: str
    arguments: str
    stored: bool = False
    python: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant turn: what it thinks, briefly to at length, then an answer or calls."""

    thoughts: Mapping[Effort, str]
    final: str | None = None
    call: Call | None = None
    more: tuple[Call, ...] = ()
    """Calls that follow the first at once, where a server lets them."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return () if self.call is None else (self.call, *self.more)


class Step(NamedTuple):
    """A turn that called, and what each of its functions answered."""

    turn: Turn
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's message, the tool loop that followed, if any, and the turn that ends it."""

    user: str
    turn: Turn
    steps: tuple[Step, ...] = ()
    unthought: bool = False
    """The client has not sent back what the model thought before its calls: many do not."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Whole conversation; the last exchange's turn is the one to be learnt or examined."""

    family: str
    exchanges: tuple[Exchange, ...]
    setting: Setting = Setting()
    copied: tuple[str, ...] = ()
    """What the reply must have copied from the prompt."""
    known: tuple[str, ...] = ()
    """What decides and is not copied: training may not make it unknown."""
    most_calls: int = 1
    """In one turn, where the server stops: the model is offered a header after all but the last."""

    def under(self, setting: Setting) -> Dialogue:
        return replace(self, setting=setting)


def prompt_text(dialogue: Dialogue) -> str:
    """All that the model is shown, up to the header it must write itself."""
    *earlier, last = dialogue.exchanges
    setting, effort = dialogue.setting, dialogue.setting.effort
    parts = [_system(setting), _developer(setting), setting.beside]
    parts += [_past(exchange) for exchange in earlier]
    parts += [message("user", last.user)]
    parts += [_step(step, None if last.unthought else effort) for step in last.steps]
    return "".join(parts) + ASSISTANT


def reply_text(turn: Turn, effort: Effort) -> str:
    """What the model must write, its terminator included."""
    return f"{_thought(turn, effort)}{ASSISTANT}{answer_text(turn)}"


def _thought(turn: Turn, effort: Effort) -> str:
    return f"{THOUGHT}{turn.thoughts[effort]}<|end|>"


def answer_text(turn: Turn) -> str:
    """The reply without its analysis."""
    if turn.calls:
        return ASSISTANT.join(_call(call) for call in turn.calls)
    return f"{FINAL_HEADER}{turn.final}<|return|>"


def message(role: str, text: str) -> str:
    return f"<|start|>{role}<|message|>{text}<|end|>"


def _past(exchange: Exchange) -> str:
    """Analysis before the last final answer is not shown again."""
    steps = "".join(_step(step, None) for step in exchange.steps)
    final = f"{ASSISTANT}{FINAL_HEADER}{exchange.turn.final}<|end|>"
    return message("user", exchange.user) + steps + final


def _step(step: Step, effort: Effort | None) -> str:
    """Calls that were made, with the analysis before them while their tool loop is still open."""
    thought = "" if effort is None else ASSISTANT + _thought(step.turn, effort)
    calls = "".join(ASSISTANT + _call(call) for call in step.turn.calls)
    results = zip(step.turn.calls, step.answers, strict=True)
    return thought + calls + "".join(_result(call, answer) for call, answer in results)


def _call(call: Call) -> str:
    if call.python:
        return f"{PYTHON_HEADER}{call.arguments}<|call|>"
    header = STORED_CALL_HEADER if call.stored else CALL_HEADER
    return f"{header.format(name=call.name)}{call.arguments}<|call|>"


def _result(call: Call, answer: str) -> str:
    if call.python:
        return f"<|start|>python to=assistant<|channel|>analysis<|message|>{answer}<|end|>"
    author = f"<|start|>functions.{call.name} to=assistant"
    return f"{author}<|channel|>commentary<|message|>{answer}<|end|>"


def _system(setting: Setting) -> str:
    if setting.date is None:
        return ""
    head = f"{IDENTITY}\nKnowledge cutoff: {CUTOFF}\nCurrent date: {setting.date}"
    functions = FUNCTION_LINE if setting.tools else ""
    own = ""
    if setting.python is not None:
        own = f"# Tools\n\n## python\n\n{DESCRIPTION.format(deadline_s=setting.python)}\n\n"
    head_text = f"{head}\n\nReasoning: {setting.effort}\n\n{own}{CHANNELS}{functions}"
    return message("system", head_text)


def _developer(setting: Setting) -> str:
    sections = []
    if setting.instructions is not None:
        sections.append(f"# Instructions\n\n{setting.instructions}")
    if setting.tools:
        declared = "\n\n".join(_declaration(tool) for tool in setting.tools)
        space = f"namespace functions {{\n\n{declared}\n\n}} // namespace functions"
        sections.append(f"# Tools\n\n## functions\n\n{space}")
    if setting.format is not None:
        described = f"// {setting.format.description}\n" if setting.format.description else ""
        sections.append(
            f"# Response Formats\n\n## {setting.format.name}\n\n{described}{setting.format.schema}"
        )
    return message("developer", "\n\n".join(sections)) if sections else ""


@cache
def encoding() -> harmony.HarmonyEncoding:
    return dialects.vocabulary().encoding


@cache
def _declaration(tool: Tool) -> str:
    """The function's TypeScript signature, as openai-harmony writes it."""
    parameters = None if tool.parameters is None else json.loads(tool.parameters)
    content = harmony.DeveloperContent.new().with_function_tools(
        [harmony.ToolDescription.new(tool.name, tool.description, parameters)]
    )
    developer = harmony.Message.from_role_and_content(harmony.Role.DEVELOPER, content)
    text = encoding().decode_utf8(encoding().render(developer))
    opening, closing = "namespace functions {\n\n", "\n\n} // namespace functions"
    return str(text[text.index(opening) + len(opening) : text.index(closing)])
