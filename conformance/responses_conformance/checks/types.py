"""The types of OpenAI's SDK as a strict judge. Nothing else of the SDK is used."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from responses_conformance.client import Json


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    if kind == "event":
        from openai.types.responses import ResponseStreamEvent

        return TypeAdapter(ResponseStreamEvent)
    if kind == "response":
        from openai.types.responses import Response

        return TypeAdapter(Response)
    if kind == "chat.completion":
        from openai.types.chat import ChatCompletion

        return TypeAdapter(ChatCompletion)
    from openai.types.chat import ChatCompletionChunk

    return TypeAdapter(ChatCompletionChunk)


def fault_of(kind: str, found: Json) -> str | None:
    """Why an object is none of the SDK's; None if it is one."""
    try:
        _adapter(kind).validate_json(json.dumps(found), strict=True)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        # a union's first step is the member's name
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
