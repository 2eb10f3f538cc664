"""A response before it has an output: the request, as the API gives it back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trt_responses.engine import GenerateOptions
from trt_responses.wire import tools as t
from trt_responses.wire.known_tools import Known, known
from trt_responses.wire.request import ReasoningOptions, Request, TextOptions
from trt_responses.wire.response import EchoedTools, Response

NO_REASONING, NO_TEXT = ReasoningOptions(), TextOptions()


def echo_of(
    request: Request,
    tools: Sequence[t.Tool] | None,
    sampling: GenerateOptions,
    built_in: Collection[str],
) -> Response:
    """The request, with the default wherever the client sent none."""
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
        conversation=_conversation(request),
        prompt_cache_key=request.prompt_cache_key,
        reasoning=reasoning,
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=sampling.temperature,
        text={"format": form, "verbosity": text.verbosity or "medium"},
        tool_choice=(
            choice or "auto"
            if choice is None or isinstance(choice, str)
            else choice.model_dump(exclude_unset=True)
        ),
        tools=_tools(known(tools or ()), built_in),
        top_logprobs=request.top_logprobs or 0,
        top_p=sampling.top_p,
        truncation=request.truncation or "disabled",
    )


def _conversation(request: Request) -> Mapping[str, str] | None:
    wanted = request.conversation
    return None if wanted is None else {"id": wanted if isinstance(wanted, str) else wanted.id}


def _tools(tools: Known[t.Tool], built_in: Collection[str]) -> EchoedTools:
    """The tools as the API gives them back."""

    def echoed() -> EchoedTools:
        return EchoedTools(_tool(tool) for tool in tools if not t.runs_nowhere(tool, built_in))

    return tools.once(("echoed", tuple(built_in)), echoed)


def _tool(tool: t.Tool) -> Mapping[str, Any]:
    """A tool as the API gives it back, with every key, though the client left some out."""
    body = tool.model_dump(exclude_none=True)
    if isinstance(tool, t.FunctionTool):
        return {"description": None, "parameters": None, "strict": False} | body
    if isinstance(tool, t.NamespaceTool):
        return {"description": ""} | body | {"tools": [_tool(one) for one in tool.tools]}
    return tool.echoed() if isinstance(tool, t.FolderTool) else body
