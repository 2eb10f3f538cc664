"""A training or examination conversation, and its Harmony text.

Knows Harmony's spelling (a test compares it with openai-harmony); knows no family and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import openai_harmony as harmony

from trt_responses.harmony import vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

Effort = Literal["low", "medium", "high"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CUTOFF = "2024-06"
CHANNELS = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
FUNCTION_LINE = "\nCalls to these tools must go to the commentary channel: 'functions'."
CALL_HEADER = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
STORED_CALL_HEADER = " to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>"
FINAL_HEADER = "<|channel|>final<|message|>"


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


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `stored` spells it as openai-harmony does, else as models generate it."""

    name: str
    arguments: str
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant turn: what it thinks, briefly to at length, then an answer or a call."""

    thoughts: Mapping[Effort, str]
    final: str | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's message, the tool loop that followed, if any, and the turn that ends it.

    `steps` are calls already made, each with the tool's answer.
    """

    user: str
    turn: Turn
    steps: tuple[tuple[Turn, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Whole conversation; the last exchange's turn is the one to be learnt or examined."""

    family: str
    exchanges: tuple[Exchange, ...]
    setting: Setting = Setting()
    copied: tuple[str, ...] = ()
    """What the reply must have copied from the prompt."""

    def under(self, setting: Setting) -> Dialogue:
        return replace(self, setting=setting)


def prompt_text(dialogue: Dialogue) -> str:
    """All that the model is shown, up to the header it must write itself."""
    *earlier, last = dialogue.exchanges
    effort = dialogue.setting.effort
    parts = [_system(dialogue.setting), _developer(dialogue.setting)]
    parts += [_past(exchange) for exchange in earlier]
    parts += [message("user", last.user)]
    parts += [_step(turn, answer, effort) for turn, answer in last.steps]
    return "".join(parts) + "<|start|>assistant"


def reply_text(turn: Turn, effort: Effort) -> str:
    """What the model must write, its terminator included."""
    analysis = f"<|channel|>analysis<|message|>{turn.thoughts[effort]}<|end|><|start|>assistant"
    return analysis + answer_text(turn)


def answer_text(turn: Turn) -> str:
    """The reply without its analysis."""
    if turn.call is not None:
        return f"{CALL_HEADER.format(name=turn.call.name)}{turn.call.arguments}<|call|>"
    return f"{FINAL_HEADER}{turn.final}<|return|>"


def message(role: str, text: str) -> str:
    return f"<|start|>{role}<|message|>{text}<|end|>"


def _past(exchange: Exchange) -> str:
    """Analysis before the last final answer is not shown again."""
    steps = "".join(_step(turn, answer, None) for turn, answer in exchange.steps)
    final = f"<|start|>assistant{FINAL_HEADER}{exchange.turn.final}<|end|>"
    return message("user", exchange.user) + steps + final


def _step(turn: Turn, answer: str, effort: Effort | None) -> str:
    """A call that was made, with the analysis before it while its tool loop is still open."""
    assert turn.call is not None
    header = STORED_CALL_HEADER if turn.call.stored else CALL_HEADER
    analysis = "" if effort is None else f"<|channel|>analysis<|message|>{turn.thoughts[effort]}"
    opened = f"<|start|>assistant{analysis}<|end|>" if analysis else ""
    call = f"<|start|>assistant{header.format(name=turn.call.name)}{turn.call.arguments}<|call|>"
    author = f"<|start|>functions.{turn.call.name} to=assistant"
    return f"{opened}{call}{author}<|channel|>commentary<|message|>{answer}<|end|>"


def _system(setting: Setting) -> str:
    if setting.date is None:
        return ""
    head = f"{IDENTITY}\nKnowledge cutoff: {CUTOFF}\nCurrent date: {setting.date}"
    functions = FUNCTION_LINE if setting.tools else ""
    return message("system", f"{head}\n\nReasoning: {setting.effort}\n\n{CHANNELS}{functions}")


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
    return vocabulary.load().encoding


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
