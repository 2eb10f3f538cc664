"""Reads a request of chat completions into an `Accepted`, or refuses it by the field's name.

Messages become the items of a conversation, value by value; the run and the log behind them are
those of the Responses API. Knows no store, no run and no engine.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence

from trt_responses.accept.accepted import (
    Accepted,
    AnswerFormat,
    Grammar,
    ThoughtBudget,
    Tool,
    ToolChoice,
)
from trt_responses.accept.sampling import EFFORT_BUDGETS, sampling_of
from trt_responses.accept.tool_choice import choice_of, named
from trt_responses.apis.chat import request as c
from trt_responses.apis.chat.fields import COLUMN
from trt_responses.apis.chat.hosted import (
    NO_TOOLS,
    BuiltIn,
    Offered,
    Ran,
    arguments_of,
    item_of,
    offered,
    past_call,
    run_here,
)
from trt_responses.engine import GenerateOptions
from trt_responses.errors import invalid_value, unsupported_value
from trt_responses.frozen import replace
from trt_responses.log.item_events import Callee
from trt_responses.wire import items as i
from trt_responses.wire.choice import NamedTool
from trt_responses.wire.judge import judge_fields, named_twice
from trt_responses.wire.response import Response

ANY_OBJECT = "json_object"
RAN = ("web_search", "code_interpreter", "mcp")
"""The types of executed tools that this server writes; others say nothing here."""
AT_ONCE = 64
"""Messages that are read between two pauses."""


def accept_chat(request: c.ChatRequest, built_in: BuiltIn = NO_TOOLS) -> Accepted:
    """What the request asks for, without its messages. Raises an `InvalidRequest` for the first
    thing that is wrong. `built_in`: the kinds of tools that the server runs."""
    ignored = judge_fields(request, COLUMN)
    tools = _tools(request.tools or ())
    hosted = run_here(_hosted(request), built_in)
    return Accepted(
        input="",
        previous_response_id=None,
        instructions=None,
        tools=tools,
        choice=_choice(request.tool_choice, tools, frozenset(one.kind for one in hosted)),
        built_in=hosted,
        answer=_answer(request.response_format),
        effort=(effort := _effort(request)),
        thought=_thought(effort),
        sampling=_sampling(request),
        own_temperature=request.temperature is not None,
        max_output_tokens=request.max_completion_tokens or request.max_tokens,
        parallel_calls=request.parallel_tool_calls is not False,
        truncates=False,
        seals=False,
        store=False,
        echo=Response(id="", created_at=0, model=request.model, store=False),
        ignored=ignored,
        unsupported_tools=(),
        stop=_stop(request),
        scored=bool(request.logprobs),
    )


def with_messages(
    accepted: Accepted, messages: Sequence[c.Message]
) -> Generator[None, None, Accepted]:
    """What such a request asks for with these messages; pauses while a long list is read."""
    instructions, items, places = yield from _conversation(messages)
    return replace(accepted, input=items, instructions=instructions, places=places)


def _effort(request: c.ChatRequest) -> c.Effort | None:
    given = request.chat_template_kwargs
    return request.reasoning_effort or (given.reasoning_effort if given else None)


def _thought(effort: c.Effort | None) -> ThoughtBudget | None:
    tokens = EFFORT_BUDGETS.get(effort or "")
    return None if tokens is None else ThoughtBudget(tokens, "reasoning_effort")


def _conversation(
    messages: Sequence[c.Message],
) -> Generator[None, None, tuple[str | None, list[i.SentItem], list[i.ItemPlace]]]:
    """The instructions, the items behind them, and where in the request each item stands.

    What operators say before anybody else is the instructions; a model has one message of them.
    """
    count = 0
    while count < len(messages) and isinstance(messages[count], c.Instructions):
        count += 1
    texts = [_text(m.content) for m in messages[:count] if isinstance(m, c.Instructions)]
    items: list[i.SentItem] = []
    places: list[i.ItemPlace] = []
    for number, message in enumerate(messages[count:], count):
        if number > count and number % AT_ONCE == 0:
            yield
        found = list(_items(message))
        items += found
        place, key = f"messages[{number}]", "tool_call_id"
        places += [i.ItemPlace(place, f"{place}.content", call_id=key)] * len(found)
    if not items:
        raise invalid_value("messages", "it has instructions only. Send a message of a user")
    return "\n\n".join(texts) if texts else None, items, places


def _items(message: c.Message) -> Iterator[i.InputItem]:
    match message:
        case c.UserMessage():
            yield i.InputMessage(role="user", content=_content(message.content))
        case c.Instructions():
            yield i.InputMessage(role="developer", content=_content(message.content))
        case c.ToolMessage():
            yield i.FunctionCallOutput(
                type="function_call_output",
                call_id=message.tool_call_id,
                output=_content(message.content),
            )
        case c.AssistantMessage():
            yield from _written(message)


def _written(message: c.AssistantMessage) -> Iterator[i.InputItem]:
    """What the model wrote: its thought, its text, and its calls."""
    thought = message.reasoning_content or message.reasoning
    if thought:
        text = i.ReasoningText(type="reasoning_text", text=thought)
        yield i.Reasoning(type="reasoning", content=[text])
    known = [tool for tool in message.executed_tools or () if tool.type in RAN]
    for tool in known:
        given = arguments_of(tool.arguments)
        facts = {"name": tool.name, "server_label": tool.server_label}
        names = facts if tool.type == "mcp" else {}
        yield item_of(Ran(tool.type, given, tool.output, failed=False, facts=names))
    calls = message.tool_calls or ()
    content = message.content or message.refusal
    if content:
        yield i.InputMessage(
            role="assistant",
            content=_cited(_content(content), message),
            phase="commentary" if calls else "final_answer",
        )
    for call in calls:
        if isinstance(call, c.CustomCall):
            written = {"name": call.custom.name, "input": call.custom.input}
            yield past_call({"type": "custom_tool_call", "call_id": call.id, **written})
        else:
            yield i.FunctionCall(
                type="function_call",
                call_id=call.id,
                name=call.function.name,
                arguments=call.function.arguments,
            )


def _cited(content: str | list[i.Part], message: c.AssistantMessage) -> str | list[i.Part]:
    """The same with its citations, whose pages the model may open again."""
    if not message.annotations:
        return content
    noted = [one.get("url_citation") for one in message.annotations]
    notes = [{"type": "url_citation", **one} for one in noted if isinstance(one, dict)]
    first, *more = [i.TextPart(type="text", text=content)] if isinstance(content, str) else content
    return [first.model_copy(update={"annotations": notes}), *more]


def _content(content: str | list[c.Part]) -> str | list[i.Part]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: c.Part) -> i.Part:
    match part:
        case c.TextPart():
            return i.TextPart(type="text", text=part.text)
        case c.RefusalPart():
            return i.RefusalPart(type="refusal", refusal=part.refusal)
        case c.MediaPart():
            return i.MediaPart(type=MEDIA[part.type])


MEDIA: dict[c.MediaKind, i.MediaKind] = {
    "image_url": "input_image",
    "input_audio": "input_audio",
    "file": "input_file",
}


def _text(content: str | list[c.Part]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, c.TextPart))


def _tools(sent: Sequence[c.Tool]) -> list[Tool]:
    tools: dict[str, Tool] = {}
    for number, tool in enumerate(sent):
        if isinstance(tool, c.ServerTool):
            continue
        place = f"tools[{number}].{tool.type}"
        made = _tool(tool, place)
        if made.name in tools:
            raise named_twice(made.name, place)
        tools[made.name] = made
    return list(tools.values())


def _hosted(request: c.ChatRequest) -> Iterator[Offered]:
    """The tools that the server is to run, as the Responses API has them."""
    for number, tool in enumerate(request.tools or ()):
        if isinstance(tool, c.ServerTool):
            yield _server_tool(tool, f"tools[{number}]")
    if (search := request.web_search_options) is not None:
        place = search.user_location and search.user_location.approximate
        fields = {"type": "web_search", "search_context_size": search.search_context_size}
        yield offered("web_search_options", fields | {"user_location": place})


def _server_tool(tool: c.ServerTool, place: str) -> Offered:
    fields = {"type": tool.type, **(tool.model_extra or {})}
    match tool.type:
        case "browser_search":
            fields["type"] = "web_search"
        case "code_interpreter":
            fields.setdefault("container", {"type": "auto"})
        case "mcp" if fields.get("require_approval") != "never":
            raise unsupported_value(
                f"{place}.require_approval",
                "chat completions cannot ask for an approval. Set it to 'never', and name the "
                "tools that may be called in 'allowed_tools'",
            )
    return offered(place, fields)


def _tool(tool: c.FunctionTool | c.CustomTool, place: str) -> Tool:
    if isinstance(tool, c.FunctionTool):
        function = tool.function
        common = (function.name, place, Callee(function.name), function.description or "")
        return Tool(*common, function.parameters, bool(function.strict))
    custom, form = tool.custom, tool.custom.format
    common = (custom.name, place, Callee(custom.name, custom=True), custom.description or "")
    if not isinstance(form, c.GrammarInput):
        return Tool(*common)
    return Tool(*common, grammar=Grammar(form.grammar.syntax, form.grammar.definition))


def _choice(
    choice: c.ToolChoice | None, tools: Sequence[Tool], hosted: Collection[str]
) -> ToolChoice:
    match choice:
        case c.AllowedTools(allowed_tools=allowed):
            place = "tool_choice.allowed_tools.tools[{}].function"
            among = named([_named(tool) for tool in allowed.tools], tools, place)
            return ToolChoice(among, may_answer=allowed.mode == "auto", narrows=True)
        case c.NamedFunction() | c.NamedCustom():
            one = named((_named(choice),), tools, f"tool_choice.{choice.type}")
            return ToolChoice(one, may_answer=False, narrows=True)
        case mode:
            return choice_of(mode, tools, hosted)


def _named(tool: c.NamedTool) -> NamedTool:
    name = tool.function.name if isinstance(tool, c.NamedFunction) else tool.custom.name
    return NamedTool(type=tool.type, name=name)


def _answer(form: c.ResponseFormat | None) -> AnswerFormat | None:
    match form:
        case c.JsonSchema(json_schema=schema):
            place = "response_format.json_schema"
            return AnswerFormat(place, schema.name, schema.description, schema.schema_)
        case c.JsonObject():
            return AnswerFormat("response_format", ANY_OBJECT, "A JSON object.", None)
        case _:
            return None


def _sampling(request: c.ChatRequest) -> GenerateOptions:
    if request.top_logprobs and not request.logprobs:
        raise invalid_value("top_logprobs", "it needs 'logprobs' to be true")
    return sampling_of(request, (request.top_logprobs or 0) if request.logprobs else None)


def _stop(request: c.ChatRequest) -> tuple[str, ...]:
    stop = request.stop
    texts = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if texts and request.logprobs:
        raise unsupported_value(
            "stop", "with 'logprobs', text cannot be held back. Leave one of them out"
        )
    return texts
