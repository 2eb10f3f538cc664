"""What a request asks of the engine's sampling, and of a turn; what its dialect cannot say.

Knows the request and the seam of engines; knows no prompt and no run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.engine.base import GenerateOptions
from trt_responses.errors import Unsupported
from trt_responses.response.steering.tools import offers
from trt_responses.wire.dialect import OPEN_RESPONSES

if TYPE_CHECKING:
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.request import Request


def may_call_again(request: Request, most: int) -> bool:
    return most > 1 and request.parallel_tool_calls is not False and offers(request)


def check_sayable(request: Request, dialect: Dialect) -> None:
    """The specification has no words for other tools than functions, nor for every effort."""
    if dialect is not OPEN_RESPONSES:
        return
    effort = request.reasoning.effort if request.reasoning else None
    if effort in ("minimal", "max"):
        raise Unsupported(
            f"Unsupported value for 'reasoning.effort': the dialect 'open-responses' has no "
            f"'{effort}'.",
            param="reasoning.effort",
        )
    for place, tool in enumerate(request.tools or ()):
        if tool.type in ("custom", "namespace"):
            raise Unsupported(
                f"Unsupported tool type '{tool.type}': the dialect 'open-responses' has 'function' "
                "tools only.",
                param=f"tools[{place}].type",
                code="unsupported_tool",
            )


def options(
    request: Request, response_id: str, arrival_ns: int, owner: str, logprobs: int | None
) -> GenerateOptions:
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
        cache_salt=owner or None,  # cached tokens are never shared between owners
        arrival_ns=arrival_ns,
        request_id=response_id,
    )
