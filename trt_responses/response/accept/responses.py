"""Reads a request of the Responses API into an `Accepted`, or refuses it by the field's name.

The only file behind `wire/` that reads a request. Knows no store and no run; an engine is known by
the options that it takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trt_responses.engine.base import GenerateOptions
from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.frozen import replace as replace_frozen
from trt_responses.response.accept.accepted import (
    Accepted,
    AnswerFormat,
    BuiltInTool,
    Grammar,
    ThoughtBudget,
    Tool,
    ToolChoice,
)
from trt_responses.response.included import INCLUDED
from trt_responses.response.log.item_events import Callee
from trt_responses.response.steering.action_tools import description_of, parameters_of
from trt_responses.wire import tools as t
from trt_responses.wire.choice import (
    ActionChoice,
    AllowedTools,
    BuiltInChoice,
    JsonObject,
    JsonSchema,
    McpChoice,
    NamedTool,
)
from trt_responses.wire.dialect import OPEN_RESPONSES, OPENAI
from trt_responses.wire.items import (
    AdditionalTools,
    CompactionTrigger,
    ConfigurationUpdate,
    ItemPlace,
)
from trt_responses.wire.judge import LOGPROBS, OVER_HTTP, OVER_WEBSOCKET, judge
from trt_responses.wire.request import (
    CompactRequest,
    ReasoningOptions,
    Request,
    SocketRequest,
    TextOptions,
)
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.response.accept.accepted import Effort
    from trt_responses.wire.chat import ChatRequest
    from trt_responses.wire.choice import Mode, TextFormat
    from trt_responses.wire.choice import ToolChoice as AskedChoice
    from trt_responses.wire.containers import ContainerRequest
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.items import SentItem
    from trt_responses.wire.kserve import Parameters

FORMAT = "text.format"
NO_TOOLS: Mapping[str, Sequence[str]] = {}
OUTPUTS = {
    "code_interpreter": "code_interpreter_call.outputs",
    "web_search": "web_search_call.action.sources",
}
"""What `include` asks for of each kind."""
SEALED = "reasoning.encrypted_content"
MINIMAL_THOUGHT = 64
"""Tokens of a thought at effort `minimal`."""
NO_REASONING, NO_TEXT = ReasoningOptions(), TextOptions()
EFFORT_BUDGETS = {"none": 0, "minimal": MINIMAL_THOUGHT}


def accept(
    request: Request, dialect: Dialect = OPENAI, built_in: Mapping[str, Sequence[str]] = NO_TOOLS
) -> Accepted:
    """What the request asks for. Raises an `InvalidRequest` for the first thing that is wrong.
    `built_in` are the kinds of tools that the server runs, and the model's names for them."""
    placed = list(t.flat(request.tools or ()))
    for number, brought in enumerate(request.input):
        if isinstance(brought, AdditionalTools):
            placed += t.flat(brought.tools, f"input[{number}].tools")
    echoed, request = request.tools, _updated(request)
    items, trigger = _without_trigger(request.input)
    over_socket = isinstance(request, SocketRequest)
    ignored = judge(request, placed, OVER_WEBSOCKET if over_socket else OVER_HTTP, built_in)
    reasoning, form = request.reasoning or NO_REASONING, (request.text or NO_TEXT).format
    if dialect is OPEN_RESPONSES:
        _check_sayable(reasoning.effort, request.tools or ())
    tools = _tools(placed)
    run_here = _run_here(request, built_in)
    scored = LOGPROBS in (request.include or ())
    sampling = sampling_of(request, (request.top_logprobs or 0) if scored else None)
    echo = _echo(request, echoed, sampling, built_in)
    return Accepted(
        input=items,
        compacts=trigger or isinstance(request, CompactRequest),
        compacts_beyond=_threshold(request),
        previous_response_id=request.previous_response_id,
        conversation=_conversation(request),
        instructions=request.instructions,
        tools=tools,
        choice=_choice(request.tool_choice, tools, run_here),
        answer=_answer(form),
        effort=reasoning.effort,
        thought=_thought(reasoning.effort, reasoning.max_tokens),
        sampling=sampling,
        max_output_tokens=request.max_output_tokens,
        parallel_calls=request.parallel_tool_calls is not False,
        truncates=request.truncation == "auto",
        seals=SEALED in (request.include or ()),
        summarised=reasoning.summary is not None,
        included=[value for value in INCLUDED if value in (request.include or ())],
        store=echo.store,
        echo=echo,
        ignored=ignored,
        unsupported_tools=[o.type for o in request.tools or () if t.run_by_nobody(o, built_in)],
        generates=not (isinstance(request, SocketRequest) and request.generate is False),
        built_in=run_here,
        max_tool_calls=request.max_tool_calls,
    )


def _updated(request: Request) -> Request:
    """The request with the tools that its items bring, and with what they set anew."""
    tools, changes = list(request.tools or ()), dict[str, Any]()
    for item in () if isinstance(request.input, str) else request.input:
        if isinstance(item, AdditionalTools):
            tools += item.tools
            changes["tools"] = tools
        elif isinstance(item, ConfigurationUpdate):
            if item.reasoning is not None:
                effort = {"effort": item.reasoning.effort}
                before = changes.get("reasoning") or request.reasoning or NO_REASONING
                changes["reasoning"] = before.model_copy(update=effort)
            if item.text is not None:
                form = {"format": item.text.format}
                changes["text"] = (request.text or NO_TEXT).model_copy(update=form)
    return request.model_copy(update=changes) if changes else request


def _without_trigger(items: str | Sequence[SentItem]) -> tuple[str | Sequence[SentItem], bool]:
    """The input without what asks for a compaction, which is its last item, and whether it did."""
    if isinstance(items, str):
        return items, False
    for place, item in enumerate(items):
        if isinstance(item, CompactionTrigger) and place < len(items) - 1:
            raise InvalidRequest(
                f"Invalid value for 'input[{place}]': a compaction_trigger must be the last item.",
                param=f"input[{place}]",
                code="invalid_value",
            )
    asks = bool(items) and isinstance(items[-1], CompactionTrigger)
    return (items[:-1] if asks else items), asks


def _threshold(request: Request) -> int | None:
    managed = request.context_management
    return managed[0].compact_threshold or 0 if managed else None


def accept_compaction(request: CompactRequest, built_in: Mapping[str, Sequence[str]]) -> Accepted:
    """A compaction that is given to the client and kept nowhere."""
    if request.background:
        raise Unsupported(
            "Unsupported value for 'background': a compaction is answered at once, or comes in a "
            "response that a 'compaction_trigger' asks for.",
            param="background",
        )
    accepted = accept(request, built_in=built_in)
    return replace(accepted, store=False, echo=replace_frozen(accepted.echo, store=False))


def accept_items(items: Sequence[SentItem]) -> Accepted:
    """Items for a conversation, to which no response is asked for."""
    for place, item in enumerate(items):
        if isinstance(item, CompactionTrigger):
            raise InvalidRequest(
                f"Invalid value for 'items[{place}]': a compaction_trigger is no item to keep.",
                param=f"items[{place}]",
                code="invalid_value",
            )
    places = [ItemPlace(f"items[{place}]") for place in range(len(items))]
    return replace(accept(Request(model="-", input=list(items))), places=places)


def _conversation(request: Request) -> str | None:
    asked = request.conversation
    if asked is None:
        return None
    if request.previous_response_id is not None:
        raise InvalidRequest(
            "'conversation' and 'previous_response_id' exclude each other: a conversation goes on "
            "from its own end.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    return asked if isinstance(asked, str) else asked.id


def _check_sayable(effort: Effort | None, tools: Sequence[t.Tool]) -> None:
    """The specification has no words for other tools than functions, nor for every effort."""
    if effort in ("minimal", "max"):
        raise Unsupported(
            f"Unsupported value for 'reasoning.effort': the dialect 'open-responses' has no "
            f"'{effort}'.",
            param="reasoning.effort",
        )
    for place, tool in enumerate(tools):
        if t.kind_of(tool.type) in t.KINDS and tool.type != "function":
            raise Unsupported(
                f"Unsupported tool type '{tool.type}': the dialect 'open-responses' has 'function' "
                "tools only.",
                param=f"tools[{place}].type",
                code="unsupported_tool",
            )


def _tools(placed: Sequence[t.Placed]) -> list[Tool]:
    """A namespace is described with the first of its tools."""
    described: set[str] = set()
    tools = []
    for one in placed:
        tool, space = one.tool, one.namespace
        if isinstance(tool, t.ActionTool):
            callee, told = Callee(tool.type, action=tool.type), description_of(tool)
            parameters = parameters_of(tool.type)
            tools.append(Tool(one.name, one.place, callee, told, parameters, strict=True))
            continue
        texts = [tool.description]
        if space is not None and space.name not in described:
            described.add(space.name)
            texts.insert(0, space.description)
        description = "\n".join(filter(None, texts))
        custom = isinstance(tool, t.CustomTool)
        callee = Callee(tool.name, None if space is None else space.name, custom=custom)
        named_so = (one.name, one.place, callee, description)
        if isinstance(tool, t.FunctionTool):
            tools.append(Tool(*named_so, tool.parameters, bool(tool.strict)))
        else:
            tools.append(Tool(*named_so, grammar=_grammar(tool.format)))
    return tools


def _grammar(form: t.PlainInput | t.GrammarInput | None) -> Grammar | None:
    return Grammar(form.syntax, form.definition) if isinstance(form, t.GrammarInput) else None


def _choice(
    asked: AskedChoice | None, tools: Sequence[Tool], run_here: Sequence[BuiltInTool]
) -> ToolChoice:
    built_in = frozenset(tool.kind for tool in run_here)
    match asked:
        case ActionChoice(type="shell") if "shell" in built_in:
            names = frozenset(tool.name for tool in tools if tool.callee.kind == "shell")
            return ToolChoice(names, may_answer=False, narrows=True, built_in={"shell"})
        case NamedTool() | ActionChoice():
            return ToolChoice(named((asked,), tools, "tool_choice"), may_answer=False, narrows=True)
        case BuiltInChoice():
            kind = _offered(asked, built_in, "tool_choice")
            return ToolChoice((), may_answer=False, narrows=True, built_in={kind})
        case McpChoice():
            servers = _servers([("tool_choice", asked)], run_here)
            return ToolChoice((), may_answer=False, narrows=True, built_in={"mcp"}, servers=servers)
        case AllowedTools():
            among = named(asked.tools, tools, "tool_choice.tools[{}]", built_in)
            theirs = [
                (f"tool_choice.tools[{number}]", one)
                for number, one in enumerate(asked.tools)
                if isinstance(one, McpChoice)
            ]
            servers = _servers(theirs, run_here)
            kinds = {
                _offered(one, built_in, f"tool_choice.tools[{number}]")
                for number, one in enumerate(asked.tools)
                if isinstance(one, BuiltInChoice)
            }
            if "shell" in built_in and any(one.type == "shell" for one in asked.tools):
                kinds.add("shell")
            kinds |= {"mcp"} if theirs else set()
            may_answer = asked.mode == "auto"
            return ToolChoice(
                among, may_answer=may_answer, narrows=True, built_in=kinds, servers=servers
            )
        case mode:
            return choice_of(mode, tools, built_in)


def choice_of(
    mode: Mode | None, tools: Sequence[Tool], built_in: Collection[str] = frozenset()
) -> ToolChoice:
    """What a mode alone allows."""
    names = frozenset(tool.name for tool in tools)
    match mode:
        case None | "auto":
            return ToolChoice(names, built_in=built_in)
        case "none":
            return ToolChoice(frozenset(), narrows=bool(names or built_in))
        case "required" if not (names or built_in):
            raise _unknown("tool_choice", "'required' needs tools to choose from")
        case "required":
            return ToolChoice(names, may_answer=False, narrows=True, built_in=built_in)


def _servers(
    asked: Sequence[tuple[str, McpChoice]], run_here: Sequence[BuiltInTool]
) -> dict[str, Collection[str] | None]:
    """The tools that are chosen of each MCP server; None: all of it."""
    labels = {tool.options["server_label"] for tool in run_here if tool.kind == "mcp"}
    chosen: dict[str, Collection[str] | None] = {}
    for place, one in asked:
        if one.server_label not in labels:
            what = f"no mcp tool of the request has the label '{one.server_label:.64}'"
            raise _unknown(f"{place}.server_label", f"{what}, or nobody runs it here")
        before = chosen.get(one.server_label, ())
        whole = one.name is None or before is None
        chosen[one.server_label] = None if whole else {*(before or ()), one.name or ""}
    return chosen


def _offered(asked: BuiltInChoice, built_in: Collection[str], place: str) -> str:
    kind = t.kind_of(asked.type)
    if kind not in built_in:
        what = f"the request offers no '{asked.type}', or nobody runs it here"
        raise _unknown(place, what)
    return kind


def _run_here(request: Request, built_in: Mapping[str, Sequence[str]]) -> list[BuiltInTool]:
    """The tools of the request that the server runs: each kind once, each MCP server once."""
    found: dict[str, BuiltInTool] = {}
    for number, tool in enumerate(request.tools or ()):
        kind = t.kind_of(tool.type)
        if not t.hosted(tool) or kind not in built_in:
            continue
        place, name = f"tools[{number}]", kind
        if isinstance(tool, t.McpTool):
            _check_server(tool, f"{place}.")
            name = f"mcp server {tool.server_label}"
        if name in found:
            raise _unknown(place, f"'{name}' is offered twice")
        if isinstance(tool, t.CodeInterpreterTool):
            _check_container(tool.container, f"{place}.container")
        if isinstance(tool, t.ShellTool) and isinstance(tool.environment, t.NewContainer):
            _check_new_container(tool.environment, f"{place}.environment.")
        shows = OUTPUTS.get(kind) in (request.include or ())
        options = tool.model_dump(exclude_none=True)
        found[name] = BuiltInTool(kind, built_in[kind], place, options, shows)
    return list(found.values())


def _check_server(tool: t.McpTool, place: str) -> None:
    """Refuse by name the ways to a server that are not built."""
    for name in ("connector_id", "tunnel_id"):
        if getattr(tool, name) is not None:
            raise Unsupported(
                f"Unsupported value for '{place}{name}': this server reaches MCP servers by their "
                "'server_url', or by the 'server_label' of one that the operator has configured.",
                param=f"{place}{name}",
            )


def _check_container(asked: str | t.AutoContainer | None, place: str) -> None:
    if asked is None:
        raise InvalidRequest(
            f"Missing required parameter: '{place}'.",
            param=place,
            code="missing_required_parameter",
        )
    if isinstance(asked, str):
        return
    check_container_options(asked, f"{place}.")


def _check_new_container(asked: t.NewContainer, place: str) -> None:
    check_container_options(asked, place)
    if asked.skills:
        raise Unsupported(
            f"Unsupported value for '{place}skills': there are none here. Leave the field out.",
            param=f"{place}skills",
        )


def check_container_options(
    asked: t.AutoContainer | t.NewContainer | ContainerRequest, place: str
) -> None:
    """Refuse by name what is not built."""
    policy = asked.network_policy
    for name, wanted, why in (
        ("file_ids", asked.file_ids, "there are no files to put into a container"),
        ("memory_limit", asked.memory_limit, "the operator sets the memory of all containers"),
        (
            "network_policy",
            policy if policy is not None and policy.type != "disabled" else None,
            "code in a container has no network",
        ),
    ):
        if wanted:
            raise Unsupported(
                f"Unsupported value for '{place}{name}': {why}. Leave the field out.",
                param=f"{place}{name}",
            )


def named(
    asked: Sequence[NamedTool | ActionChoice | BuiltInChoice | McpChoice],
    tools: Sequence[Tool],
    place: str,
    built_in: Collection[str] = (),
) -> frozenset[str]:
    """The names of the client's tools among them; a fault for the first that none of the request's
    has, nor one of these kinds that the server runs."""
    kinds = {(tool.name, tool.callee.kind) for tool in tools}
    names = set()
    for number, tool in enumerate(asked):
        where = place.format(number)
        if isinstance(tool, NamedTool):
            if (tool.name, tool.type) not in kinds:
                what = f"no {tool.type} tool of the request is '{tool.name}'"
                raise _unknown(f"{where}.name", what)
            names.add(tool.name)
        elif isinstance(tool, ActionChoice):
            if (tool.type, tool.type) not in kinds:
                if tool.type in built_in:
                    continue
                raise _unknown(where, f"the request offers no '{tool.type}' that the client runs")
            names.add(tool.type)
    return frozenset(names)


def _unknown(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param}': {what}.", param=param, code="invalid_value"
    )


def _answer(form: TextFormat | None) -> AnswerFormat | None:
    if isinstance(form, JsonSchema):
        return AnswerFormat(
            FORMAT, form.name, form.description, form.schema_, strict=form.strict is True
        )
    if isinstance(form, JsonObject):
        return AnswerFormat(FORMAT, "json_object", "A JSON object.", None)
    return None


def _thought(effort: Effort | None, most: int | None) -> ThoughtBudget | None:
    """The least of what the effort and the bound come to."""
    by_effort = EFFORT_BUDGETS.get(effort or "")
    if by_effort is not None:
        tokens = by_effort if most is None else min(by_effort, most)
        return ThoughtBudget(tokens, "reasoning.effort")
    return None if most is None else ThoughtBudget(most, "reasoning.max_tokens")


def sampling_of(
    request: Request | ChatRequest | Parameters, logprobs: int | None
) -> GenerateOptions:
    """How tokens are drawn, with the default wherever the client said nothing."""
    return GenerateOptions(
        max_tokens=0,  # each segment brings its own budget and stop ids
        stop_ids=(),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or 0,
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        seed=request.seed,
        logprobs=logprobs,
    )


def _echo(
    request: Request,
    tools: Sequence[t.Tool] | None,
    sampling: GenerateOptions,
    built_in: Collection[str],
) -> Response:
    """What was asked, with the default wherever the client sent none."""
    thought, text = request.reasoning or NO_REASONING, request.text or NO_TEXT
    reasoning: dict[str, Any] = {"effort": thought.effort, "summary": thought.summary}
    if thought.max_tokens is not None:
        reasoning["max_tokens"] = thought.max_tokens
    form, choice = {"type": "text"}, request.tool_choice
    if text.format is not None:
        dumped = text.format.model_dump(by_alias=True, exclude_unset=True)
        form = {"type": text.format.type} | dumped
    return Response(
        id="",
        created_at=0,
        model=request.model or "",
        status="queued" if request.background else "in_progress",
        background=bool(request.background),
        frequency_penalty=sampling.frequency_penalty,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        presence_penalty=sampling.presence_penalty,
        previous_response_id=request.previous_response_id,
        conversation=_told_conversation(request),
        prompt_cache_key=request.prompt_cache_key,
        reasoning=reasoning,
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=sampling.temperature,
        text={"format": form, "verbosity": text.verbosity or "medium"},
        tool_choice=(
            choice.model_dump(exclude_unset=True)
            if isinstance(
                choice, NamedTool | ActionChoice | BuiltInChoice | McpChoice | AllowedTools
            )
            else choice or "auto"
        ),
        tools=tuple(_told(o) for o in tools or () if not t.run_by_nobody(o, built_in)),
        top_logprobs=request.top_logprobs or 0,
        top_p=sampling.top_p,
        truncation=request.truncation or "disabled",
    )


def _told_conversation(request: Request) -> Mapping[str, str] | None:
    asked = request.conversation
    return None if asked is None else {"id": asked if isinstance(asked, str) else asked.id}


def _told(tool: t.Tool) -> Mapping[str, Any]:
    """A tool as the API gives it back: every key is there, though the client left some out."""
    told = tool.model_dump(exclude_none=True)
    if isinstance(tool, t.FunctionTool):
        return {"description": None, "parameters": None, "strict": False} | told
    if isinstance(tool, t.NamespaceTool):
        return {"description": ""} | told | {"tools": [_told(one) for one in tool.tools]}
    if isinstance(tool, t.McpTool):
        return _told_server(tool)
    return told


def _told_server(tool: t.McpTool) -> Mapping[str, Any]:
    """Without its secrets: of keys that nobody knows, any could be one."""
    known = {name: value for name, value in vars(tool).items() if value is not None}
    told = tool.model_dump(include=known.keys() - {"authorization", "headers"}, exclude_none=True)
    approval = told.get("require_approval", "always")
    return {"allowed_tools": None, "headers": None} | told | {"require_approval": approval}
