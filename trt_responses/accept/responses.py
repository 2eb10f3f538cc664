"""Reads a request of the Responses API into an `Accepted`, or refuses it by the field's name.

Only the files beside it read a request too. Knows no store and no run; an engine is known by
the options that it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trt_responses.accept.accepted import Accepted, AnswerFormat, BuiltInTool, Tool
from trt_responses.accept.echo import NO_REASONING, NO_TEXT, echo_of
from trt_responses.accept.sampling import sampling_of, thought_of
from trt_responses.accept.tool_choice import choice_among
from trt_responses.accept.tools import client_tools, tools_run_here
from trt_responses.errors import InvalidRequest
from trt_responses.wire import tools as t
from trt_responses.wire.choice import JsonObject, JsonSchema, TextFormat
from trt_responses.wire.dialect import OPENAI, Dialect
from trt_responses.wire.fields import FIELDS
from trt_responses.wire.judge import LOGPROBS, OVER_HTTP, Column, judge
from trt_responses.wire.known_tools import Known, known
from trt_responses.wire.past_calls import Amending
from trt_responses.wire.request import Request

Listed = tuple[str, Known[t.Tool]]
"""A list of tools, and where it stands."""

FORMAT = "text.format"
OWN_INCLUDES = frozenset(
    field.path.removeprefix("include.")
    for field in FIELDS
    if field.ours and field.path.startswith("include.")
)
"""Our own values of `include`: what the last snapshot is to say besides."""
NO_TOOLS: Mapping[str, Sequence[str]] = {}
SEALED = "reasoning.encrypted_content"


def accept(
    request: Request,
    dialect: Dialect = OPENAI,
    built_in: Mapping[str, Sequence[str]] = NO_TOOLS,
    column: Column = OVER_HTTP,
) -> Accepted:
    """What a request asks for. Raises an `InvalidRequest` for the first thing that is wrong.
    `built_in` are the kinds of tools that the server runs, each with the model's names for them;
    `column` is what the endpoint does with each field."""
    echoed, amending = known(request.tools or ()), _amending(request)
    lists: list[Listed] = [("tools", echoed)]
    for place, item in amending:
        request = item.amended(request)
        if item.offered is not None:
            lists.append((f"{place}.tools", known(item.offered)))
    placed, tools = _placed(lists)
    run_here = _run_here(lists, request.include or (), built_in)
    ignored = judge(request, placed, column, built_in)
    reasoning, form = request.reasoning or NO_REASONING, (request.text or NO_TEXT).format
    dialect.check(reasoning.effort, request.tools or ())
    scored = LOGPROBS in (request.include or ())
    sampling = sampling_of(request, (request.top_logprobs or 0) if scored else None)
    echo = echo_of(request, echoed, sampling, built_in)
    caching = request.prompt_cache_options
    accepted = Accepted(
        input=request.input,
        compacts_beyond=_threshold(request),
        previous_response_id=request.previous_response_id,
        conversation=_conversation(request),
        instructions=request.instructions,
        tools=tools,
        choice=choice_among(request.tool_choice, tools, run_here),
        answer=_answer(form),
        effort=reasoning.effort,
        thought=thought_of(reasoning.effort, reasoning.max_tokens),
        sampling=sampling,
        max_output_tokens=request.max_output_tokens,
        parallel_calls=request.parallel_tool_calls is not False,
        truncates=request.truncation == "auto",
        seals=SEALED in (request.include or ()),
        summarised=reasoning.summary is not None,
        included=tuple(filter(OWN_INCLUDES.__contains__, request.include or ())),
        own_temperature=request.temperature is not None,
        store=echo.store,
        echo=echo,
        ignored=ignored,
        unsupported_tools=_unsupported(known(request.tools or ()), built_in),
        built_in=run_here,
        max_tool_calls=request.max_tool_calls,
        scored=scored,
        compared=None if caching is None else caching.comparison_response_id,
    )
    for _, item in amending:
        accepted = item.accepted(accepted)
    return accepted


def _placed(lists: Sequence[Listed]) -> tuple[Sequence[t.Placed], Known[Tool]]:
    """The tools that the client runs, with their places, and in the prompt's form."""
    if len(lists) > 1:
        placed = [one for within, tools in lists for one in t.flat(tools, within)]
        return placed, known(client_tools(placed))
    ((within, tools),) = lists
    found = tools.once("placed", lambda: tuple(t.flat(tools, within)))
    return found, tools.once("client's", lambda: known(client_tools(found)))


def _run_here(
    lists: Sequence[Listed], included: Sequence[str], built_in: Mapping[str, Sequence[str]]
) -> Sequence[BuiltInTool]:
    """The tools that the server runs."""
    if len(lists) > 1:
        return tools_run_here(lists, included, built_in)
    ((_, tools),) = lists
    # Of what a client includes, only what is known here is a part of the name, which is kept.
    own = {tool.outputs for tool in tools if isinstance(tool, t.FolderTool) and tool.outputs}
    shown = tuple(sorted(own.intersection(included)))
    names_here = tuple((kind, tuple(names)) for kind, names in built_in.items())
    name = ("run here", shown, names_here)
    return tools.once(name, lambda: tools_run_here(lists, shown, built_in))


def _unsupported(tools: Known[t.Tool], built_in: Mapping[str, Sequence[str]]) -> list[str]:
    """The types of the tools that neither the client nor the server runs."""

    def unsupported() -> list[str]:
        return [tool.type for tool in tools if t.runs_nowhere(tool, built_in)]

    return tools.once(("unsupported", tuple(built_in)), unsupported)


def _amending(request: Request) -> list[tuple[str, Amending]]:
    """The items that change what the request asks for, with their places."""
    items = () if isinstance(request.input, str) else request.input
    found = ((f"input[{n}]", item) for n, item in enumerate(items) if isinstance(item, Amending))
    return list(found)


def _threshold(request: Request) -> int | None:
    managed = request.context_management
    return managed[0].compact_threshold or 0 if managed else None


def _conversation(request: Request) -> str | None:
    wanted = request.conversation
    if wanted is None:
        return None
    if request.previous_response_id is not None:
        raise InvalidRequest(
            "'conversation' and 'previous_response_id' exclude each other: a conversation goes on "
            "from its own end.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    return wanted if isinstance(wanted, str) else wanted.id


def _answer(form: TextFormat | None) -> AnswerFormat | None:
    if isinstance(form, JsonSchema):
        return AnswerFormat(
            FORMAT, form.name, form.description, form.schema_, strict=form.strict is True
        )
    if isinstance(form, JsonObject):
        return AnswerFormat(FORMAT, "json_object", "A JSON object.", None)
    return None
