"""Reads a request of Anthropic's Messages into an `Accepted`, or refuses it by the field's name.

Blocks become the items of a conversation, value by value; the run and the log behind them are those
of the Responses API. Knows no store, no run and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from trt_responses.accept.accepted import (
    Accepted,
    AnswerFormat,
    Effort,
    ThoughtBudget,
    Tool,
    ToolChoice,
)
from trt_responses.accept.tool_choice import choice_of, named
from trt_responses.apis.chat.accept import AT_ONCE
from trt_responses.apis.chat.hosted import NO_TOOLS, BuiltIn
from trt_responses.apis.messages import request as m
from trt_responses.apis.messages.fields import COLUMN
from trt_responses.apis.messages.hosted import HostedTools, past_call
from trt_responses.engine import GenerateOptions
from trt_responses.errors import Unsupported, invalid_value
from trt_responses.frozen import replace
from trt_responses.log.item_events import Callee
from trt_responses.wire import items as i
from trt_responses.wire.choice import NamedTool
from trt_responses.wire.judge import judge_fields, named_twice
from trt_responses.wire.output import Phase
from trt_responses.wire.response import Response

Placed = tuple[i.ItemPlace, i.InputItem]

NOT_FOR_THE_MODEL = "x-anthropic-billing-header:"
"""Begins a system block of Claude Code's that is new with each turn: a cached prefix would end
there."""

CALLS = m.ToolUse | m.ServerToolUse | m.McpToolUse
FAILED = "Error:"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
"""The fields of a request by which tokens are drawn, and the options of an engine's."""
ANSWER = "answer"
"""The name of a format, which Anthropic's have not."""


def accept_messages(
    request: m.CountRequest, *, seals: bool = True, built_in: BuiltIn = NO_TOOLS
) -> Accepted:
    """What the request asks for, without its messages. Raises an `InvalidRequest` for the first
    thing that is wrong. `built_in`: the kinds of tools that the server runs."""
    ignored = judge_fields(request, COLUMN)
    sent = request if isinstance(request, m.MessagesRequest) else None
    hosted = HostedTools(request, built_in)
    tools = _tools(request.tools or (), hosted)
    thinking, config = request.thinking, request.output_config
    return Accepted(
        input="",
        previous_response_id=None,
        instructions=_instructions(request.system),
        tools=tools,
        choice=_choice(request.tool_choice, tools, hosted),
        built_in=hosted.built_in,
        max_tool_calls=hosted.max_calls,
        answer=_answer(request),
        effort=_effort(thinking, config),
        thought=_thought(thinking),
        sampling=_sampling(sent),
        own_temperature=sent is not None and sent.temperature is not None,
        max_output_tokens=sent.max_tokens if sent else None,
        parallel_calls=not (request.tool_choice and request.tool_choice.disable_parallel_tool_use),
        truncates=False,
        seals=seals,
        store=False,
        echo=Response(
            id="",
            created_at=0,
            model=request.model,
            store=False,
            max_output_tokens=sent.max_tokens if sent else None,
        ),
        ignored=ignored,
        unsupported_tools=hosted.dropped,
        verifies=True,
        stop=tuple((sent and sent.stop_sequences) or ()),
    )


def with_messages(
    accepted: Accepted, messages: Sequence[m.Message], *, answered: bool = True
) -> Generator[None, None, Accepted]:
    """What such a request asks for with these messages, which are to be `answered` or only counted;
    pauses while a long list is read."""
    items, places = list[i.InputItem](), list[i.ItemPlace]()
    for place, item in _placed(messages):
        items.append(item)
        places.append(place)
        if len(items) % AT_ONCE == 0:
            yield
    if not items:
        raise invalid_value("messages", "they are empty. Send a message of the user")
    if answered and messages[-1].role == "assistant":
        raise Unsupported(
            "Unsupported value for 'messages': the last message is the assistant's, and an answer "
            "that was begun cannot be carried on. End with a message of the user.",
            param=f"messages[{len(messages) - 1}]",
        )
    return replace(accepted, input=items, places=places)


def meaning(sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request's JSON without the blocks of its system prompt that the model is not shown."""
    system = sent.get("system")
    if not isinstance(system, list):
        return sent
    return {**sent, "system": [block for block in system if not _is_for_others(block)]}


def _is_for_others(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return isinstance(text, str) and text.startswith(NOT_FOR_THE_MODEL)


def _instructions(system: str | list[m.TextBlock] | None) -> str | None:
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    shown = [text for text in texts if text and not text.startswith(NOT_FOR_THE_MODEL)]
    return "\n\n".join(shown) if shown else None


# --- the conversation ----------------------------------------------------------------------------


def _placed(messages: Sequence[m.Message]) -> Iterator[Placed]:
    """The items of the messages, and where in the request each of them stands."""
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        match message:
            case m.UserMessage():
                yield from _user_items(message, place)
            case m.AssistantMessage():
                yield from _written(message, place)
            case m.SystemMessage():
                text = _joined(message.content)
                yield i.ItemPlace(place), i.InputMessage(role="developer", content=text)


def _user_items(message: m.UserMessage, place: str) -> Iterator[Placed]:
    """The items of a user's message: tool results, and a message for each run of other blocks."""
    if isinstance(message.content, str):
        yield i.ItemPlace(place), i.InputMessage(role="user", content=message.content)
        return
    parts: list[i.Part] = []
    for number, block in enumerate(message.content):
        if not isinstance(block, m.ToolResult):
            parts.append(_part(block))
            continue
        if parts:
            yield _user_message(parts, place, number)
            parts = []
        yield _result(block, f"{place}.content[{number}]")
    if parts:
        yield _user_message(parts, place, len(message.content))


def _user_message(parts: list[i.Part], place: str, end: int) -> Placed:
    """A user's message of the blocks before `end`."""
    at = i.ItemPlace(place, f"{place}.content", end - len(parts))
    return at, i.InputMessage(role="user", content=parts)


def _result(block: m.ToolResult, place: str) -> Placed:
    """A tool result. A text before it marks a failure: the model has no token for that."""
    content, failed = block.content or "", block.is_error is True
    if isinstance(content, str):
        output: str | list[i.Part] = f"{FAILED} {content}" if failed else content
    else:
        mark = [i.TextPart(type="text", text=FAILED)] if failed else []
        output = [*mark, *map(_part, content)]
    return (
        i.ItemPlace(place, f"{place}.content", -failed, call_id="tool_use_id"),
        i.FunctionCallOutput(type="function_call_output", call_id=block.tool_use_id, output=output),
    )


def _part(block: m.TextBlock | m.ImageBlock | m.Document | m.SearchResult) -> i.Part:
    match block:
        case m.TextBlock():
            return i.TextPart(type="text", text=block.text)
        case m.ImageBlock():
            return i.MediaPart(type="input_image")
        case m.SearchResult():
            texts = [block.title, block.source, *(one.text for one in block.content)]
            return i.TextPart(type="text", text="\n".join(texts))
        case m.Document():
            return _document(block)


def _document(block: m.Document) -> i.Part:
    """A document of text is read; a file is what a text model cannot read."""
    match block.source:
        case m.TextSource(data=data):
            text = data
        case m.BlocksSource(content=str() as content):
            text = content
        case m.BlocksSource(content=list() as blocks):
            if not all(isinstance(one, m.TextBlock) for one in blocks):
                return i.MediaPart(type="input_file")
            text = "\n".join(one.text for one in blocks if isinstance(one, m.TextBlock))
        case _:
            return i.MediaPart(type="input_file")
    return i.TextPart(type="text", text="\n".join(filter(None, (block.title, block.context, text))))


def _written(message: m.AssistantMessage, place: str) -> Iterator[Placed]:
    """What the model wrote. A text before a call, or before another text, is no final answer."""
    content = message.content
    if isinstance(content, str):
        yield i.ItemPlace(place), _answered(content, final=True)
        return
    spoken = [n for n, b in enumerate(content) if isinstance(b, m.TextBlock | CALLS)]
    results = {b.tool_use_id: b for b in content if isinstance(b, m.ServerResult)}
    for number, block in enumerate(content):
        at = i.ItemPlace(f"{place}.content[{number}]", sealed="signature")
        match block:
            case m.TextBlock():
                final = number == spoken[-1]
                yield at, _answered(block.text, final=final, cited=block.citations)
            case m.ServerToolUse() | m.McpToolUse():
                yield at, past_call(block, results.get(block.id))
            case m.Thinking():
                texts = [i.ReasoningText(type="reasoning_text", text=block.thinking)]
                yield (
                    at,
                    i.Reasoning(
                        type="reasoning",
                        content=texts if block.thinking else None,
                        encrypted_content=block.signature,
                    ),
                )
            case m.RedactedThinking():
                sealed = i.Reasoning(type="reasoning", encrypted_content=block.data)
                yield at._replace(sealed="data"), sealed
            case m.ToolUse():
                yield (
                    at,
                    i.FunctionCall(
                        type="function_call",
                        call_id=block.id,
                        name=block.name,
                        arguments=json.dumps(block.input, ensure_ascii=False),
                    ),
                )


def _answered(
    text: str, *, final: bool, cited: Sequence[Mapping[str, Any]] | None = None
) -> i.InputMessage:
    """A text of the model's; pages that it cites may be opened again."""
    phase: Phase = "final_answer" if final else "commentary"
    content: str | list[i.Part] = text
    if cited:
        notes = [{"type": "url_citation", "url": one.get("url")} for one in cited]
        part = i.TextPart(type="text", text=text)
        content = [part.model_copy(update={"annotations": notes})]
    return i.InputMessage(role="assistant", content=content, phase=phase)


def _joined(content: str | list[m.TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


# --- tools, thinking and the answer --------------------------------------------------------------


def _tools(sent: Sequence[m.Tool], hosted: HostedTools) -> list[Tool]:
    tools: dict[str, Tool] = {}
    for number, tool in enumerate(sent):
        if not isinstance(tool, m.CustomTool):
            continue
        if tool.name in tools:
            raise named_twice(tool.name, f"tools[{number}]")
        tools[tool.name] = Tool(
            tool.name,
            f"tools[{number}]",
            Callee(tool.name),
            tool.description or "",
            tool.input_schema,
            bool(tool.strict),
        )
    if sent and not (tools or hosted.built_in):
        raise Unsupported(
            f"Unsupported tool type '{sent[0].type:.100}': this server does not run it, and "
            "the request has no other tool. Send tools with an 'input_schema'.",
            param="tools[0].type",
            code="unsupported_tool",
        )
    return list(tools.values())


def _choice(choice: m.ToolChoice | None, tools: Sequence[Tool], hosted: HostedTools) -> ToolChoice:
    kinds = hosted.kinds
    match choice:
        case m.NamedChoice() if (chosen := hosted.chosen(choice.name)) is not None:
            return chosen
        case m.NamedChoice():
            one = NamedTool(type="function", name=choice.name)
            names = named((one,), tools, "tool_choice")
            return ToolChoice(names, may_answer=False, narrows=True)
        case m.AnyChoice(type="any") if not (tools or kinds):
            raise invalid_value("tool_choice", "'any' needs tools to choose from")
        case m.AnyChoice(type="any"):
            return choice_of("required", tools, kinds)
        case m.AnyChoice(type="none"):
            return choice_of("none", tools, kinds)
        case _:
            return choice_of("auto", tools, kinds)


def _effort(thinking: m.ThinkingChoice | None, config: m.OutputConfig | None) -> Effort | None:
    if isinstance(thinking, m.NoThinking):
        return "none"
    return config.effort if config else None


def _thought(thinking: m.ThinkingChoice | None) -> ThoughtBudget | None:
    match thinking:
        case m.NoThinking():
            return ThoughtBudget(0, "thinking")
        case m.BudgetedThinking(budget_tokens=tokens):
            return ThoughtBudget(tokens, "thinking.budget_tokens")
        case _:
            return None


def _answer(request: m.CountRequest) -> AnswerFormat | None:
    config = request.output_config
    if config is not None and config.format is not None:
        return AnswerFormat("output_config.format", ANSWER, None, config.format.schema_)
    if request.output_format is not None:
        return AnswerFormat("output_format", ANSWER, None, request.output_format.schema_)
    return None


def _sampling(request: m.MessagesRequest | None) -> GenerateOptions:
    """How tokens are drawn; None is for a conversation that is only counted."""
    values = {} if request is None else {name: getattr(request, name) for name in SAMPLING}
    given = {name: value for name, value in values.items() if value is not None}
    return GenerateOptions(max_tokens=0, stop_ids=(), **given)  # each segment brings its own
